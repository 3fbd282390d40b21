"""One Instance's sample as text, for ``devicemanager instance-metrics``. Pure."""

from datetime import datetime
from typing import Final

from devicemanager.model.figures import Figure
from devicemanager.model.reasons import Reason
from devicemanager.model.usage import AcceleratorUsage, SourceReport, UsageSample, WorkloadUsage
from devicemanager.programs.columns import columns
from devicemanager.programs.present import (
    EXTRA_COLUMNS,
    FIGURE_COLUMNS,
    figure_cells,
    figure_text,
    health_text,
)
from devicemanager.rules.duration import format_duration
from devicemanager.rules.freshness import sample_age_s
from devicemanager.rules.units import millicores

_CARD_COLUMNS: Final = (
    "CARD",
    "MANUFACTURER",
    "INDEX",
    "NAME",
    "MODE",
    "MEMORY",
    *FIGURE_COLUMNS,
    "HEALTH",
)
_DISPENSABLE: Final = (*EXTRA_COLUMNS, "NAME", "MANUFACTURER", "INDEX")
_SOURCE_COLUMNS: Final = ("SOURCE", "STATE", "AGE", "MESSAGE")


def usage_text(usage: WorkloadUsage, now: datetime, width: int | None = None) -> str:
    """The figures against their limits, a table of the cards, and one of the sources."""
    title = f"{usage.namespace}/{usage.name}"
    sample = usage.sample
    if sample is None:
        return f"{title}: no sample"
    blocks = [f"{title}: sampled {format_duration(sample_age_s(sample, now))} ago", _figures(sample)]
    if sample.accelerators:
        cards = map(_card_row, sample.accelerators)
        blocks.append(columns(_CARD_COLUMNS, cards, width, drop=_DISPENSABLE, shorten=["CARD"]))
    blocks.append(columns(_SOURCE_COLUMNS, map(_source_row, sample.sources), width, shorten=["MESSAGE"]))
    return "\n\n".join(blocks)


def _figures(sample: UsageSample) -> str:
    limits = sample.limits
    rows = [
        ("CPU", _of_limit(millicores(sample.cpu_usage_nanocores), limits.cpu_millicores, "m")),
        ("MEMORY", _of_limit(sample.memory_working_set_mib, limits.memory_mib, " MiB")),
        ("ROOTFS", figure_text(sample.rootfs_used_mib, " MiB")),
        ("DISK", _of_limit(sample.ephemeral_storage_used_mib, limits.ephemeral_storage_mib, " MiB")),
    ]
    return columns(("FIGURE", "USED"), rows)


def _of_limit(used: Figure, limit: int | None, unit: str) -> str:
    text = figure_text(used, unit)
    if limit is None:
        return text
    share = "" if isinstance(used, Reason) or limit <= 0 else f" ({used * 100 // limit} %)"
    return f"{text} of {limit}{unit}{share}"


def _card_row(card: AcceleratorUsage) -> tuple[str, ...]:
    return (
        card.id,
        card.manufacturer,
        "-" if card.index is None else str(card.index),
        card.name or "-",
        card.mode if card.profile is None else f"{card.mode} {card.profile}",
        *figure_cells(card.figures),
        health_text(card.unhealthy, card.unhealthy_reason),
    )


def _source_row(source: SourceReport) -> tuple[str, ...]:
    age = "-" if source.age_s is None else format_duration(source.age_s)
    return source.name, str(source.state), age, source.message or ""
