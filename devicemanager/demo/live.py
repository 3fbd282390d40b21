"""What the demo shows: each Instance's CPU, memory, disk and cards, with the age and state of every source.

Drawing is pure: a view in, something rich can print out. Colour only repeats what the text says already, so that
nothing is lost without it; on a terminal without Unicode plain characters stand in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from devicemanager.model.accelerator import CollectorState, Figure, Reason
from devicemanager.model.figures import Figures
from devicemanager.model.usage import AcceleratorUsage, SourceReport, SourceState, UsageSample, WorkloadUsage
from devicemanager.rules.duration import format_duration
from devicemanager.rules.freshness import sample_age_s

WIDEST: Final = 110
"""Columns; on wider terminals lines of figures get hard to follow."""

_NARROWER: Final = ("Product", "Util", "Temp", "Power", "Memory")
"""What goes first where a card's columns do not all fit; of ``Util`` the bar goes, and the figure stays."""

_NARROWEST: Final = ("Util", "Health")
"""What goes where they do not fit beside a name cut short either."""

_RECOGNISABLE: Final = 4
"""Columns of a name that is cut short."""

_ANY_FIGURE: Final = "…"

_USUAL_COLUMNS: Final = {"Util": 5, "Memory": 14, "Temp": 6, "Power": 5, "Health": 9}
"""The most that figures usually need, so that moving ones do not make columns come and go."""

_WARM_PERCENT: Final = 75
_HOT_PERCENT: Final = 90
_BAR_COLUMNS: Final = 10
_GAP: Final = 2
_BORDERS: Final = 4
_MIB_PER_GIB: Final = 1024
_NANOCORES_PER_CORE: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class View:
    """One Instance at one moment.

    Attributes:
        title: ``namespace/name``.
        usage: None when it could not be read.
        problem: Why not.
    """

    title: str
    usage: WorkloadUsage | None = None
    problem: str = ""


class Frame:
    """All Instances, one below the other. A rich renderable."""

    def __init__(self, views: Sequence[View], now: datetime) -> None:
        self._views = views
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width and the characters of this console."""
        width = min(options.max_width, WIDEST)
        for view in self._views:
            yield _panel(view, self._now, width, ascii_only=options.ascii_only)


def _panel(view: View, now: datetime, width: int, *, ascii_only: bool) -> Panel:
    usage = view.usage
    sample = usage.sample if usage else None
    place = f" on {usage.node_name}" if usage and usage.node_name else ""
    content: Group | Text
    if sample is None:
        content = Text(view.problem or "no sample", style="yellow")
        age = ""
    else:
        available = width - _BORDERS
        parts: list[Table | Text] = [_usage_table(sample, available, ascii_only=ascii_only)]
        if sample.accelerators:
            parts.append(_card_table(sample.accelerators, available, ascii_only=ascii_only))
        parts.append(_sources(sample.sources, available, ascii_only=ascii_only))
        content = Group(*parts)
        age = f"sampled {format_duration(sample_age_s(sample, now))} ago"
        if len(age) > available - _GAP:
            age = ""  # it would be cut short
    return Panel(
        content,
        title=Text.assemble((view.title, "bold"), (place, "not bold")),
        title_align="left",
        subtitle=age or None,
        subtitle_align="right",
        box=box.ASCII if ascii_only else box.ROUNDED,
        border_style="blue",
        width=width,
    )


def _usage_table(sample: UsageSample, available: int, *, ascii_only: bool) -> Table:
    limits = sample.limits
    rows = (
        ("CPU", cores_text(sample.cpu_usage_nanocores, limits.cpu_millicores), sample.cpu_usage_nanocores,
         None if limits.cpu_millicores is None else limits.cpu_millicores * 1_000_000),
        ("Memory", gib_text(sample.memory_working_set_mib, limits.memory_mib), sample.memory_working_set_mib,
         limits.memory_mib),
        ("Disk", gib_text(sample.ephemeral_storage_used_mib, limits.ephemeral_storage_mib),
         sample.ephemeral_storage_used_mib, limits.ephemeral_storage_mib),
    )  # fmt: skip
    shares = [percent(used, limit) for _, _, used, limit in rows]
    columns = {
        "what": [Text(label, style="bold") for label, *_ in rows],
        "share": [share_bar(share, ascii_only=ascii_only) for share in shares],
        "figures": [Text(text) for _, text, *_ in rows],
    }
    if _width(columns) > available:
        columns["share"] = [_share(share) for share in shares]
    if _width(columns) > available:
        del columns["share"]
    _cut_names(columns, "what", available)
    left = available - _width(columns, now=True) + max(cell.cell_len for cell in columns["figures"])
    columns["figures"] = [cell if cell.cell_len <= left else Text(_ANY_FIGURE) for cell in columns["figures"]]
    table = Table.grid(*columns, padding=(0, _GAP, 0, 0))
    return _filled(table, columns)


def _card_table(cards: Sequence[AcceleratorUsage], available: int, *, ascii_only: bool) -> Table:
    """As many columns as fit: one that is missing is seen to be, a figure cut short is not."""
    columns = {
        "Card": [Text(card.id, style="bold") for card in cards],
        "Product": [Text(card.name or "-") for card in cards],
        "Util": [_utilization(card, ascii_only=ascii_only) for card in cards],
        "Memory": [Text(_memory(card.figures)) for card in cards],
        "Temp": [
            Text(figure_text(card.figures.number("temperature"), " C" if ascii_only else " °C")) for card in cards
        ],
        "Power": [Text(figure_text(card.figures.number("power_usage"), " W")) for card in cards],
        "Health": [_health(card.unhealthy) for card in cards],
    }
    for header in _NARROWER:
        if _width(columns) <= available:
            break
        if header == "Util":
            columns[header] = [_utilization(card, ascii_only=True, bar=False) for card in cards]
        else:
            del columns[header]
    _cut_names(columns, "Card", available)
    for header in _NARROWEST:
        if _width(columns, now=True) > available:
            del columns[header]
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for header in columns:
        table.add_column(header, justify="right" if header in {"Memory", "Temp", "Power"} else "left")
    return _filled(table, columns)


def _cut_names(columns: dict[str, list[Text]], name: str, available: int) -> None:
    """Cut the cells of a column that names things, so that the figures beside them stay whole."""
    longest = max(cell.cell_len for cell in columns[name])
    least = max(_RECOGNISABLE, longest - max(0, _width(columns, now=True) - available))
    for cell in columns[name]:
        cell.truncate(least, overflow="ellipsis")


def _width(columns: Mapping[str, Sequence[Text]], *, now: bool = False) -> int:
    """What columns need side by side, each at least its usual width; ``now`` leaves that out."""
    least = {name: len(name) for name in columns} if now else _USUAL_COLUMNS
    widths = (max(least.get(name, 0), *(cell.cell_len for cell in cells)) for name, cells in columns.items())
    return sum(widths) + _GAP * (len(columns) - 1)


def _filled(table: Table, columns: Mapping[str, Sequence[Text]]) -> Table:
    for column in table.columns:
        column.no_wrap = True
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def _sources(sources: Sequence[SourceReport], width: int, *, ascii_only: bool) -> Text:
    """Every source with its state and age, as many on a line as fit; a source is never broken."""
    label, between = "Sources", " | " if ascii_only else " · "
    text = Text(label, style="dim")
    column = len(label)
    for number, source in enumerate(sources):
        item = _source(source)
        if number and column + len(between) + len(item) > width:
            text.append("\n" + " " * len(label))
            column = len(label)
        lead = between if number and column > len(label) else " "
        text.append(lead)
        text.append_text(item)
        column += len(lead) + len(item)
    return text


def _source(source: SourceReport) -> Text:
    good = source.state in {SourceState.OK, CollectorState.OK}
    age = "" if source.age_s is None else f" {source.age_s}s"
    text = Text(f"{source.name} ", style="not dim")
    text.append(f"{source.state}{age}", style="green" if good else "bold yellow")
    if not good and source.message:
        text.append(f" ({source.message})")
    return text


def share_bar(share: int | None, *, ascii_only: bool) -> Text:
    """Ten columns filled as far as the share goes, and the share itself; spaces when there is none to show."""
    if share is None:
        return Text(" " * (_BAR_COLUMNS + 6))
    full, rest = ("#", "-") if ascii_only else ("━", "╌")
    filled = min(_BAR_COLUMNS, (share * _BAR_COLUMNS + 50) // 100)
    style = "red" if share >= _HOT_PERCENT else "yellow" if share >= _WARM_PERCENT else "green"
    return Text.assemble((full * filled, style), (rest * (_BAR_COLUMNS - filled), "dim"), f"{share:>4} %")


def _share(share: int | None) -> Text:
    """A share without its bar."""
    return share_bar(share, ascii_only=True)[_BAR_COLUMNS + 1 :]


def percent(used: Figure, limit: Figure | None) -> int | None:
    """Share of a limit, truncated; None when either is unknown."""
    if isinstance(used, Reason) or limit is None or isinstance(limit, Reason) or limit <= 0:
        return None
    return used * 100 // limit


def cores_text(nanocores: Figure, limit_millicores: int | None) -> str:
    """``1.39 / 4 cores``."""
    used = _two_decimals(nanocores, _NANOCORES_PER_CORE)
    if limit_millicores is None:
        return f"{used} cores"
    limit = f"{limit_millicores / 1000:g}"
    return f"{used} / {limit} {'core' if limit == '1' else 'cores'}"


def gib_text(used_mib: Figure, total_mib: Figure | None) -> str:
    """``2.57 / 8 GiB``; one reason stands for both when neither is known."""
    used = _two_decimals(used_mib, _MIB_PER_GIB)
    if total_mib is None or (isinstance(used_mib, Reason) and total_mib == used_mib):
        return used if isinstance(used_mib, Reason) else f"{used} GiB"
    total = f"<{total_mib}>" if isinstance(total_mib, Reason) else f"{total_mib / _MIB_PER_GIB:.4g}"
    return f"{used} / {total} GiB"


def figure_text(figure: Figure, unit: str) -> str:
    """A figure with its unit, or the reason for having none."""
    return f"<{figure}>" if isinstance(figure, Reason) else f"{figure}{unit}"


def _two_decimals(figure: Figure, divisor: int) -> str:
    return f"<{figure}>" if isinstance(figure, Reason) else f"{figure / divisor:.2f}"


def _utilization(card: AcceleratorUsage, *, ascii_only: bool, bar: bool = True) -> Text:
    share = card.figures.number("compute_utilization")
    if isinstance(share, Reason):
        return Text(f"<{share}>", style="yellow")
    return share_bar(share, ascii_only=ascii_only) if bar else _share(share)


def _memory(figures: Figures) -> str:
    return gib_text(figures.number("memory_used"), figures.number("memory_total"))


def _health(unhealthy: bool | Reason) -> Text:
    if isinstance(unhealthy, Reason):
        return Text(f"<{unhealthy}>", style="yellow")
    return Text("unhealthy", style="bold red") if unhealthy else Text("ok", style="green")
