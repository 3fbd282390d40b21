"""Whatever a library answers from one sample to the next, no snapshot says what it did not say.

A library of a few boards is played to the real collector by the C stand-in, through the real binding. Boards move,
leave and come back, calls fail with any code, cards hang, processes crash, the device manager stands still. Every
figure is made so that it tells of which board it is, and of which moment. After each step the snapshot is compared
with what the library did answer, by rules that are written down here and nowhere else in the product.

``DEVICEMANAGER_SEQUENCES`` sets how many sequences are tried.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from ctypes import CDLL
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from typing_extensions import override

from collectors import nvidia, nvidia_binding, process
from devicemanager.rules.device_ids import is_provisional
from devicemanager.rules.selection import Selection
from tests.standins.build import nvml_library
from tests.standins.in_process import ClockForProcess, CrashError, HangError, Observer, SupervisedInProcess
from tests.standins.nvml import GIB, MIB, NvmlStandin, Scenario

SEQUENCES: Final = int(os.environ.get("DEVICEMANAGER_SEQUENCES", "40"))
PERIOD_S: Final = 5.0
BOARDS: Final = 4
LOOK_AGAIN_S: Final = 0.0011
"""The stand-in looks for another scenario at most once a millisecond of real time."""

IN_MEMORY: Final = Path("/dev/shm")
"""Where a file is replaced without waiting for a disk."""

FORGIVEN_AFTER_S: Final = 300.0
"""A card that answers again is read again within this time: the longest back-off is 60 s, and few probes fail."""

CODES: Final = (1, 2, 3, 4, 6, 9, 10, 12, 13, 15, 16, 17, 18, 19, 20, 21, 27, 28, 999)
LOST: Final = {8, 11, 15, 16, 28}
CALLS: Final = (
    "*",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetMemoryErrorCounter",
)

boards = st.integers(0, BOARDS - 1)
orders = st.permutations(range(BOARDS)).flatmap(lambda all_: st.integers(0, BOARDS).map(lambda n: tuple(all_[:n])))
failing_calls = st.one_of(
    st.sets(st.sampled_from(CALLS), min_size=1, max_size=4),
    st.just({"nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"}),
)


def uuid(board: int) -> str:
    return f"GPU-{board:08x}-aaaa-bbbb-cccc-000000000000"


def address(board: int) -> str:
    return f"0000:{0x10 + board:02x}:00.0"


def values(board: int, version: int) -> dict[str, Any]:
    """What a board answers at a moment."""
    return {
        "uuid": uuid(board),
        "name": "a board",
        "pci": f"0000{address(board).upper()}",
        "total": 80 * GIB,
        "used": (board + 1) * 4 * GIB + version * MIB,
        "reserved": 0,
        "gpu": board * 20 + version % 20,
        "memory": 0,
        "temperature": (board + 1) * 20 + version % 20,
        "power": ((board + 1) * 100 + version % 100) * 1000,
        "limit": 700_000,
        "clocks": 0,
        "ecc_uncorrected": 0,
        "remapped_pending": 0,
        "remapped_failure": 0,
        "mig": 0,
        "gpm": 0,
    }


TOLD: Final[Mapping[str, Callable[[int], tuple[int, int, int]]]] = {
    "memoryUsage": lambda shown: (shown // 4096 - 1, shown % 4096, 4096),
    "coresUtilization": lambda shown: (shown // 20, shown % 20, 20),
    "temperature": lambda shown: (shown // 20 - 1, shown % 20, 20),
    "powerUsage": lambda shown: (shown // 100 - 1, shown % 100, 100),
}
"""Key of the snapshot -> the board a figure is of, its moment's number, and what that number is a remainder of."""

ANSWERS: Final[Mapping[str, tuple[str, Callable[[Any], int]]]] = {
    "nvmlDeviceGetMemoryInfo": ("memoryUsage", lambda answer: int(answer.used // MIB)),
    "nvmlDeviceGetUtilizationRates": ("coresUtilization", lambda answer: int(answer.gpu)),
    "nvmlDeviceGetTemperatureV": ("temperature", int),
    "nvmlDeviceGetTemperature": ("temperature", int),
    "nvmlDeviceGetPowerUsage": ("powerUsage", lambda answer: int(answer // 1000)),
}
"""Function of the binding -> the key that its answer is shown under, and as what."""

OTHER_CALLS: Final = (
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryErrorCounter",
)


@dataclass
class Answers:
    """What the library answered while one card was read."""

    index: int
    figures: dict[str, int] = field(default_factory=dict)
    uuid: str | None = None
    codes: set[int] = field(default_factory=set)


class Library(Observer):
    """The boards, what the calls to them answer, and a record of what was answered.

    Attributes:
        order: The boards that the library counts, in its order.
        moved_within_a_sample: Whether boards have ever moved between two reads of one sample.
        moments: When each moment ended, of those that have: its number is its place.
        counted: How many cards the library counted last.
        bus: Boards that the bus shows beside those that the library counts; None where no bus can be read.
        read_late_s: How long the device manager stands still after the next sample was written.
        complete: How many cards it counted in the last complete sample, and what it answered; None since that was
            compared.
    """

    def __init__(self, folder: Path) -> None:
        self.order: tuple[int, ...] = (0, 1)
        self.bus: set[int] | None = None
        self.moved_within_a_sample = False
        self.failing: dict[tuple[int, str], int] = {}
        self.whole: dict[str, int] = {}
        self.trouble: dict[int, type[BaseException]] = {}
        self.surprises: dict[int, tuple[int, ...]] = {}
        self.moments: list[float] = []
        self.counted = 0
        self.complete: tuple[int, list[Answers]] | None = None
        self.last_trouble_s = 0.0
        self.read_late_s = 0.0
        self.now: Callable[[], float] = lambda: 0.0
        self.let_pass: Callable[[float], None] = lambda _: None
        self._standin = NvmlStandin(folder)
        self._reading: Answers | None = None
        self._read: list[Answers] = []
        self.play()

    def play(self) -> None:
        """What is so from now on; every figure is another."""
        self.moments.append(self.now())
        scenario = Scenario(len(self.order))
        for index, board in enumerate(self.order):
            scenario.card(index, **values(board, len(self.moments)))
        for (board, call), code in self.failing.items():
            if board in self.order:
                scenario.call(call, self.order.index(board), code=code)
        for call, code in self.whole.items():
            scenario.call(call, "-", code=code)
        self._standin.play(scenario)
        time.sleep(LOOK_AGAIN_S)

    def ended_at(self, moment: int) -> float:
        """When a moment was over; infinity for the present one."""
        return self.moments[moment] if moment < len(self.moments) else float("inf")

    @override
    def announced(self, index: int) -> None:
        if not self._read or self._read[-1].index >= index:
            self._read = []
        order = self.surprises.pop(len(self._read), None)
        if order is not None:
            self.order = order
            self.moved_within_a_sample = True
            self.play()
        self._reading = Answers(index)
        self._read.append(self._reading)
        board = self.order[index] if index < len(self.order) else None
        if board in self.trouble:
            self.last_trouble_s = self.now()
            self._read = []
            raise self.trouble[board]

    @override
    def ended(self, selection: Selection) -> None:
        if not selection.only:
            self.complete = self.counted, self._read
        self._read = []

    @override
    def written(self) -> None:
        if self.read_late_s:
            self.play()
            self.let_pass(self.read_late_s)
            self.read_late_s = 0.0

    def recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, whose answers are kept."""

        def answer(*arguments: Any) -> Any:
            reading = self._reading or Answers(-1)
            try:
                given = call(*arguments)
            except pynvml.NVMLError as error:
                reading.codes.add(error.value)
                raise
            if name in ANSWERS:
                key, shown = ANSWERS[name]
                reading.figures[key] = shown(given)
            elif name == "nvmlDeviceGetUUID":
                reading.uuid = given
            elif name == "nvmlDeviceGetCount":
                self.counted = given
            return given

        return answer


class Sequences(RuleBasedStateMachine):
    """A library over time, and the device manager that reads it."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        self._patch = pytest.MonkeyPatch()
        self.library = Library(Path(self._folder.name))
        for name, value in self.library._standin.environment.items():
            if name != "NVML_STANDIN_CALLS":
                self._patch.setenv(name, value)
        self._patch.setattr(pynvml, "nvmlLib", _loaded())
        for name in (*ANSWERS, *OTHER_CALLS):
            self._patch.setattr(pynvml, name, self.library.recorded(name, getattr(pynvml, name)))
        self._patch.setattr(nvidia_binding, "load", lambda: _BINDING)
        self.running = SupervisedInProcess(nvidia.collector, self.library, self._bus, PERIOD_S)
        self.library.now = self.running.clock.monotonic
        self.library.let_pass = self.running.clock.advance
        for name in ("time", "datetime"):
            self._patch.setattr(process, name, ClockForProcess(self.running.clock))
        self._listed: set[str] = set()
        self._compare(0.1)

    @override
    def teardown(self) -> None:
        self.running.close()
        self._patch.undo()
        self._folder.cleanup()

    def _bus(self) -> list[str]:
        shown = () if self.library.bus is None else self.library.bus | set(self.library.order)
        return [address(board) for board in shown]

    # ---- what may happen

    @rule(order=orders, at_once=st.booleans())
    def boards_move_leave_and_come(self, order: tuple[int, ...], at_once: bool) -> None:
        self.library.order = order
        self._then(at_once)

    @rule(index=st.integers(0, BOARDS - 1), board=boards, at_once=st.booleans())
    def a_board_takes_the_place_of_another(self, index: int, board: int, at_once: bool) -> None:
        order = self.library.order
        if index < len(order) and board not in order:
            self.library.order = (*order[:index], board, *order[index + 1 :])
        self._then(at_once)

    @rule(order=orders, card=st.integers(0, BOARDS - 1))
    def boards_move_within_a_sample(self, order: tuple[int, ...], card: int) -> None:
        self.library.surprises = {card: order}
        self._then(True)

    @rule(board=boards, calls=failing_calls, code=st.sampled_from(CODES), at_once=st.booleans())
    def calls_fail(self, board: int, calls: set[str], code: int, at_once: bool) -> None:
        self.library.failing |= {(board, call): code for call in calls}
        self._then(at_once)

    @rule(board=boards, at_once=st.booleans())
    def a_board_answers_again(self, board: int, at_once: bool) -> None:
        self.library.failing = {key: code for key, code in self.library.failing.items() if key[0] != board}
        self.library.trouble.pop(board, None)
        self._then(at_once)

    @rule(call=st.sampled_from(["nvmlDeviceGetCount_v2", "nvmlInitWithFlags"]), code=st.sampled_from(CODES))
    def the_library_as_a_whole_fails(self, call: str, code: int) -> None:
        self.library.whole = {call: code}
        self._then(True)

    @rule()
    def the_library_works_again(self) -> None:
        self.library.whole = {}
        self._then(True)

    @rule(board=boards, how=st.sampled_from([HangError, CrashError]))
    def a_card_hangs_or_ends_the_process(self, board: int, how: type[BaseException]) -> None:
        self.library.trouble[board] = how
        self._then(True)

    @rule(after_s=st.sampled_from([0.1, PERIOD_S]))
    def the_collector_is_killed(self, after_s: float) -> None:
        for child in self.running.launcher.running:
            child.exit_code = -9
        self._compare(after_s)

    @rule(shown=st.none() | st.sets(boards))
    def the_bus_shows(self, shown: set[int] | None) -> None:
        self.library.bus = shown
        self._then(True)

    @rule(seconds=st.sampled_from([1.0, 7.0, 40.0, 100.0]))
    def the_device_manager_stands_still(self, seconds: float) -> None:
        self.library.read_late_s = seconds
        self._then(True)

    @rule(periods=st.sampled_from([1, 1, 2, 4, 25]))
    def time_passes(self, periods: int) -> None:
        for _ in range(periods):
            self._then(True)

    # ---- what must be so

    def _then(self, at_once: bool) -> None:
        """Go on to the next sample, and compare; or else go on with what happens."""
        self.library.moved_within_a_sample |= any(child.hangs for child in self.running.launcher.running)
        self.library.play()
        if at_once:
            self._compare(PERIOD_S)

    def _compare(self, after_s: float) -> None:
        self.running.let_pass(after_s)
        snapshot = json.loads(self.running.store.document.body)
        cards = [card for group in snapshot["groups"] for card in group["accelerators"]]
        note(f"{self.library.order} {self.library.complete} -> {json.dumps(snapshot)}")
        ids = [card["id"] for card in cards]
        assert len(set(ids)) == len(ids)
        if cards:
            now_s = self.running.clock.monotonic()
            age_s = self.running.store.age_s(now_s)
            assert age_s is not None
            taken_at = datetime.fromisoformat(snapshot["timestamp"])
            for card in cards:
                self._is_of_its_board(card)
                self._is_no_older_than_said(card, now_s - age_s - 1)
                self._is_no_older_than_said(card, now_s - (self.running.clock.now() - taken_at).total_seconds())
        self._nobody_is_hidden(cards)
        vendors = {card_id for card_id in ids if card_id.startswith("GPU-")}
        if snapshot["collector"]["state"] != "no_devices":
            assert self._listed <= vendors, "a card that was listed stays listed"
        self._listed = vendors

    def _is_of_its_board(self, card: Mapping[str, Any]) -> None:
        of = {told(card[key])[0] for key, told in TOLD.items() if key in card}
        if of:
            (board,) = of
            made_up = is_provisional(card["id"])
            assert card["id"] == uuid(board) or made_up
            # The bus is read after the cards: what is known by the only address left may have moved meanwhile.
            if made_up and card["id"].startswith("pci:") and not self.library.moved_within_a_sample:
                assert card["id"] == f"pci:{address(board)}"

    def _is_no_older_than_said(self, card: Mapping[str, Any], since_s: float) -> None:
        """Every figure was the library's answer at some moment since then."""
        for key, told in TOLD.items():
            if key in card:
                _, number, of = told(card[key])
                moments = range(number, len(self.library.moments) + 1, of)
                assert any(self.library.ended_at(moment) > since_s for moment in moments), key

    def _nobody_is_hidden(self, cards: list[Mapping[str, Any]]) -> None:
        """What was answered in the last complete sample is shown, under the id that was answered."""
        last, self.library.complete = self.library.complete, None
        common = [child for child in self.running.launcher.running if not child.selection.only]
        if last is None or any(child.hangs for child in common):
            return  # a sample goes on until the last process has read the last card of it
        counted, complete = last
        said = [answers.uuid for answers in complete]
        for answers in complete:
            if answers.codes & LOST or not answers.figures:
                continue
            shown = [card for card in cards if answers.figures.items() <= card.items()]
            assert shown, f"{answers} is not shown"
            if answers.uuid is None or said.count(answers.uuid) > 1:
                continue
            if self.library.moved_within_a_sample:  # it may have been read before, too, at another index
                assert answers.uuid in {card["id"] for card in cards}
            else:
                assert [card["id"] for card in shown] == [answers.uuid]
        now_s = self.running.clock.monotonic()
        if not self.library.trouble and now_s - self.library.last_trouble_s > FORGIVEN_AFTER_S:
            assert [answers.index for answers in complete] == list(range(counted))


_LIBRARIES: list[CDLL] = []
_BINDING: Final = nvidia_binding.load()


def _loaded() -> CDLL:
    """The stand-in, loaded once: it reads its scenario from wherever the environment says."""
    if not _LIBRARIES:
        _LIBRARIES.append(CDLL(str(nvml_library())))
    return _LIBRARIES[0]


TestSequences = Sequences.TestCase
TestSequences.settings = settings(
    max_examples=SEQUENCES, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
