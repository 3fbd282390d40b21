"""The tables of docs/settings.md, made from the settings. ``python -m tests.settings_tables`` writes them there."""

import re
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from devicemanager.cli import COMMANDS
from devicemanager.settings.flags import Setting, Settings, settings_of

PROGRAMS: Final[Mapping[str, type[Settings]]] = {
    name: resolve_name(command.settings) for name, command in COMMANDS.items()
}
"""Sub-command -> its settings, in the order in which ``--help`` shows them."""

PAGE: Final = Path(__file__).parents[1] / "docs" / "settings.md"

_PLACE: Final = re.compile(r"(<!-- settings: (\w[\w-]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(model: type[Settings]) -> str:
    """One program's settings as a Markdown table."""
    rows = ["| Flag | Variable | Value | Default | Meaning |", "|---|---|---|---|---|"]
    return "\n".join([*rows, *(_row(setting) for setting in settings_of(model))])


def _row(setting: Setting) -> str:
    spec = setting.spec
    short = f"`-{spec.short}`, " if spec.short else ""
    value = f"`{spec.value}`".replace("|", "\\|") if spec.value else "switch"
    default = setting.default if spec.default else f"`{setting.default}`" if setting.default else ""
    variables = ", ".join(f"`{name}`" for name in setting.variables)
    return f"| {short}`{setting.flag}` | {variables} | {value} | {default} | {spec.help} |"


def with_tables(page: str) -> str:
    """The page with each marked place filled with its program's table."""
    return _PLACE.sub(lambda match: f"{match[1]}{table(PROGRAMS[match[2]])}\n{match[3]}", page)


def tables_in(page: str) -> list[str]:
    """The programs that the page has a place for."""
    return [match[2] for match in _PLACE.finditer(page)]


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
