"""The columns that people read in ``kubectl get instancemetrics``. Pure.

A cell never shows a figure that was not measured: ``<unknown>`` stands for it. Where some of an Instance's cards
have a figure and others have not, the cell says how many were counted: ``93% (7/8)``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from devicemanager.model import figures
from devicemanager.model.figures import SHOWN, Figure, FigureSpec, Fold, unit_text
from devicemanager.model.reasons import Reason
from devicemanager.model.usage import AcceleratorUsage, SourceState, UsageSample, WorkloadUsage
from devicemanager.rules.duration import human_duration
from devicemanager.rules.freshness import sample_age_s
from devicemanager.rules.merge import ALLOCATION
from devicemanager.rules.units import millicores
from devicemanager.worker.workloads.workload import Column

UNKNOWN: Final = "<unknown>"
NONE: Final = "<none>"

HEALTHY: Final = "ok"
UNHEALTHY: Final = "unhealthy"

_MORE_REASONS: Final = 3
"""Reasons and profiles that one cell names."""


def cells(usage: WorkloadUsage, now: datetime) -> list[str]:
    """One row, in the order of the columns."""
    created = usage.created_at
    values = {
        "Name": usage.name,
        "Node": usage.node_name or NONE,
        "Instance-Age": UNKNOWN if created is None else human_duration(int((now - created).total_seconds())),
        "Sources": NONE,
    }
    if usage.sample is not None:
        values |= _sample_cells(usage.sample, now)
    return [values.get(column.name, UNKNOWN) for column in COLUMNS]


def _sample_cells(sample: UsageSample, now: datetime) -> dict[str, str]:
    cards = sample.accelerators
    count, complete = _card_count(sample)
    return {
        "CPU": _of_limit(millicores(sample.cpu_usage_nanocores), sample.limits.cpu_millicores, "m"),
        "Memory": _of_limit(sample.memory_working_set_mib, sample.limits.memory_mib, "Mi"),
        "Disk": _of_limit(sample.ephemeral_storage_used_mib, sample.limits.ephemeral_storage_mib, "Mi"),
        "GPUs": count,
        "GPU-Mem": _over_cards(cards, complete, _memory),
        "Health": _over_cards(cards, complete, _health),
        "Health-Reason": _named(card.unhealthy_reason for card in cards if card.unhealthy is True),
        "Profile": _named(card.profile for card in cards),
        "Sample-Age": age(sample, now),
        "Sources": _sources(sample),
        **{column.heading: _over_cards(cards, complete, partial(_folded, spec, column)) for spec, column in SHOWN},
    }


def age(sample: UsageSample, now: datetime) -> str:
    """How old the oldest figure is, as kubectl writes ages."""
    return human_duration(sample_age_s(sample, now))


def _of_limit(used: Figure, limit: int | None, unit: str) -> str:
    shown = UNKNOWN if isinstance(used, Reason) else f"{used}{unit}"
    return shown if limit is None else f"{shown}/{limit}{unit}"


def _card_count(sample: UsageSample) -> tuple[str, bool]:
    """How many cards are listed, and whether that is all of them.

    Cards are listed as the pod's record names them, whatever their device manager says; but a record that is not
    understood, or does not count, may name more.
    """
    complete = all(source.state == SourceState.OK for source in sample.sources if source.name == ALLOCATION)
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


def _memory(cards: Sequence[AcceleratorUsage]) -> tuple[str, int]:
    """Used of total, over the cards that have both."""
    figures = [(card.figures.number("memory_used"), card.figures.number("memory_total")) for card in cards]
    pairs = [
        (used, total) for used, total in figures if not isinstance(used, Reason) and not isinstance(total, Reason)
    ]
    return f"{sum(used for used, _ in pairs)}Mi/{sum(total for _, total in pairs)}Mi", len(pairs)


def _health(cards: Sequence[AcceleratorUsage]) -> tuple[str, int]:
    """How many are unhealthy; if none is, how many are known to be well."""
    unhealthy = sum(card.unhealthy is True for card in cards)
    if not unhealthy:
        return HEALTHY, sum(card.unhealthy is False for card in cards)
    return (UNHEALTHY if unhealthy == len(cards) else f"{UNHEALTHY} ({unhealthy}/{len(cards)})"), len(cards)


def _named(words: Iterable[str | None]) -> str:
    """What several cards say, each once."""
    distinct = list(dict.fromkeys(word for word in words if word is not None))
    more = len(distinct) - _MORE_REASONS
    return "; ".join(distinct[:_MORE_REASONS]) + (f"; and {more} more" if more > 0 else "") or NONE


def _folded(spec: FigureSpec, column: figures.Column, cards: Sequence[AcceleratorUsage]) -> tuple[str, int]:
    """One cell for several cards, and how many of them have the figure."""
    values = [value for card in cards if not isinstance(value := card.figures[spec.name], Reason)]
    if not values:
        return "", 0
    if column.fold is Fold.UNION:
        names = (name for value in values if isinstance(value, tuple) for name in value)
        return ",".join(dict.fromkeys(names)) or NONE, len(values)
    folded = _FOLDS[column.fold]([value for value in values if isinstance(value, int)])
    return f"{folded}{spec.quantity.cell_unit}", len(values)


_FOLDS: Final[Mapping[Fold, Callable[[Sequence[int]], int]]] = {
    Fold.MEAN: lambda numbers: sum(numbers) // len(numbers),
    Fold.SUM: sum,
    Fold.HIGHEST: max,
}


def _sources(sample: UsageSample) -> str:
    """``kubelet,device-manager/nvidia=stale``: a source without a state answered well."""
    return (
        ",".join(
            source.name if source.state == SourceState.OK else f"{source.name}={source.state}"
            for source in sample.sources
        )
        or NONE
    )


def _figure_columns(*priorities: int) -> Iterable[Column]:
    return (
        Column(
            column.heading, min(1, column.priority), f"{spec.description}, {column.fold}{unit_text(spec.quantity)}."
        )
        for spec, column in SHOWN
        if column.priority in priorities
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
        "GPUs",
        0,
        "Accelerators given to the Instance; a + says that a part of the record of them cannot be used, and it may "
        "name more.",
    ),
    *_figure_columns(0),
    Column("GPU-Mem", 0, "Accelerator memory in use of what there is, in MiB, over the cards that were measured."),
    Column(
        "Health",
        0,
        "ok where every accelerator, or as many as are counted, is known to be healthy; else how many are not.",
    ),
    Column("Sample-Age", 0, "Time since the oldest figure of the row was measured."),
    Column("Node", 1, "Node that runs the Instance's pod."),
    Column("Instance-Age", 1, "Time since the Instance was created."),
    *_figure_columns(1, 2),
    Column("Health-Reason", 1, "Why accelerators are unhealthy, in the words of their device manager."),
    Column("Profile", 1, "Profiles of the partitions that were given."),
    Column("Sources", 1, "What was asked for the figures; a source that did not answer well carries its state."),
)
