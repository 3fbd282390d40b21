"""Writes the tables of settings.md from the settings; ``--check`` compares, and exits with 1 if they differ."""

import re
import sys
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

PAGE: Final = Path(__file__).with_name("settings.md")

_PLACE: Final = re.compile(r"(<!-- settings: (\w[\w-]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(model: type[Settings]) -> str:
    """One program's settings as a Markdown table."""
    rows = ["| Flag | Variable | Value | Default | Meaning |", "|---|---|---|---|---|"]
    return "\n".join([*rows, *(_row(setting) for setting in settings_of(model))])


def _row(setting: Setting) -> str:
    about = setting.about
    short = f"`-{about.short}`, " if about.short else ""
    value = f"`{about.value}`".replace("|", "\\|") if about.value else "switch"
    default = setting.default if about.default else f"`{setting.default}`" if setting.default else ""
    variables = ", ".join(f"`{name}`" for name in setting.variables)
    return f"| {short}`{setting.flag}` | {variables} | {value} | {default} | {about.help} |"


def with_tables(page: str) -> str:
    """The page with each marked place filled with its program's table."""
    return _PLACE.sub(lambda match: f"{match[1]}{table(PROGRAMS[match[2]])}\n{match[3]}", page)


def tables_in(page: str) -> list[str]:
    """The programs that the page has a place for."""
    return [match[2] for match in _PLACE.finditer(page)]


def main(arguments: list[str]) -> str | None:
    """Write or compare; what is wrong, for ``sys.exit``."""
    page = PAGE.read_text(encoding="utf-8")
    if tables_in(page) != list(PROGRAMS):
        return f"{PAGE.name} must have a place for each of: {', '.join(PROGRAMS)}"
    if arguments == ["--check"]:
        return (
            None if with_tables(page) == page else f"{PAGE.name} is out of date: run python docs/settings_tables.py"
        )
    PAGE.write_text(with_tables(page), encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
