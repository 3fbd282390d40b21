"""The log: structured events, configured once per process.

An event is a constant snake_case name of a fact, with its values as keys that carry units. ``docs/log-events.md``
lists every one, and a test compares. Messages of libraries are the event ``library_message``.
A log line never fails the code that wrote it, nor holds up a server's, and tracebacks carry no values of variables:
those may be secrets.
"""

import contextlib
import logging
from io import StringIO
from typing import Final, TextIO

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger
from typing_extensions import override

from devicemanager.errors import printable
from devicemanager.log_queue import LogQueue
from devicemanager.settings.output import LogFormat, LogLevel

_FINISH_S: Final = 1.0

_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


class _Lines:
    """Writes whole lines to a stream. A reader that went away costs the lines, not the program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream was closed
            self._stream.write(line + "\n")
            self._stream.flush()

    log = debug = info = warn = warning = error = critical = fatal = exception = msg


class _QueuedLines(_Lines):
    """Queues whole lines, for a server, which must not wait for whoever reads its log."""

    def __init__(self, stream: TextIO, queue: LogQueue) -> None:
        super().__init__(stream)
        self._queue = queue

    @override
    def msg(self, line: str) -> None:
        self._queue.put((line + "\n").encode(self._stream.encoding, "backslashreplace"))

    log = debug = info = warn = warning = error = critical = fatal = exception = msg


_queues: Final[list[LogQueue]] = []
"""The queue of this process, if its log has one."""


def lines_dropped() -> int:
    """How many lines could not be written since the program started."""
    return sum(queue.dropped for queue in _queues)


def finish() -> None:
    """Write what is queued, unless that takes more than a second: called at the end of the program."""
    while _queues:
        _queues.pop().close(_FINISH_S)


def _say_dropped(lines: int) -> None:
    structlog.get_logger().warning("log_lines_dropped", lines=lines)


def _lines(stream: TextIO, *, queued: bool) -> _Lines:
    if not queued:
        return _Lines(stream)
    _queues.append(LogQueue(stream.fileno(), _say_dropped))
    return _QueuedLines(stream, _queues[-1])


class _LibraryMessages(logging.Handler):
    """Turns what libraries log into our own event."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - a library's own format string does not fit its arguments
            message = f"{record.msg!s} ({error})"
        log = structlog.get_logger()
        log.log(record.levelno, "library_message", logger=record.name, message=message, exc_info=record.exc_info)


def configure(log_format: LogFormat, log_level: LogLevel, stream: TextIO, *, queued: bool = False) -> None:
    """Set up logging for the whole process. Called once, by the program's entry point.

    Args:
        log_format: ``auto`` decides by whether ``stream`` is a terminal.
        log_level: The least severe level to write.
        stream: A server logs to stdout; a command whose stdout is its answer logs to stderr.
        queued: For a server: a thread writes the lines to the stream's descriptor until :func:`finish` is called.
    """
    lines = _lines(stream, queued=queued)
    level = _LEVELS[log_level]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            *_renderer(log_format, stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,  # lines are rare, and a logger bound early must see this configuration
    )
    logging.captureWarnings(True)
    logging.root.handlers[:] = [_LibraryMessages()]
    # Of libraries, only warnings and errors.
    logging.root.setLevel(max(level, logging.WARNING))


def _renderer(log_format: LogFormat, stream: TextIO) -> tuple[Processor, ...]:
    terminal = stream.isatty()
    if log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and terminal):
        return (
            _without_control_characters,
            structlog.dev.ConsoleRenderer(
                colors=terminal, timestamp_key="time", exception_formatter=_traceback_for_a_terminal
            ),
        )
    tracebacks = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    return (tracebacks, _first_things_first, structlog.processors.JSONRenderer(default=str))


def _without_control_characters(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mark what a terminal would obey in the values, which peers may have written; JSON escapes it by itself."""
    return {key: value if key == "exc_info" else _marked(value) for key, value in event.items()}


def _marked(value: object) -> object:
    if isinstance(value, int | float | bool | None):
        return value
    return printable(value if isinstance(value, str) else repr(value))


def _traceback_for_a_terminal(stream: TextIO, error: ExcInfo) -> None:
    text = StringIO()
    structlog.dev.plain_traceback(text, error)
    stream.write("\n".join(map(printable, text.getvalue().split("\n"))))


def _first_things_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put time, level and event first in every line."""
    return {"time": event.pop("time"), "level": event.pop("level"), "event": event.pop("event"), **event}
