"""Writes the tables of settings.md and figures.md from the code: ``python docs/tables.py``.

With ``--check`` it compares, and exits with 1 if a page is out of date.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from collectors.scenario_values import SPANS
from devicemanager.cli import COMMANDS
from devicemanager.model.figures import FIGURES, FigureSpec, unit_text
from devicemanager.settings.flags import Setting, Settings, settings_of

_PLACE: Final = re.compile(r"(<!-- (?:settings|figures): (\w[\w-]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def settings(model: type[Settings]) -> list[str]:
    """One program's settings."""
    rows = ["| Flag | Variable | Value | Default | Meaning |", "|---|---|---|---|---|"]
    return [*rows, *map(_setting, settings_of(model))]


def _setting(setting: Setting) -> str:
    spec = setting.spec
    short = f"`-{spec.short}`, " if spec.short else ""
    value = f"`{spec.value}`".replace("|", "\\|") if spec.value else "switch"
    default = setting.default if spec.default else f"`{setting.default}`" if setting.default else ""
    variables = ", ".join(f"`{name}`" for name in setting.variables)
    return f"| {short}`{setting.flag}` | {variables} | {value} | {default} | {spec.help} |"


def meanings() -> list[str]:
    """What each figure is, in which unit, and whose on a divided card."""
    rows = ["| Figure | Meaning | Published in | A reading lies within | Whose |", "|---|---|---|---|---|"]
    return [*rows, *map(_meaning, FIGURES)]


def _meaning(spec: FigureSpec) -> str:
    quantity = spec.quantity
    unit = unit_text(quantity).removeprefix(", ") or "list of text"
    computed = f"computed from `{'` and `'.join(spec.share_of)}`" if spec.share_of else None
    lies = computed or f"{quantity.lowest}..{quantity.highest} {quantity.unit}"
    lies += f", at most `{spec.part_of}`" if spec.part_of else ""
    lies += f", at most {spec.at_most[1]} times `{spec.at_most[0]}`" if spec.at_most else ""
    return f"| `{spec.name}` | {spec.description} | {unit} | {lies} | {spec.scope} |"


def names() -> list[str]:
    """What each figure is called where it is shown."""
    rows = ["| Figure | Snapshot | Sample | Metric | Column | Collector's line |", "|---|---|---|---|---|---|"]
    return [*rows, *map(_names, FIGURES)]


def _names(spec: FigureSpec) -> str:
    metrics = f"`{spec.metric}`" + (f", `{spec.member[0]}`" if spec.member else "")
    column = spec.column.heading.upper() if spec.column else ""
    line = f"`{spec.line_key}`" if spec.line_key else ""
    return f"| `{spec.name}` | `{spec.snapshot_key}` | `{spec.sample_key}` | {metrics} | {column} | {line} |"


def simulated() -> list[str]:
    """Keys of a simulated card's figures."""
    spans = (f"| `{key}` | `{{ idle = {span.idle:g}, full = {span.full:g} }}` |" for key, span in SPANS.values())
    return ["| Key | Default |", "|---|---|", *spans]


PAGES: Final[Mapping[str, Mapping[str, Callable[[], list[str]]]]] = {
    "settings.md": {name: partial(settings, resolve_name(each.settings)) for name, each in COMMANDS.items()},
    "figures.md": {"meanings": meanings, "names": names, "simulated": simulated},
}
"""Page -> its tables, in the order in which it shows them."""


def main(arguments: list[str]) -> str | None:
    """Write or compare; what is wrong, for ``sys.exit``."""
    for name, tables in PAGES.items():
        path = Path(__file__).with_name(name)
        page = path.read_text(encoding="utf-8")
        if [match[2] for match in _PLACE.finditer(page)] != list(tables):
            return f"{name} must have a place for each of: {', '.join(tables)}"
        written = _PLACE.sub(lambda match: "\n".join([match[1].rstrip(), *tables[match[2]](), match[3]]), page)  # noqa: B023
        if arguments == ["--check"]:
            if written != page:
                return f"{name} is out of date: run python docs/tables.py"
        else:
            path.write_text(written, encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
