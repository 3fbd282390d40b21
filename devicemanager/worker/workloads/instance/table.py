"""The columns that people read in ``kubectl get instancemetrics``. Pure.

A cell never shows a figure that was not measured: ``<unknown>`` stands for it. Where some of an Instance's cards
have a figure and others have not, the cell says how many were counted: ``93% (7/8)``.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.usage import AcceleratorUsage, SourceState, UsageSample, WorkloadUsage
from devicemanager.rules.duration import human_duration
from devicemanager.rules.freshness import sample_age_s
from devicemanager.rules.units import millicores
from devicemanager.worker.workloads.workload import Column

UNKNOWN: Final = "<unknown>"
NONE: Final = "<none>"

_DEVICE_MANAGER: Final = "device-manager/"
_CARD_SOURCES: Final = (_DEVICE_MANAGER, "allocation")


def cells(usage: WorkloadUsage, now: datetime) -> list[str]:
    """One row, in the order of the columns."""
    sample = usage.sample
    if sample is None:
        return [usage.name, *[UNKNOWN] * 7, usage.node_name or NONE, UNKNOWN, UNKNOWN, NONE]
    cards = sample.accelerators
    count, complete = _card_count(sample)
    return [
        usage.name,
        _of_limit(millicores(sample.cpu_usage_nanocores), sample.limits.cpu_millicores, "m"),
        _of_limit(sample.memory_working_set_mib, sample.limits.memory_mib, "Mi"),
        _of_limit(sample.ephemeral_storage_used_mib, sample.limits.ephemeral_storage_mib, "Mi"),
        count,
        _over_cards(cards, complete, _busy),
        _over_cards(cards, complete, _memory),
        age(sample, now),
        usage.node_name or NONE,
        _over_cards(cards, complete, _hottest),
        _over_cards(cards, complete, _power),
        _sources(sample),
    ]


def age(sample: UsageSample, now: datetime) -> str:
    """How old the oldest figure is, as kubectl writes ages."""
    return human_duration(sample_age_s(sample, now))


def _of_limit(used: Figure, limit: int | None, unit: str) -> str:
    shown = UNKNOWN if isinstance(used, Reason) else f"{used}{unit}"
    return shown if limit is None else f"{shown}/{limit}{unit}"


def _card_count(sample: UsageSample) -> tuple[str, bool]:
    """How many cards are listed, and whether that is all of them.

    A device manager that could not be read costs its cards their entries, so the count alone would be a guess.
    """
    complete = all(
        source.state == SourceState.OK for source in sample.sources if source.name.startswith(_CARD_SOURCES)
    )
    count = len(sample.accelerators)
    if complete:
        return str(count), True
    return (f"{count}+" if count else UNKNOWN), False


def _over_cards(
    cards: Sequence[AcceleratorUsage],
    complete: bool,
    fold: Callable[[Sequence[AcceleratorUsage]], tuple[str, int]],
) -> str:
    if not cards:
        return NONE if complete else UNKNOWN
    text, counted = fold(cards)
    if not counted:
        return UNKNOWN
    return text if counted == len(cards) else f"{text} ({counted}/{len(cards)})"


def _busy(cards: Sequence[AcceleratorUsage]) -> tuple[str, int]:
    figures = _measured(card.cores_utilization_percent for card in cards)
    return (f"{sum(figures) // len(figures)}%" if figures else ""), len(figures)


def _memory(cards: Sequence[AcceleratorUsage]) -> tuple[str, int]:
    """Used of total, over the cards that have both."""
    pairs = [
        (card.memory_usage_mib, card.memory_mib)
        for card in cards
        if not isinstance(card.memory_usage_mib, Reason) and not isinstance(card.memory_mib, Reason)
    ]
    return f"{sum(used for used, _ in pairs)}Mi/{sum(total for _, total in pairs)}Mi", len(pairs)


def _hottest(cards: Sequence[AcceleratorUsage]) -> tuple[str, int]:
    figures = _measured(card.temperature_celsius for card in cards)
    return (f"{max(figures)}C" if figures else ""), len(figures)


def _power(cards: Sequence[AcceleratorUsage]) -> tuple[str, int]:
    figures = _measured(card.power_usage_watts for card in cards)
    return f"{sum(figures)}W", len(figures)


def _measured(figures: Iterable[Figure]) -> list[int]:
    return [figure for figure in figures if not isinstance(figure, Reason)]


def _sources(sample: UsageSample) -> str:
    """``kubelet,device-manager/nvidia=stale``: a source without a state answered well."""
    return (
        ",".join(
            source.name if source.state == SourceState.OK else f"{source.name}={source.state}"
            for source in sample.sources
        )
        or NONE
    )


COLUMNS: Final = (
    Column("Name", 0, "Name of the Instance."),
    Column("CPU", 0, "CPU in use, in thousandths of a core, of the pod's limit where it has one."),
    Column("Memory", 0, "Working set in MiB, of the pod's limit where it has one."),
    Column(
        "Disk",
        0,
        "Ephemeral storage in use (writable layers, logs, emptyDirs) in MiB, of the pod's limit where it has one.",
    ),
    Column(
        "GPUs", 0, "Accelerators listed; a + says that a device manager could not be read, so there may be more."
    ),
    Column("GPU-Util", 0, "How busy the cards are, averaged over those that were measured."),
    Column("GPU-Mem", 0, "Accelerator memory in use of what there is, in MiB, over the cards that were measured."),
    Column("Age", 0, "Time since the oldest figure of the row was measured."),
    Column("Node", 1, "Node that runs the Instance's pod."),
    Column("Temp", 1, "Temperature of the hottest card, in degrees Celsius."),
    Column("Power", 1, "Power drawn by all cards together, in watts."),
    Column("Sources", 1, "What was asked for the figures; a source that did not answer well carries its state."),
)
