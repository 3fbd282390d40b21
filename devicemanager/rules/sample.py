"""Whether the readings of a tick make a sample that replaces the last one, and if not, why."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from devicemanager.model.accelerator import CollectorState, Reading
from devicemanager.model.reasons import NO_FAULT, Reason

_STATES: Final = {
    frozenset({Reason.PERMISSION}): CollectorState.NO_PERMISSION,
    frozenset({Reason.TIMEOUT}): CollectorState.UNRESPONSIVE,
}
"""State of the collector if all figures of all cards are absent for this reason."""


def succeeded(readings: Iterable[Reading]) -> bool:
    """Whether any card gave a figure, or is identified and has no figures at all.

    Cards of which only the id could be read are none: their figures of the sample before would be lost for nothing.
    """
    return any(reading.answered or (reading.card.id is not None and _has_none(reading)) for reading in readings)


def _has_none(reading: Reading) -> bool:
    """Whether the card has none of the figures; figures that are not read do not count."""
    reasons = set(reading.figures.reasons) - {Reason.NOT_REPORTED}
    return bool(reasons) and reasons <= NO_FAULT


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
    """Why its figures are absent. Figures that it does not have count only if there is no other reason."""
    reasons = frozenset(reading.figures.reasons)
    read = reasons - {Reason.NOT_REPORTED}
    return read - NO_FAULT or read or reasons


def _main_reason(reading: Reading) -> Reason:
    reasons = _reasons(reading)
    return Counter(reason for reason in reading.figures.reasons if reason in reasons).most_common(1)[0][0]
