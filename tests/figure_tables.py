"""The tables of docs/figures.md, made from the figures. ``python -m tests.figure_tables`` writes them there."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from collectors.scenario_values import SPANS
from devicemanager.model.figures import FIGURES, FigureSpec, unit_text

PAGE: Final = Path(__file__).parents[1] / "docs" / "figures.md"

_PLACE: Final = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def meanings() -> list[str]:
    """What each figure is, in which unit, and whose on a divided card."""
    rows = ["| Figure | Meaning | Published in | A reading lies within | Whose |", "|---|---|---|---|---|"]
    return [*rows, *map(_meaning, FIGURES)]


def _meaning(spec: FigureSpec) -> str:
    quantity = spec.quantity
    unit = unit_text(quantity).removeprefix(", ") or "list of text"
    computed = f"computed from `{'` and `'.join(spec.share_of)}`" if spec.share_of else None
    lies = computed or f"{quantity.lowest}..{quantity.highest} {quantity.unit}"
    return f"| `{spec.name}` | {spec.description} | {unit} | {lies} | {spec.scope} |"


def names() -> list[str]:
    """What each figure is called where it is shown."""
    rows = ["| Figure | Snapshot | Sample | Metric | Column | Collector's line |", "|---|---|---|---|---|---|"]
    return [*rows, *map(_called, FIGURES)]


def _called(spec: FigureSpec) -> str:
    metrics = f"`{spec.metric}`" + (f", `{spec.member[0]}`" if spec.member else "")
    column = spec.column.heading.upper() if spec.column else ""
    line = f"`{spec.line_key}`" if spec.line_key else ""
    return f"| `{spec.name}` | `{spec.snapshot_key}` | `{spec.sample_key}` | {metrics} | {column} | {line} |"


def simulated() -> list[str]:
    """Keys of a simulated card's figures."""
    rows = ["| Key | Default |", "|---|---|"]
    return [
        *rows,
        *(f"| `{key}` | `{{ idle = {span.idle:g}, full = {span.full:g} }}` |" for key, span in SPANS.values()),
    ]


TABLES: Final[Mapping[str, Callable[[], list[str]]]] = {
    "meanings": meanings,
    "names": names,
    "simulated": simulated,
}


def with_tables(page: str) -> str:
    """The page with each marked place filled with its table."""
    return _PLACE.sub(lambda match: "\n".join([match[1].rstrip(), *TABLES[match[2]](), match[3]]), page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
