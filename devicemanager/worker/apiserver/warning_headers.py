"""``Warning`` headers, which tell a person what an answer lacks. Pure."""

from collections.abc import Iterable
from typing import Final

from devicemanager.errors import excerpt
from devicemanager.model.usage import SourceReport, SourceState, WorkloadUsage

LIMIT: Final = 8
"""Warnings of one answer; clients drop headers that grow beyond 4 KiB together."""


def warning_header(text: str) -> str:
    """One warning as RFC 7234 writes it, which kubectl prints as ``Warning: text``."""
    line = excerpt(text)
    return '299 - "' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


def bounded(warnings: Iterable[str]) -> list[str]:
    """The first few different warnings, and how many more there are."""
    distinct = list(dict.fromkeys(warnings))
    if len(distinct) <= LIMIT:
        return distinct
    return [*distinct[: LIMIT - 1], f"and {len(distinct) - LIMIT + 1} more"]


def of_usage(usage: WorkloadUsage) -> list[str]:
    """What one answer lacks, source by source, and which of its accelerators are unhealthy."""
    if usage.sample is None:
        return []
    sources = [_of_source(source) for source in usage.sample.sources if source.state != SourceState.OK]
    return sources + [line for card in usage.sample.accelerators if (line := card.health_warning) is not None]


def _of_source(source: SourceReport) -> str:
    return f"{source.name}: {source.state}" + (f" ({source.message})" if source.message else "")
