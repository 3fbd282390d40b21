"""The standard streams, which may be closed, full, without a reader, or in an old encoding."""

import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from devicemanager.errors import OutputError, printable

EXIT_FAILED: Final = 1
EXIT_READER_LEFT: Final = 128 + signal.SIGPIPE

_STREAMS: Final = {0: ("stdin", "r"), 1: ("stdout", "w"), 2: ("stderr", "w")}


def answering(program: str, answer: Callable[[], int]) -> int:
    """The exit code of a program that prints an answer: 1 if that cannot be written, 141 if its reader has left."""
    open_missing()
    replace_what_cannot_be_encoded()
    try:
        return answer()
    except OutputError as error:
        if error.reader_left:
            return EXIT_READER_LEFT
        sys.stderr.write(f"{program}: {error}\n")
        return EXIT_FAILED
    finally:
        finish()


def open_missing() -> None:
    """Open ``/dev/null`` where a standard descriptor is closed.

    The next file or socket would get its number otherwise, and whatever is printed would go there. To be called
    before anything else is opened.
    """
    for descriptor, (name, mode) in _STREAMS.items():
        try:
            os.fstat(descriptor)
        except OSError:
            _point_nowhere(descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - stays open


def replace_what_cannot_be_encoded() -> None:
    """Print ``?`` for a character that the terminal's encoding lacks, a degree sign for example."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_answer(text: str) -> None:
    """Write an answer to standard output, all of it, with a line break; names in it may hold anything.

    Raises:
        OutputError: It cannot be written.
    """
    with writing():
        sys.stdout.write("\n".join(map(printable, text.split("\n"))) + "\n")
        sys.stdout.flush()


class AnswerStream:
    """Standard output for a library that prints by itself; it raises OutputError, as :func:`print_answer` does."""

    def __getattr__(self, name: str) -> Any:
        """Everything else is standard output's own."""
        return getattr(sys.stdout, name)

    def write(self, text: str) -> int:
        """Write text, and return its length."""
        with writing():
            return sys.stdout.write(text)

    def flush(self) -> None:
        """Write what waits in the buffer."""
        with writing():
            sys.stdout.flush()


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Turns a failure to write standard output into an OutputError."""
    try:
        yield
    except OSError as error:
        _point_nowhere(1)  # or what is left in the buffer fails once more as the interpreter ends
        raise OutputError(
            f"standard output cannot be written: {error.strerror}", reader_left=isinstance(error, BrokenPipeError)
        ) from error


def width() -> int | None:
    """Columns of the terminal; None if standard output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def finish() -> None:
    """Flush at exit; a failure costs neither a traceback nor the exit code."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            _point_nowhere(descriptor)
            with contextlib.suppress(OSError):
                stream.flush()


def _point_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == descriptor:
        os.set_inheritable(descriptor, True)
    else:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
