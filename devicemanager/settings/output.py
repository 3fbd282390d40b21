"""What every program writes: its log, and the answer of those that answer once."""

from enum import StrEnum
from typing import Annotated

from devicemanager.settings.flags import FlagSpec, Settings


class LogFormat(StrEnum):
    """How a line of the log looks."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least severe events that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Output(StrEnum):
    """What a command that answers once prints."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


LeastSevere = Annotated[LogLevel, FlagSpec("Least severe events to write.", "debug|info|warning|error")]


class LogSettings(Settings):
    """What is written to the log, and how."""

    log_format: Annotated[
        LogFormat,
        FlagSpec("How log lines look: auto writes for people on a terminal, else JSON.", "auto|json|console"),
    ] = LogFormat.AUTO
    log_level: LeastSevere = LogLevel.INFO


class OutputSettings(LogSettings):
    """What a command that answers once prints. What went wrong is in the answer, so that the log stays quiet."""

    output: Annotated[
        Output, FlagSpec("What to print: a table for people, or the whole document.", "table|json|yaml", short="o")
    ] = Output.TABLE
    log_level: LeastSevere = LogLevel.ERROR
