"""Whose figures they are, how old they are, and that cards without figures are not called a sample.

The real nvidia-ml-py on the NVML stand-in, a real collector process, a real device manager.
"""

import json
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from devicemanager.model import figures
from tests.e2e.device_manager import DEADLINE_S, DeviceManager, Document, Serve, bus, cards, environment
from tests.e2e.forked import Template
from tests.standins.nvml import NvmlStandin, Scenario, healthy_card
from tests.timing import wait_until

FIGURES = [spec.snapshot_key for spec in figures.FIGURES]
IDENTITY_CALLS = ("nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3")
FIGURE_CALLS = (
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetMemoryErrorCounter",
)
GPU_IS_LOST, UNKNOWN = 15, 999


class Start(Protocol):
    """Starts a device manager for NVIDIA cards that play a scenario."""

    def __call__(self, scenario: Scenario, *flags: str, addresses: Sequence[int] = ()) -> DeviceManager: ...


@pytest.fixture
def nvidia(serve: Serve, nvml: NvmlStandin, tmp_path: Path) -> Start:
    """On a machine whose PCI bus shows the boards of these numbers."""

    def start(scenario: Scenario, *flags: str, addresses: Sequence[int] = ()) -> DeviceManager:
        nvml.play(scenario)
        shown = bus(tmp_path / "sys", *((address(board), "10de") for board in addresses))
        given = ("--manufacturer=nvidia", "--monitor-period=1s", shown, *flags)
        return serve(*given, environment=nvml.environment)

    return start


def uuid(board: int) -> str:
    return str(healthy_card(board)["uuid"])


def address(board: int) -> str:
    return f"0000:{0x1B + board:02x}:00.0"


def library(*boards: int) -> Scenario:
    """A library that counts these boards in this order, each with the id, address and figures that are its own."""
    scenario = Scenario(len(boards))
    for index, board in enumerate(boards):
        scenario.card(index, **healthy_card(board))
    return scenario


def nameless(scenario: Scenario, index: int) -> Scenario:
    """That neither UUID nor PCI address of a card can be read: RM does not answer (27), for a while."""
    for call in IDENTITY_CALLS:
        scenario.call(call, index, code=27)
    return scenario


def by_id(snapshot: Document) -> dict[str, Document]:
    return {card["id"]: card for card in cards(snapshot)}


def temperature(board: int) -> int:
    """By which figure a board is recognised."""
    return int(healthy_card(board)["temperature"])


def healthy(*boards: int) -> Any:
    """Whether these boards, and no others, are listed and well, each with its own figures."""

    def are(seen: Document) -> bool:
        found = {card["id"]: card.get("temperature") for card in cards(seen) if not card["unhealthy"]}
        return found == {uuid(board): temperature(board) for board in boards} and len(cards(seen)) == len(boards)

    return are


def assert_lost(card: Document) -> None:
    assert card["unhealthy"] is True
    assert {card["absent"][figure] for figure in FIGURES} == {"lost"}
    assert not set(FIGURES) & card.keys()


def test_unidentified_cards_that_moved_down_get_no_other_cards_ids(nvidia: Start, nvml: NvmlStandin) -> None:
    """The same, and no card at all can say who it is."""
    manager = nvidia(library(0, 1, 2))
    manager.until(healthy(0, 1, 2))

    nvml.play(nameless(nameless(library(1, 2), 0), 1))
    seen = by_id(manager.until(lambda seen: "index:1" in by_id(seen)))

    assert seen["index:0"]["temperature"] == temperature(1)
    assert seen["index:1"]["temperature"] == temperature(2)
    assert set(seen) == {uuid(0), uuid(1), uuid(2), "index:0", "index:1"}
    for board in range(3):
        assert_lost(seen[uuid(board)])


def test_an_unidentified_card_that_moved_down_gets_no_other_cards_id(nvidia: Start, nvml: NvmlStandin) -> None:
    """The library counts one less; the figures at an index are another card's than before."""
    manager = nvidia(library(0, 1, 2))
    manager.until(healthy(0, 1, 2))

    nvml.play(nameless(library(1, 2), 1))
    seen = by_id(manager.until(lambda seen: "index:1" in by_id(seen)))

    assert seen["index:1"]["temperature"] == temperature(2)
    assert seen[uuid(1)]["temperature"] == temperature(1)
    assert set(seen) == {uuid(0), uuid(1), uuid(2), "index:1"}
    assert_lost(seen[uuid(0)])
    assert_lost(seen[uuid(2)])

    nvml.play(library(1, 2))
    again = by_id(manager.until(lambda seen: by_id(seen)[uuid(2)]["unhealthy"] is False))
    assert again[uuid(2)]["temperature"] == temperature(2)
    assert set(again) == {uuid(0), uuid(1), uuid(2)}
    assert_lost(again[uuid(0)])


def test_with_the_bus_the_same_card_is_known_by_the_one_address_left(nvidia: Start, nvml: NvmlStandin) -> None:
    """The address of the card that is gone is gone from the bus as well."""
    manager = nvidia(library(0, 1), addresses=[1])
    manager.until(healthy(0, 1))

    nvml.play(nameless(library(1), 0))
    seen = by_id(manager.until(lambda seen: len(cards(seen)) == 3))

    assert seen[f"pci:{address(1)}"]["temperature"] == temperature(1)
    assert_lost(seen[uuid(0)])
    assert_lost(seen[uuid(1)])


@pytest.mark.parametrize("shown", [[], [1, 2]], ids=["no bus", "the bus shows the other card"])
@pytest.mark.parametrize("restarted", [True, False], ids=["a new process", "the same process"])
def test_another_card_at_the_index_is_not_the_one_that_was_there(
    nvidia: Start, nvml: NvmlStandin, shown: Sequence[int], restarted: bool
) -> None:
    """As many cards as before, another at index 0 that cannot say who it is."""
    manager = nvidia(library(0, 1), addresses=shown)
    manager.until(healthy(0, 1))

    nvml.play(nameless(library(2, 1), 0))
    (child,) = manager.children()
    if restarted:
        child.kill()
    seen = by_id(manager.until(lambda seen: len(cards(seen)) == 3))
    assert manager.snapshot()["collector"]["restarts"] == restarted

    unidentified = f"pci:{address(2)}" if shown else "index:0"
    assert seen[unidentified]["temperature"] == temperature(2)
    assert seen[uuid(1)]["temperature"] == temperature(1)
    assert_lost(seen[uuid(0)])


def test_a_card_is_known_by_the_address_that_it_says(nvidia: Start, nvml: NvmlStandin) -> None:
    """The UUID fails alone, in a new process; the address is as good a name."""
    manager = nvidia(library(0, 1))
    manager.until(healthy(0, 1))

    nvml.play(library(1).call("nvmlDeviceGetUUID", code=UNKNOWN))
    seen = by_id(manager.until(lambda seen: by_id(seen)[uuid(0)]["unhealthy"]))

    assert seen[uuid(1)]["temperature"] == temperature(1)
    assert_lost(seen[uuid(0)])


def test_a_card_that_hangs_in_a_new_process_stays_listed_under_its_id(nvidia: Start, nvml: NvmlStandin) -> None:
    """Without figures there is nothing to show under a wrong id, and nothing says that the order changed."""
    manager = nvidia(library(0, 1, 2), "--open-timeout=2s")
    manager.until(healthy(0, 1, 2))

    nvml.play(library(0, 1, 2).call("nvmlDeviceGetHandleByIndex_v2", 1, hang=True))
    (child,) = manager.children()
    child.kill()
    seen = by_id(manager.until(lambda seen: by_id(seen)[uuid(1)]["unhealthy"]))

    assert set(seen) == {uuid(0), uuid(1), uuid(2)}
    assert set(seen[uuid(1)]["absent"].values()) == {"timeout"}


def test_a_card_that_hangs_beside_one_that_moved_has_no_id_by_its_index(nvidia: Start, nvml: NvmlStandin) -> None:
    """The library counts one less, and the card that moved to index 1 hangs before it said who it is."""
    manager = nvidia(library(0, 1, 2), "--open-timeout=2s")
    manager.until(healthy(0, 1, 2))

    nvml.play(library(1, 2).call("nvmlDeviceGetHandleByIndex_v2", 1, hang=True))
    (child,) = manager.children()
    child.kill()
    seen = by_id(manager.until(lambda seen: "index:1" in by_id(seen)))

    assert set(seen["index:1"]["absent"].values()) == {"timeout"}
    assert seen[uuid(1)]["temperature"] == temperature(1)
    assert_lost(seen[uuid(0)])
    assert_lost(seen[uuid(2)])


def test_figures_read_while_the_device_manager_was_stopped_are_as_old_as_they_are(
    nvidia: Start, nvml: NvmlStandin
) -> None:
    """Age and timestamps count from when the collector began to read, not from when its lines were handled."""
    takes_s = 2

    def slow() -> Scenario:
        return Scenario.healthy(1).call("nvmlDeviceGetTemperatureV", delay_ms=1000 * takes_s)

    def counted() -> int:
        return sum(function == "nvmlDeviceGetCount_v2" for function, _ in nvml.calls())

    manager = nvidia(slow(), "--monitor-period=5s", "--card-timeout=4500ms")
    before = manager.until_state("ok")
    (child,) = manager.children()

    manager.process.send_signal(signal.SIGSTOP)
    already = counted()
    wait_until(lambda: counted() > already, "the collector begins a sample of which nobody hears")
    nvml.play(slow().call("nvmlDeviceGetCount_v2", code=UNKNOWN))  # so that this sample is its last
    wait_until(lambda: child.status() == psutil.STATUS_ZOMBIE, "the collector has ended")
    continued_at = datetime.now(UTC)
    manager.process.send_signal(signal.SIGCONT)
    manager.until_state("failed")
    answer = manager.ask()

    read_by = continued_at - timedelta(seconds=takes_s)  # it began at least so long before it ended
    seen = answer.document
    assert seen["timestamp"] > before["timestamp"]
    assert datetime.fromisoformat(seen["timestamp"]) <= read_by
    assert {group["timestamp"] for group in seen["groups"]} == {seen["timestamp"]}
    assert int(answer.headers["age"]) >= takes_s
    assert int(answer.headers["age"]) >= int((datetime.now(UTC) - read_by).total_seconds()) - takes_s


def test_the_time_for_which_the_device_manager_was_stopped_is_no_fault_of_the_period(
    nvidia: Start, nvml: NvmlStandin
) -> None:
    def counted() -> int:
        return sum(function == "nvmlDeviceGetCount_v2" for function, _ in nvml.calls())

    manager = nvidia(Scenario.healthy(1), "--monitor-period=1s")
    manager.until_state("ok")

    manager.process.send_signal(signal.SIGSTOP)
    already = counted()
    wait_until(lambda: counted() > already + 3, "the collector reads samples of which nobody hears")
    continued_at = datetime.now(UTC)
    manager.process.send_signal(signal.SIGCONT)

    def seen() -> Document:
        return manager.ask().document

    wait_until(lambda: datetime.fromisoformat(seen()["timestamp"]) > continued_at, "a sample after the pause")
    assert manager.events("period_too_short") == []
    assert "detail" not in seen()["collector"]


def test_that_no_card_is_counted_is_as_old_as_the_question(nvidia: Start, nvml: NvmlStandin) -> None:
    """An answer of no card is a sample too, and ages from when the collector asked."""
    takes_s = 2
    asks = Scenario(0).call("nvmlDeviceGetCount_v2", delay_ms=1000 * takes_s)

    manager = nvidia(asks)

    manager.until_state("no_devices")
    assert int(manager.ask().headers["age"]) >= takes_s


def every_handle(code: int, count: int = 2) -> Scenario:
    return Scenario.healthy(count).call("nvmlDeviceGetHandleByIndex_v2", code=code)


def every_figure(code: int, count: int = 2) -> Scenario:
    scenario = Scenario.healthy(count)
    for call in FIGURE_CALLS:
        scenario.call(call, code=code)
    return scenario


NOTHING_READ = [
    pytest.param(every_handle(GPU_IS_LOST), "failed", id="handles 15"),
    pytest.param(every_handle(4), "no_permission", id="handles 4"),
    pytest.param(every_handle(16), "failed", id="handles 16"),
    pytest.param(every_handle(17), "no_permission", id="handles 17"),
    pytest.param(every_handle(10), "failed", id="handles 10"),
    pytest.param(every_handle(27), "failed", id="handles 27"),
    pytest.param(every_handle(20), "failed", id="handles 20"),
    pytest.param(every_figure(4), "no_permission", id="figures 4"),
    pytest.param(every_figure(UNKNOWN), "failed", id="figures 999"),
    pytest.param(every_figure(10, count=1), "failed", id="identity alone"),
]


@pytest.mark.parametrize(("scenario", "state"), NOTHING_READ)
def test_cards_that_give_no_figure_are_no_sample_and_the_last_one_ages(
    nvidia: Start, nvml: NvmlStandin, scenario: Scenario, state: str
) -> None:
    """Good figures are not replaced by an empty sample, and the state says so."""
    manager = nvidia(Scenario.healthy(scenario.count))
    before = manager.until(lambda seen: len(cards(seen)) == scenario.count)

    nvml.play(scenario)
    (child,) = manager.children()
    child.kill()  # a new process has no handles and remembers nothing
    failing = manager.until(
        lambda seen: seen["collector"]["state"] == state and seen["collector"]["consecutiveFailures"] >= 3
    )

    assert cards(failing) == cards(before)
    assert failing["timestamp"] >= before["timestamp"]
    assert failing["collector"]["detail"]
    assert (
        manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= 4)["timestamp"]
        == failing["timestamp"]
    )


@pytest.mark.parametrize(("scenario", "state"), NOTHING_READ)
@pytest.mark.parametrize("look", ["monitor", "detect"])
def test_a_look_that_reads_nothing_says_so_and_returns_1(
    nvml: NvmlStandin, template: Template, tmp_path: Path, look: str, scenario: Scenario, state: str
) -> None:
    nvml.play(scenario)

    flags = ("--manufacturer=nvidia", "--no-pci-check", "-o", "json")
    done = template.run([look, *flags], environment(nvml.environment), tmp_path, DEADLINE_S)

    assert done.returncode == 1, done.stdout
    document = json.loads(done.stdout)
    found = document["collector"] if look == "monitor" else document["manufacturers"][0]
    assert found["state"] == state
    assert found["detail"]


def test_before_the_first_sample_the_detail_says_what_the_cards_say(nvidia: Start) -> None:
    """Whoever is on call reads how many cards there are, and why none gives a figure."""
    seen = nvidia(every_handle(GPU_IS_LOST)).until_state("failed")

    assert seen["groups"] == []
    assert seen["timestamp"] == "0001-01-01T00:00:00Z"
    assert seen["collector"]["detail"].startswith("none of 2 cards gives a figure: 2 lost; card 0 ")
    assert "GPU_IS_LOST (15)" in seen["collector"]["detail"]


def test_one_card_that_hangs_and_the_rest_unknown_are_no_sample(nvidia: Start, nvml: NvmlStandin) -> None:
    """One skipped, the others answer nothing but 999."""
    manager = nvidia(Scenario.healthy(3), "--open-timeout=2s")
    before = manager.until(lambda seen: len(cards(seen)) == 3)

    nvml.play(Scenario.healthy(3).call("nvmlDeviceGetPowerUsage", 0, hang=True))
    manager.until(lambda seen: cards(seen)[0]["unhealthy"])
    rest = Scenario.healthy(3).call("nvmlDeviceGetPowerUsage", 0, hang=True)
    for index in (1, 2):
        rest.call("*", index, code=UNKNOWN)
    nvml.play(rest)
    failing = manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= 3)

    assert failing["collector"]["state"] == "failed"
    assert failing["timestamp"] > before["timestamp"]
    assert [card["unhealthy"] for card in cards(failing)] == [True, False, False]


def test_an_identified_card_without_any_figure_makes_a_sample(nvidia: Start) -> None:
    """The other side of the rule; all figures unsupported is what such a card is like."""
    seen = nvidia(Scenario(1).card(0, uuid=uuid(0), pci=f"00000000:{0x1B:02X}:00.0", name="B")).until_state("ok")

    (card,) = cards(seen)
    assert (card["id"], card["unhealthy"]) == (uuid(0), False)
    assert {card["absent"][figure] for figure in FIGURES} == {"unsupported"}


def test_cards_that_wake_up_slowly_once_in_a_process_are_read(nvidia: Start) -> None:
    """No process is ended, and no card left out, because the driver has to wake the card first."""
    wakes = Scenario.healthy(4).call("nvmlDeviceGetHandleByIndex_v2", delay_ms=1500)

    manager = nvidia(wakes, "--card-timeout=500ms")

    seen = manager.until(healthy(0, 1, 2, 3))
    assert seen["collector"]["restarts"] == 0
    assert manager.events("device_quarantined") == []


def test_a_card_that_hung_is_tried_with_the_time_that_it_takes_to_wake_up(nvidia: Start, nvml: NvmlStandin) -> None:
    """A probe is the first touch of its process, too; it does not repeat a wait that is too short for it."""
    manager = nvidia(Scenario.healthy(2).call("nvmlDeviceGetPowerUsage", 1, hang=True), "--open-timeout=2s")
    manager.until(lambda seen: len(cards(seen)) == 2 and cards(seen)[1]["unhealthy"])

    nvml.play(Scenario.healthy(2).call("nvmlDeviceGetHandleByIndex_v2", delay_ms=1500))

    manager.until(healthy(0, 1))


def test_no_other_card_is_skipped_in_place_of_one_that_hung_before_a_renumbering(
    nvidia: Start, nvml: NvmlStandin
) -> None:
    """A card that hung is known by its id: when it moves, and others take its index, these are read."""
    manager = nvidia(library(0, 1, 2), "--card-timeout=500ms", "--open-timeout=2s")
    manager.until(healthy(0, 1, 2))

    nvml.play(library(0, 1, 2).call("nvmlDeviceGetUUID", 1, hang=True))
    manager.until(lambda seen: by_id(seen)[uuid(1)]["absent"].get("temperature") == "timeout")
    manager.event("device_quarantined", index=1, id=uuid(1))

    nvml.play(library(1, 0, 2).call("nvmlDeviceGetUUID", 0, hang=True))

    def others_are_read(seen: Document) -> bool:
        return all(by_id(seen)[uuid(board)].get("temperature") == temperature(board) for board in (0, 2))

    for child in manager.children():
        child.kill()  # the library of a new process counts anew
    manager.event("device_quarantined", index=0)
    seen = manager.until(others_are_read)
    assert "temperature" not in by_id(seen)[uuid(1)]
    manager.event("device_released", id=uuid(1))

    nvml.play(library(1, 0, 2))
    manager.until(healthy(0, 1, 2))
