"""What makes an NVIDIA card unhealthy.

- A health check of the card says so: rows of its memory wait to be remapped or could not be; uncorrected errors in
  its memory, where the card cannot say whether they were contained; a corrupted infoROM.
- A query keeps failing with a code that is no answer, though others answer.
- No figure can be read at all, for a reason that should pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from collectors import nvml_codes
from collectors.nvidia_card import NvidiaCard
from devicemanager.model.figures import Figures
from devicemanager.model.reasons import Reason

FAILURES: Final = 3
"""Readings in a row in which a query must fail before the card counts as unhealthy. One answer ends it."""

ECC: Final = "ecc"
REMAPPED_ROWS: Final = "remapped_rows"

_UNCORRECTED, _VOLATILE, _DRAM = 1, 0, 2
_COUNT_LIMIT: Final = 1 << 32

_CALLS: Final = {
    "memory": ("memory_v1", "memory_v2"),
    "utilization": ("utilization", "gpm"),
    "temperature": ("temperature", "temperature_v"),
    "power": ("power",),
    ECC: (ECC,),
    REMAPPED_ROWS: (REMAPPED_ROWS,),
}
"""Query -> its calls, the one that was asked last first."""


@dataclass(frozen=True, slots=True)
class Health:
    """Why a card is unhealthy, None if it is not, and which checks could not be read."""

    reason: str | None
    unread: Mapping[str, Reason]


def read(card: NvidiaCard, figures: Figures) -> Health:
    """Ask for the health of a card whose figures were read in this tick.

    Raises:
        CardFaultError: The card is lost.
    """
    errors = _error_count(card)
    rows = card.ask(REMAPPED_ROWS, lambda nvml, handle: nvml.nvmlDeviceGetRemappedRows(handle))
    reasons = [*_memory_faults(card, errors, rows), *_failing_queries(card, _answers(figures, errors, rows))]
    if card.inforom_corrupted:
        reasons.append(nvml_codes.named(nvml_codes.CORRUPTED_INFOROM))
    unread = {ECC: errors} if isinstance(errors, Reason) else {}
    if isinstance(rows, Reason) and rows is not Reason.UNSUPPORTED:  # cards before Ampere have no such rows
        unread[REMAPPED_ROWS] = rows
    return Health("; ".join(reasons) or None, unread)


def _error_count(card: NvidiaCard) -> Any:
    errors = card.ask(
        ECC,
        lambda nvml, handle: nvml.nvmlDeviceGetMemoryErrorCounter(handle, _UNCORRECTED, _VOLATILE, _DRAM),
    )
    return errors if isinstance(errors, Reason) or 0 <= errors < _COUNT_LIMIT else Reason.INVALID_DATA


def _memory_faults(card: NvidiaCard, errors: Any, rows: Any) -> tuple[str, ...]:
    """What is wrong with the memory; the last answer while a query fails for a moment.

    Where the card remaps rows, an error after which no remapping is pending or has failed was contained: it is a
    count, and the card goes on working. Where the card does not say, any error since the driver was loaded counts.
    """
    if Reason.TRANSIENT_DRIVER_ERROR in (errors, rows):
        return card.memory_faults
    faults = []
    if isinstance(rows, Reason):
        if not isinstance(errors, Reason) and errors > 0:
            faults.append(f"{errors} uncorrected ECC errors in device memory")
    else:
        _, _, pending, failed = rows
        if failed:
            faults.append("the remapping of a row of device memory failed")
        if pending:
            faults.append("a row of device memory waits to be remapped, by a reset")
    card.memory_faults = tuple(faults)
    return card.memory_faults


def _answers(figures: Figures, errors: Any, rows: Any) -> dict[str, Any]:
    return {
        "memory": figures["memory_total"],
        "utilization": figures["compute_utilization"],
        "temperature": figures["temperature"],
        "power": figures["power_usage"],
        ECC: errors,
        REMAPPED_ROWS: rows,
    }


def _failing_queries(card: NvidiaCard, answers: Mapping[str, Any]) -> list[str]:
    """The queries that have failed often enough, with their codes; a code of the driver's own is enough at once."""
    reasons = []
    for query, answer in answers.items():
        code = _failure(card, query) if answer is Reason.TRANSIENT_DRIVER_ERROR else None
        if code is None:
            card.failing.pop(query, None)
            continue
        card.failing[query] = card.failing.get(query, 0) + 1
        if nvml_codes.blames_driver(code):
            reasons.append(f"{query}: {nvml_codes.named(code)}")
        elif card.failing[query] >= FAILURES:
            reasons.append(f"{query} keeps failing: {nvml_codes.named(code)}")
    return reasons


def _failure(card: NvidiaCard, query: str) -> int | None:
    """The code with which a query failed; None for those that a card in good health gives too."""
    code = next((card.codes[call] for call in _CALLS[query] if call in card.codes), None)
    return None if code is None or nvml_codes.passes(code) else code
