"""Whether what one tick has read is a sample, which may take the place of the one before, and if not, why."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from devicemanager.model.accelerator import CollectorState, Reading, Reason

_FINAL: Final = frozenset({Reason.UNSUPPORTED, Reason.PARTITIONED, Reason.REPORTED_ON_PRIMARY})
"""What a card in good order says of a figure that it does not have."""

_STATES: Final = {
    frozenset({Reason.PERMISSION}): CollectorState.NO_PERMISSION,
    frozenset({Reason.TIMEOUT}): CollectorState.UNRESPONSIVE,
}
"""What it means when no figure of any card can be had, and all for this reason."""


def succeeded(readings: Iterable[Reading]) -> bool:
    """Whether a figure of any card was read, or any card said who it is and that it has no figure to give.

    Cards of which only the id could be read are none: their figures of the sample before would be lost for nothing.
    """
    return any(
        reading.answered or (reading.card.id is not None and _FINAL.issuperset(reading.figures))
        for reading in readings
    )


def why_not(readings: Iterable[Reading]) -> tuple[CollectorState, str]:
    """The state of a collector whose cards give no figure, and one line on why.

    Args:
        readings: All cards of a tick that did not succeed, in the library's order; at least one.
    """
    readings = tuple(readings)
    reasons = frozenset(reason for reading in readings for reason in _reasons(reading))
    counted = Counter(_main_reason(reading).value for reading in readings)
    why = ", ".join(f"{count} {reason}" for reason, count in counted.most_common())
    fault = next((f"; card {r.card.index} {r.unhealthy_reason}" for r in readings if r.unhealthy_reason), "")
    return _STATES.get(reasons, CollectorState.FAILED), why + fault


def _reasons(reading: Reading) -> frozenset[Reason]:
    """Why its figures are absent. What a card does not have does not count beside what it withholds."""
    reasons = frozenset(figure for figure in reading.figures if isinstance(figure, Reason))
    return reasons - _FINAL or reasons


def _main_reason(reading: Reading) -> Reason:
    return Counter(f for f in reading.figures if isinstance(f, Reason) and f in _reasons(reading)).most_common(1)[
        0
    ][0]
