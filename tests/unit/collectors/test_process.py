"""The collector process itself: its arguments, its lines, its pacing and its end."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from collectors.contract import PossibleDriverError
from collectors.process import sample
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, CollectorState, DeviceKey, Reading, Reason
from devicemanager.model.figures import Figures
from devicemanager.rules.selection import Selection
from tests import devices
from tests.standins.child import DEADLINE_S, CollectorChild
from tests.standins.nvml import NvmlStandin, Scenario
from tests.timing import wait_until


class Cards:
    """A collector of cards that answer as told."""

    def __init__(self, *answers: Reading | Exception) -> None:
        self._answers = answers
        self.read_cards: list[int] = []

    def open(self) -> None: ...

    def cards(self) -> Iterator[Card]:
        return iter([Card(index) for index in range(len(self._answers))])

    def read(self, card: Card) -> Reading:
        self.read_cards.append(card.index)
        answer = self._answers[card.index]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None: ...


def healthy(index: int) -> Reading:
    return devices.reading(Card(index, f"ID-{index}"), power_usage=1000)


def lines_of(collector: Cards, selection: Selection | None = None) -> list[dict[str, object]]:
    written: list[bytes] = []
    sample(collector, selection or Selection(), written.append)
    return [json.loads(line) for line in b"".join(written).splitlines()]


class TestSample:
    def test_begin_then_each_card_announced_then_read_then_end(self) -> None:
        lines = lines_of(Cards(healthy(0), healthy(1)))
        assert [next(iter(line)) for line in lines] == ["begin", "card", "reading", "card", "reading", "end"]
        assert lines[-1] == {"end": {"count": 2}}

    def test_a_card_is_announced_before_it_is_touched(self) -> None:
        collector = Cards(healthy(0), healthy(1))
        touched_when_written: list[tuple[bytes, int]] = []
        sample(collector, Selection(), lambda data: touched_when_written.append((data, len(collector.read_cards))))
        announced = [touched for data, touched in touched_when_written if b'"card"' in data]
        assert announced == [0, 1]

    def test_a_collector_that_raises_on_one_card_costs_that_card(self, capfd: pytest.CaptureFixture[str]) -> None:
        lines = lines_of(Cards(healthy(0), ZeroDivisionError("vendor"), healthy(2)))
        readings = [line["reading"] for line in lines if "reading" in line]
        assert [reading["power"] for reading in readings if isinstance(reading, dict)] == [
            1000,
            "transient_driver_error",
            1000,
        ]
        assert isinstance(readings[1], dict)
        assert readings[1]["unhealthy"] == "the collector raised ZeroDivisionError"
        assert "ZeroDivisionError: vendor" in capfd.readouterr().err

    def test_cards_without_end_are_not_counted_for_ever(self) -> None:
        class Endless(Cards):
            @override
            def cards(self) -> Iterator[Card]:
                return map(Card, itertools.count())

        with pytest.raises(CollectorError, match="more than 1024 cards"):
            lines_of(Endless())

    def test_a_driver_that_goes_away_leaves_the_sample_open(self) -> None:
        written: list[bytes] = []
        gone = CollectorError(CollectorState.DRIVER_NOT_LOADED, "gone")
        with pytest.raises(CollectorError):
            sample(Cards(gone, gone), Selection(), written.append)
        assert b'"reading"' in b"".join(written)
        assert b'"end"' not in b"".join(written)

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_a_card_with_a_driver_code_while_others_answer_costs_itself(self, position: int) -> None:
        """Whichever is asked first."""
        answers: list[Reading | Exception] = [healthy(index) for index in range(3)]
        answers[position] = CollectorError(CollectorState.DRIVER_NOT_LOADED, "it says so")
        lines = lines_of(Cards(*answers))
        readings = [line["reading"] for line in lines if "reading" in line]
        said = [(r["power"], r["unhealthy"]) for r in readings if isinstance(r, dict)]
        assert said.pop(position) == ("transient_driver_error", "it says so")
        assert said == [(1000, None)] * 2
        assert lines[-1] == {"end": {"count": 3}}

    def test_driver_codes_from_all_cards_count(self) -> None:
        gone = [CollectorError(CollectorState.DRIVER_NOT_LOADED, f"card {index} says so") for index in range(2)]
        lost = Reading.unreadable(Card(2), Reason.LOST, "lost")
        with pytest.raises(CollectorError, match="card 0 says so"):
            lines_of(Cards(*gone, lost))

    def test_a_suspicion_that_does_not_hold_leaves_the_card_as_it_was_read(self) -> None:
        """Its identity, and why it has no figures."""
        reading = Reading.unreadable(Card(1, "ID-1", "a card"), Reason.LOST, "its own fault")
        possible = PossibleDriverError(CollectorState.FAILED, "every card says so", reading)
        lines = lines_of(Cards(healthy(0), possible))
        (listed,) = (line["reading"] for line in lines[-2:-1])
        assert isinstance(listed, dict)
        assert (listed["id"], listed["power"], listed["unhealthy"]) == ("ID-1", "lost", "its own fault")

    def test_a_card_that_may_not_be_read_is_not_a_driver_that_went_away(self) -> None:
        refused = Reading.unreadable(Card(0), Reason.PERMISSION, "not allowed")
        gone = CollectorError(CollectorState.DRIVER_NOT_LOADED, "card 1 says so")
        assert lines_of(Cards(refused, gone))[-1] == {"end": {"count": 2}}

    def test_no_cards_is_no_sample(self) -> None:
        with pytest.raises(CollectorError) as caught:
            lines_of(Cards())
        assert caught.value.state is CollectorState.NO_DEVICES

    @pytest.mark.parametrize(
        ("selection", "read"),
        [
            (Selection(), [0, 1, 2]),
            (Selection(skip=frozenset({DeviceKey(index=1)})), [0, 2]),
            (Selection(only=frozenset({DeviceKey(index=1)})), [1]),
            (Selection(only=frozenset({DeviceKey(index=1)}), skip=frozenset({DeviceKey(index=1)})), []),
            (Selection(only=frozenset({DeviceKey(index=7)})), []),
        ],
    )
    def test_cards_that_are_not_selected_are_counted_only(self, selection: Selection, read: list[int]) -> None:
        collector = Cards(healthy(0), healthy(1), healthy(2))
        assert lines_of(collector, selection)[-1] == {"end": {"count": 3}}
        assert collector.read_cards == read


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (["amd"], "not built yet"),
            (["nonsense"], "no manufacturer is called 'nonsense'"),
            (["nvidia", "--scenario", "file"], "a scenario is for simulated cards"),
            (["simulated", "--period", "0"], "must be above 0"),
            (["simulated", "--period", "-1"], "must be above 0"),
            (["simulated", "--period", "nan"], "must be above 0"),
            (["simulated", "--period", "soon"], "not a duration"),
            (["simulated", "--skip", "pci:1"], "argument --skip: must be index:<n>"),
            (["simulated", "--only", "a/b/c"], "argument --only: must be index:<n>"),
            (["simulated", "--assume", "GPU-1"], "argument --assume: must be <index>=<id>"),
            (["simulated", "--fd", "987"], "--fd 987: Bad file descriptor"),
            ([], "NAME"),
        ],
    )
    def test_what_cannot_be_used_ends_with_2_and_says_why(self, arguments: list[str], complaint: str) -> None:
        done = run(*arguments)
        assert done.returncode == 2
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("period", ["15s", "0.01", "500ms", "1m30s"])
    def test_a_period_in_seconds_or_with_units(self, period: str) -> None:
        assert run("simulated", "--once", "--period", period).returncode == 0

    def test_once_prints_for_a_person(self) -> None:
        done = run("simulated", "--once")
        assert done.returncode == 0
        assert "SIM-0  Simulated Accelerator 80GB" in done.stdout
        assert "of 81920 MiB" in done.stdout

    @pytest.mark.parametrize(
        ("flags", "code", "printed", "said"),
        [
            (["--only", "SIM-1"], 0, ["1  SIM-1"], ""),
            (["--only", "index:1"], 0, ["1  SIM-1"], ""),
            (["--skip", "SIM-0"], 0, ["1  SIM-1"], ""),
            (["--only", "SIM-1", "--only", "foo"], 1, ["1  SIM-1"], "collectors: foo: no such device\n"),
            (["--only", "SIM-0/SIM-0-P1"], 1, ["0  SIM-0"], "collectors: SIM-0/SIM-0-P1: no such device\n"),
            (["--only", "index:9"], 1, [], "collectors: index:9: no such device\n"),
            (["--only", "index:1", "--skip", "index:1"], 1, [], "collectors: index:1: is skipped\n"),
            (["--skip", "index:0", "--skip", "SIM-1"], 1, [], "collectors: every card is skipped\n"),
        ],
        ids=str,
    )
    def test_once_prints_what_is_selected_and_says_what_is_not_there(
        self, flags: list[str], code: int, printed: list[str], said: str
    ) -> None:
        done = run("simulated", "--once", *flags)
        assert (done.returncode, done.stderr) == (code, said)
        assert [line[:8] for line in done.stdout.splitlines() if not line.startswith(" ")] == printed

    def test_once_with_the_id_of_a_partition_prints_it_and_its_card(self, tmp_path: Path) -> None:
        scenario = tmp_path / "cards.toml"
        scenario.write_text(
            '[[cards]]\n[[cards.partitions]]\nid = "SIM-0-P0"\n[[cards.partitions]]\nid = "SIM-0-P1"\n'
        )
        done = run("simulated", "--once", "--scenario", str(scenario), "--only", "SIM-0/SIM-0-P1")
        assert done.returncode == 0, done.stderr
        assert "SIM-0-P1" in done.stdout
        assert "SIM-0-P0" not in done.stdout

    def test_once_touches_no_other_card_than_that_of_an_index_or_an_assumed_id(self, nvml: NvmlStandin) -> None:
        nvml.play(Scenario.healthy(2).call("nvmlDeviceGetHandleByIndex_v2", 0, hang=True))
        for flags in (["--only", "index:1"], ["--skip", "X", "--assume", "0=X"]):
            assert run("nvidia", "--once", *flags, **nvml.environment).returncode == 0

    def test_once_says_what_is_wrong_with_the_library(self) -> None:
        done = run("nvidia", "--once", LD_LIBRARY_PATH="/nonexistent")
        assert done.returncode == 71
        assert done.stdout == ""
        assert "library_missing: nvmlInit answered LIBRARY_NOT_FOUND (12)" in done.stderr

    def test_lines_go_to_standard_output_without_a_descriptor(self) -> None:
        with subprocess.Popen(command("simulated"), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["hello"]["manufacturer"] == "simulated"
            process.kill()

    def test_a_small_process(self) -> None:
        script = "import sys, collectors.process, collectors.nvidia; print(*sys.modules)"
        loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        heavy = {"asyncio", "aiohttp", "pydantic", "structlog", "ssl", "pynvml", "typing_extensions", "pathlib"}
        assert heavy.isdisjoint(loaded.stdout.split())


class TestPacing:
    def test_samples_keep_coming_a_period_apart(self) -> None:
        with CollectorChild(("simulated", "--period", "0.1")) as child:
            child.sample()
            started = time.monotonic()
            for _ in range(5):
                child.sample()
            assert time.monotonic() - started >= 0.4

    def test_once_with_a_descriptor_is_one_sample_of_lines(self) -> None:
        with CollectorChild(("simulated", "--once")) as child:
            assert child.sample().count == 2
            assert child.line() is None
            assert child.end() == 0


class TestEnd:
    def test_it_ends_when_its_pipe_has_no_reader(self) -> None:
        with CollectorChild(("simulated", "--period", "0.01")) as child:
            child.sample()
            child.close_pipe()
            assert child.end() == 0
            assert child.process.stderr is not None
            assert child.process.stderr.read() == b""

    def test_it_does_not_open_the_library_for_a_reader_that_is_gone(self, nvml: NvmlStandin) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlInitWithFlags", hang=True))
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.Popen(
            command("nvidia", "--fd", str(writer)), pass_fds=[writer], env={**os.environ, **nvml.environment}
        )
        os.close(writer)
        assert process.wait(DEADLINE_S) == 0
        assert nvml.calls() == []

    def test_an_interrupt_from_the_terminal_is_the_parents_business(self) -> None:
        with CollectorChild(("simulated", "--period", "0.01")) as child:
            child.sample()
            child.process.send_signal(signal.SIGINT)
            for _ in range(5):
                child.sample()
            assert child.process.poll() is None

    @pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetPowerUsage"])
    def test_it_ends_with_its_parent_also_while_a_call_hangs(self, nvml: NvmlStandin, function: str) -> None:
        """The pipe stays open on this side: only the kernel can tell the process that its parent is gone."""
        nvml.play(Scenario.healthy(1).call(function, hang=True))
        reader, writer = os.pipe()
        with subprocess.Popen(
            [sys.executable, "-c", PARENT, str(writer)],
            pass_fds=[writer],
            env={**os.environ, **nvml.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as parent:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            wait_until(lambda: function in {called for called, _ in nvml.calls()}, function)
            assert exists(child)
            parent.kill()
        wait_until(lambda: not exists(child), "the end of the child")
        os.close(reader)
        os.close(writer)

    def test_a_broken_collector_is_a_state(self, tmp_path: Path) -> None:
        needed = ("nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
        broken = ["class NVMLError(Exception): ...", "def nvmlInit(): raise ZeroDivisionError('by a driver')"]
        (tmp_path / "pynvml.py").write_text("\n".join([*broken, *(f"{name} = None" for name in needed)]))
        path = os.pathsep.join([str(tmp_path), *(folder for folder in sys.path if folder)])
        with CollectorChild(("nvidia",), {"PYTHONPATH": path}) as child:
            state, detail, code = child.failure()
        assert (state, code) == ("failed", 1)
        assert detail == "the collector raised ZeroDivisionError: by a driver"


PARENT = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-m", "collectors", "nvidia", "--fd", sys.argv[1]], pass_fds=[int(sys.argv[1])]
)
print(child.pid, flush=True)
sys.stdin.read()
"""
"""Starts a collector process, says which, and waits to be killed."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "collectors", *arguments]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=DEADLINE_S,
        check=False,
    )


def exists(pid: int) -> bool:
    """Whether the process runs; a zombie, which nobody has collected yet, does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def test_reasons_are_written_as_their_words() -> None:
    lines = lines_of(Cards(Reading.unreadable(Card(0), Reason.LOST, "gone")))
    assert lines[2]["reading"] == {
        "index": 0,
        "id": None,
        "name": None,
        "pci": None,
        "memory": "lost",
        "memoryUsed": "lost",
        "cores": "lost",
        "temperature": "lost",
        "power": "lost",
        "powerLimit": "lost",
        "clockReductionReasons": "lost",
        "unhealthy": "gone",
        "unread": {},
    }


class Partitioned(Cards):
    """One healthy card with the partitions given, each with figures, or raising."""

    def __init__(self, *partitions: Card | Exception, answer: Reading | Exception | None = None) -> None:
        super().__init__(healthy(0) if answer is None else answer)
        self._partitions = partitions
        self.read_partitions: list[str | None] = []

    def partitions(self, card: Card) -> Iterator[Card]:
        for one in self._partitions:
            if isinstance(one, Exception):
                raise one
            yield one

    @override
    def read(self, card: Card) -> Reading:
        if card.parent is None:
            return super().read(card)
        self.read_partitions.append(card.id)
        if card.profile == "broken":
            raise ZeroDivisionError
        return devices.partition(card, memory_total=4, memory_used=2)


def listed(lines: list[dict[str, object]]) -> object:
    (first,) = (line["reading"] for line in lines[2:3])
    assert isinstance(first, dict)
    return [one["id"] for one in first["partitions"]] if "partitions" in first else None


class TestPartitions:
    def test_each_is_announced_and_read_after_its_card(self) -> None:
        lines = lines_of(Partitioned(Card(0, "P-1", profile="1g.10gb"), Card(0, "P-2")))
        assert [next(iter(line)) for line in lines] == [
            *("begin", "card", "reading", "card", "reading", "card", "reading", "end")
        ]
        assert listed(lines) == ["P-1", "P-2"]
        assert lines[3] == {"card": {"index": 0, "parent": "ID-0", "id": "P-1", "profile": "1g.10gb"}}
        assert lines[-1] == {"end": {"count": 1}}

    def test_one_that_is_skipped_is_listed_and_not_touched(self) -> None:
        collector = Partitioned(Card(0, "P-1"), Card(0, "P-2"))
        selection = Selection(skip=frozenset({DeviceKey(id="P-1", parent="ID-0")}))
        assert listed(lines_of(collector, selection)) == ["P-1", "P-2"]
        assert collector.read_partitions == ["P-2"]

    def test_one_alone_needs_its_card_and_no_other(self) -> None:
        collector = Partitioned(Card(0, "P-1"), Card(0, "P-2"))
        selection = Selection(only=frozenset({DeviceKey(id="P-2", parent="ID-0")}), assumed={0: "ID-0"})
        lines_of(collector, selection)
        assert (collector.read_cards, collector.read_partitions) == ([0], ["P-2"])

    def test_one_that_breaks_costs_itself(self, capfd: pytest.CaptureFixture[str]) -> None:
        lines = lines_of(Partitioned(Card(0, "P-1", profile="broken"), Card(0, "P-2")))
        readings = [line["reading"] for line in lines if "reading" in line]
        assert [reading["memory"] for reading in readings if isinstance(reading, dict)] == [
            *(80 << 30, "transient_driver_error", 4)
        ]
        assert "ZeroDivisionError" in capfd.readouterr().err

    def test_those_without_an_id_or_with_one_of_two_cannot_be_addressed(self) -> None:
        assert listed(lines_of(Partitioned(*(Card(0, own) for own in ("P-1", "P-2", "P-1", None))))) == ["P-2"]

    @pytest.mark.parametrize("fault", [CollectorError(CollectorState.FAILED, "not now"), ZeroDivisionError("x")])
    def test_that_they_cannot_be_told_is_not_that_there_are_none(
        self, fault: Exception, capfd: pytest.CaptureFixture[str]
    ) -> None:
        lines = lines_of(Partitioned(Card(0, "P-1"), fault))
        assert listed(lines) is None
        assert len(lines) == 4
        assert capfd.readouterr().err
        assert listed(lines_of(Partitioned())) == []

    def test_a_card_that_gives_nothing_is_not_asked(self) -> None:
        lost = Reading.unreadable(Card(0, "ID-0"), Reason.LOST, "gone")
        for answer in (lost, devices.reading(Card(0))):
            assert listed(lines_of(Partitioned(Card(0, "P-1"), answer=answer))) is None

    def test_a_figure_of_a_partition_refutes_that_the_driver_is_gone(self) -> None:
        reading = Reading(Card(0, "ID-0"), Figures(Reason.PARTITIONED))
        possible = PossibleDriverError(CollectorState.DRIVER_NOT_LOADED, "so it seems", reading)
        assert lines_of(Partitioned(Card(0, "P-1"), answer=possible))[-1] == {"end": {"count": 1}}
