"""The log: one JSON object a line, whatever happened and whoever said it."""

import asyncio
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from typing_extensions import override

from devicemanager import logs
from devicemanager.settings.output import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(False)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    @override
    def isatty(self) -> bool:
        return True


def configured(log_format: LogFormat = LogFormat.JSON, level: LogLevel = LogLevel.INFO) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(log_format, level, stream)
    return stream


def written(stream: io.StringIO) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_that_begins_with_when_and_what() -> None:
    stream = configured()

    structlog.get_logger().info("sample_taken", cards=8, reason="two\nlines", path=sys)

    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert list(found) == ["time", "level", "event", "cards", "reason", "path"]
    assert (found["level"], found["event"], found["cards"]) == ("info", "sample_taken", 8)
    assert found["reason"] == "two\nlines"
    assert found["time"].endswith("Z")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (LogLevel.DEBUG, ["debug", "info", "warning", "error"]),
        (LogLevel.INFO, ["info", "warning", "error"]),
        (LogLevel.WARNING, ["warning", "error"]),
        (LogLevel.ERROR, ["error"]),
    ],
)
def test_what_is_less_severe_is_left_out(level: LogLevel, expected: list[str]) -> None:
    stream = configured(level=level)
    log = structlog.get_logger()

    log.debug("a")
    log.info("a")
    log.warning("a")
    log.error("a")

    assert [line["level"] for line in written(stream)] == expected


def test_context_is_added() -> None:
    stream = configured()

    with structlog.contextvars.bound_contextvars(peer="10.0.0.1"):
        structlog.get_logger().info("a")

    assert written(stream)[0]["peer"] == "10.0.0.1"


def test_a_logger_made_before_the_settings_were_known_follows_them() -> None:
    log = structlog.get_logger(a=1)
    stream = configured()

    log.info("early_bird")

    assert written(stream)[0]["a"] == 1


def test_libraries_are_heard_as_events() -> None:
    stream = configured()

    logging.getLogger("aiohttp.server").error("bad %s", "request")
    logging.getLogger("aiohttp.access").info("not heard")

    (line,) = written(stream)
    assert {key: line[key] for key in ("level", "event", "logger", "message")} == {
        "level": "error",
        "event": "library_message",
        "logger": "aiohttp.server",
        "message": "bad request",
    }


def test_a_library_whose_message_does_not_fit_is_heard_all_the_same() -> None:
    stream = configured()

    logging.getLogger("x").error("bad %d", "request")

    assert written(stream)[0]["message"].startswith("bad %d (")


def test_warnings_are_heard() -> None:
    stream = configured()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)  # forgets a capture that another test began, whose end it has not noticed
        logging.captureWarnings(True)
        warnings.warn("old way", DeprecationWarning, stacklevel=1)

    assert "old way" in written(stream)[0]["message"]


@pytest.mark.parametrize("log_format", [LogFormat.JSON, LogFormat.CONSOLE])
def test_tracebacks_carry_no_values_of_variables(log_format: LogFormat) -> None:
    stream = configured(log_format)

    def fail(key: str) -> None:
        raise RuntimeError(len(key))

    try:
        fail("s3cr3t")
    except RuntimeError:
        structlog.get_logger().exception("sample_failed")

    assert "RuntimeError" in stream.getvalue()
    assert "in fail" in stream.getvalue() or '"fail"' in stream.getvalue()
    assert "s3cr3t" not in stream.getvalue().replace('fail("s3cr3t")', "")


def test_on_a_terminal_lines_are_for_people() -> None:
    stream = Terminal()
    logs.configure(LogFormat.AUTO, LogLevel.INFO, stream)

    structlog.get_logger().info("sample_taken", cards=8)

    assert "sample_taken" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


def test_elsewhere_lines_are_json_by_default() -> None:
    stream = configured(LogFormat.AUTO)

    structlog.get_logger().info("sample_taken")

    assert written(stream)[0]["event"] == "sample_taken"


def test_a_reader_that_went_away_costs_the_lines_and_not_the_program() -> None:
    class Broken(io.StringIO):
        @override
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    logs.configure(LogFormat.JSON, LogLevel.INFO, Broken())
    structlog.get_logger().info("unheard")

    closed = configured()
    closed.close()
    structlog.get_logger().info("unheard")


def test_the_event_loop_is_heard() -> None:
    stream = configured()

    loop = asyncio.new_event_loop()
    try:
        loop.call_exception_handler({"message": "something went wrong"})
    finally:
        loop.close()

    assert written(stream)[0]["logger"] == "asyncio"
    assert written(stream)[0]["message"] == "something went wrong"


def test_a_servers_lines_are_queued_and_written_before_its_end(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="ascii") as stream:
        logs.configure(LogFormat.JSON, LogLevel.INFO, stream, queued=True)
        structlog.get_logger().info("sample_taken", name="grün")
        logs.finish()
        structlog.get_logger().info("too_late")

    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["name"] == "grün"
    assert logs.lines_dropped() == 0  # of a queue that is finished, nothing is counted any more


def test_dropped_lines_are_counted_and_said_once_the_reader_goes_on() -> None:
    reading, writing = os.pipe()
    read: list[str] = []
    with os.fdopen(reading, encoding="utf-8") as there, os.fdopen(writing, "w", encoding="utf-8") as stream:
        logs.configure(LogFormat.JSON, LogLevel.DEBUG, stream, queued=True)
        for _ in range(3000):
            structlog.get_logger().debug("flood", text="x" * 1000)
        dropped = logs.lines_dropped()
        assert 0 < dropped < 3000
        for line in there:
            read.append(line)
            if "log_lines_dropped" in line:
                break
        logs.finish()
    said = json.loads(read[-1])
    assert (said["level"], said["lines"]) == ("warning", dropped)
    assert len(read) - 1 + dropped == 3000


@pytest.mark.parametrize("log_format", [LogFormat.CONSOLE, LogFormat.JSON])
def test_what_a_peer_wrote_moves_no_cursor_of_a_terminal(log_format: LogFormat) -> None:
    """Escape sequences, an operating system command, a line break and a bidirectional override."""
    hostile = "node\x1b[2J\x1b]0;owned\x07\x9b31m\nfaked line\u202e"
    stream = io.StringIO()
    logs.configure(log_format, LogLevel.INFO, stream)
    try:
        raise ValueError(hostile)  # noqa: TRY301 - a traceback is wanted
    except ValueError:
        structlog.get_logger().exception("read_failed", node=hostile, nodes=[hostile], why={"x": hostile})
    structlog.get_logger().info("node_seen", node=hostile)

    written = stream.getvalue()
    assert "owned" in written
    assert all(character.isprintable() or character == "\n" for character in written)
    assert not [line for line in written.splitlines() if line.startswith("faked") and "=" in line]
    assert "faked" in written.splitlines()[-1]
