"""What ``--help`` prints, written from the settings."""

import textwrap

from devicemanager.settings.flags import Settings, settings_of


def help_text(usage: str, summary: str, model: type[Settings], *, width: int = 100) -> str:
    """What ``--help`` prints; ``usage`` is the command line up to the flags: ``devicemanager serve``."""
    settings = settings_of(model)
    arguments = [setting.flag for setting in settings if setting.spec.positional]
    lines = [f"Usage: {' '.join([usage, *arguments])} [flags]", "", *textwrap.wrap(summary, width), "", "Flags:"]
    for setting in settings:
        short = f"-{setting.spec.short}, " if setting.spec.short else ""
        value = f" {setting.spec.value}" if setting.spec.value and not setting.spec.positional else ""
        lines.append(f"  {short}{setting.flag}{value}")
        notes = [setting.spec.help]
        if setting.default and not (setting.switch and setting.default == "false"):
            notes.append(f"Default: {setting.default}.")
        if setting.variables:
            notes.append(f"[{', '.join(setting.variables)}]")
        indent = " " * 6
        lines += textwrap.wrap(
            " ".join(notes), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
    lines += ["  -h, --help", "      Print this text."]
    return "\n".join(lines)
