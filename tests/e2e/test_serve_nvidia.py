"""What the field has already seen, from the library's return codes to the answer over HTTPS.

Each test is one case: the real nvidia-ml-py on the NVML stand-in, a real collector process, a real device manager.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from devicemanager.model import figures
from tests.e2e.device_manager import DeviceManager, Document, Serve, bus, cards
from tests.standins import binding
from tests.standins.nvml import GIB, MIB, NvmlStandin, Scenario

FIGURES = {spec.snapshot_key for spec in figures.FIGURES}


class Start(Protocol):
    """Starts a device manager for NVIDIA cards that play a scenario."""

    def __call__(self, scenario: Scenario, *flags: str) -> DeviceManager: ...


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-aaaa-bbbb-cccc-{index:012x}"


def expected(index: int) -> Mapping[str, Any]:
    """A healthy card of the stand-in, as the snapshot must show it."""
    used = (index + 1) * 3 * GIB + 5
    return {
        "id": uuid(index),
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "pciBusId": f"0000:{0x1B + index:02x}:00.0",
        "memory": 81920,
        "memoryUsage": (index + 1) * 3072 + 1,  # five bytes more than whole MiB
        "memoryUtilization": 100 * used // (80 * GIB),
        "coresUtilization": 10 + index,
        "temperature": 40 + index,
        "powerUsage": 120 + index,
        "powerLimit": 700,
        "clockReductionReasons": [],
        "unhealthy": False,
        "absent": {},
    }


@pytest.fixture
def no_bus(tmp_path: Path) -> str:
    """A machine whose PCI bus shows nothing."""
    return bus(tmp_path / "sys")


@pytest.fixture
def nvidia(serve: Serve, nvml: NvmlStandin, no_bus: str) -> Start:
    """On a machine whose PCI bus shows nothing."""

    def start(scenario: Scenario, *flags: str) -> DeviceManager:
        nvml.play(scenario)
        given = ("--manufacturer=nvidia", "--monitor-period=1s", no_bus, *flags)
        return serve(*given, environment=nvml.environment)

    return start


def complete(count: int) -> Any:
    """Whether a snapshot has that many cards, all of them read."""
    return lambda seen: len(cards(seen)) == count and not any(card["unhealthy"] for card in cards(seen))


def newer(timestamp: str) -> Any:
    """Whether a snapshot is of a later sample."""
    return lambda seen: seen["timestamp"] > timestamp


def test_eight_healthy_cards_are_served_figure_by_figure(nvidia: Start) -> None:
    manager = nvidia(Scenario.healthy(8))

    assert cards(manager.until(complete(8))) == [expected(index) for index in range(8)]


def test_one_unsupported_query_costs_one_figure(nvidia: Start) -> None:
    scenario = Scenario(1).card(
        0,
        name="NVIDIA GB10",
        uuid="GPU-00000001-aaaa-bbbb-cccc-000000000001",
        pci="0000000F:01:00.0",
        gpu=0,
        memory=0,
        power=11170,
        temperature=35,
        processes=f"4000:{20064501760}",
    )

    (card,) = cards(nvidia(scenario).until_state("ok"))

    assert card == {
        "id": "GPU-00000001-aaaa-bbbb-cccc-000000000001",
        "index": 0,
        "name": "NVIDIA GB10",
        "pciBusId": "000f:01:00.0",
        "coresUtilization": 0,
        "temperature": 35,
        "powerUsage": 11,
        "unhealthy": False,
        "absent": {
            "memory": "unsupported",
            "memoryUsage": "unsupported",
            "memoryUtilization": "unsupported",
            "powerLimit": "unsupported",
            "clockReductionReasons": "unsupported",
            "ecc": "unsupported",
        },
    }


def test_what_is_no_number_costs_one_figure_and_the_answer_stays_json(nvidia: Start) -> None:
    scenario = (
        Scenario.healthy(3)
        .card(0, total=0, used=0, reserved=0)
        .card(1, gpm=1, gpm_sm="nan")
        .card(2, gpu=4294967295, power=4294967295, temperature=-1)
    )
    manager = nvidia(scenario)

    # GPM compares two ticks; on the first one there is the utilization rate only.
    seen = manager.until(lambda seen: cards(seen) and cards(seen)[1]["absent"])

    zero, not_a_number, sentinels = cards(seen)
    assert set(zero["absent"]) == {"memory", "memoryUsage", "memoryUtilization"}
    assert set(zero["absent"].values()) == {"invalid_data"}
    assert not_a_number["absent"] == {"coresUtilization": "invalid_data"}
    assert sentinels["absent"] == {
        "coresUtilization": "invalid_data",
        "powerUsage": "invalid_data",
        "temperature": "invalid_data",
    }
    assert sentinels["memory"] == 81920
    assert not any(card["unhealthy"] for card in cards(seen))


def test_a_card_lost_before_the_start_is_listed_and_the_others_are_complete(nvidia: Start) -> None:
    manager = nvidia(Scenario.healthy(3).call("nvmlDeviceGetHandleByIndex_v2", 1, code=15))

    first, lost, last = cards(manager.until(lambda seen: len(cards(seen)) == 3))

    assert [first, last] == [expected(0), expected(2)]
    assert (lost["id"], lost["unhealthy"]) == ("index:1", True)
    assert "GPU_IS_LOST" in lost["unhealthyReason"]
    assert {lost["absent"][figure] for figure in FIGURES} == {"lost"}
    assert manager.snapshot()["collector"]["state"] == "ok"


def test_a_card_never_read_is_named_by_the_one_address_that_is_left(
    serve: Serve, nvml: NvmlStandin, tmp_path: Path
) -> None:
    nvml.play(Scenario.healthy(3).call("nvmlDeviceGetHandleByIndex_v2", 1, code=15))
    on_the_bus = bus(tmp_path / "other", *((f"0000:{0x1B + index:02x}:00.0", "10de") for index in range(3)))

    manager = serve(on_the_bus, "--monitor-period=1s", environment=nvml.environment)

    _, lost, _ = cards(manager.until(lambda seen: len(cards(seen)) == 3))
    assert lost["id"] == "pci:0000:1c:00.0"


def test_a_card_lost_while_running_keeps_its_name_and_comes_back(nvidia: Start, nvml: NvmlStandin) -> None:
    manager = nvidia(Scenario.healthy(3))
    manager.until(complete(3))

    nvml.play(Scenario.healthy(3).call("*", 1, code=15))
    seen = manager.until(lambda seen: cards(seen)[1]["unhealthy"])

    first, lost, last = cards(seen)
    assert [first, last] == [expected(0), expected(2)]
    assert (lost["id"], lost["name"]) == (uuid(1), "NVIDIA H100 80GB HBM3")
    assert {lost["absent"][figure] for figure in FIGURES} == {"lost"}
    assert seen["collector"]["restarts"] == 0

    nvml.play(Scenario.healthy(3))
    assert cards(manager.until(complete(3))) == [expected(index) for index in range(3)]


@pytest.mark.timeout(120)  # five attempts, each a second or more after twice the pause before the last
def test_a_driver_that_comes_late_is_waited_for_and_each_step_has_its_name(
    nvidia: Start, nvml: NvmlStandin
) -> None:
    manager = nvidia(Scenario.healthy(8).call("nvmlInitWithFlags", code=12))
    missing = manager.until_state("library_missing")
    assert missing["groups"] == []
    assert missing["timestamp"] == "0001-01-01T00:00:00Z"
    # Ready with the bad news: a roll-out must not wait for a driver. See docs/decisions/readiness.md.
    assert (manager.ask("/livez").status, manager.ask("/readyz").status) == (200, 200)

    nvml.play(Scenario.healthy(8).call("nvmlInitWithFlags", code=9))
    manager.until_state("driver_not_loaded")

    nvml.play(Scenario.healthy(8).call("nvmlInitWithFlags", code=999))
    assert "UNKNOWN (999)" in manager.until_state("failed")["collector"]["detail"]

    nvml.play(Scenario(0))
    none = manager.until_state("no_devices")
    assert cards(none) == []
    assert manager.ask("/livez").status == 200

    nvml.play(Scenario.healthy(8))
    assert cards(manager.until(complete(8))) == [expected(index) for index in range(8)]
    assert manager.snapshot()["collector"]["consecutiveFailures"] == 0


def test_a_mismatch_is_not_a_node_without_cards_and_the_last_inventory_ages(
    nvidia: Start, nvml: NvmlStandin
) -> None:
    manager = nvidia(Scenario.healthy(2))
    before = manager.until(complete(2))
    tag = manager.ask().headers["etag"]

    nvml.play(Scenario.healthy(2).call("*", code=18))
    seen = manager.until_state("version_mismatch")
    failing = manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= 2)

    assert cards(seen) == cards(failing) == cards(before)
    assert seen["timestamp"] == failing["timestamp"] >= before["timestamp"]
    assert "LIB_RM_VERSION_MISMATCH (18)" in seen["collector"]["detail"]
    assert failing["collector"]["restarts"] > 0
    assert manager.ask().headers["etag"] != tag

    nvml.play(Scenario.healthy(2))
    assert manager.until_state("ok")["timestamp"] > seen["timestamp"]


def test_a_mismatch_from_the_start(nvidia: Start) -> None:
    seen = nvidia(Scenario.healthy(2).call("nvmlInitWithFlags", code=18)).until_state("version_mismatch")

    assert seen["groups"] == []


def test_of_eight_cards_one_that_hangs_leaves_seven_fresh_on_every_tick(nvidia: Start, nvml: NvmlStandin) -> None:
    manager = nvidia(Scenario.healthy(8))
    before = manager.until(complete(8))

    nvml.play(Scenario.healthy(8).call("nvmlDeviceGetUtilizationRates", 3, hang=True))
    seen: list[Document] = [manager.until(lambda seen: cards(seen)[3]["unhealthy"])]
    for _ in range(3):
        seen.append(manager.until(newer(seen[-1]["timestamp"])))

    assert seen[0]["timestamp"] > before["timestamp"]
    for one in seen:
        others = [card for card in cards(one) if card["index"] != 3]
        assert others == [expected(index) for index in range(8) if index != 3]
        stuck = cards(one)[3]
        assert (stuck["id"], stuck["unhealthy"]) == (uuid(3), True)
        assert {stuck["absent"][figure] for figure in FIGURES} == {"timeout"}
        assert one["collector"]["state"] == "ok"
    assert manager.ask("/livez").status == 200
    assert len(manager.children()) <= 2

    nvml.play(Scenario.healthy(8))
    manager.until(complete(8))


def test_the_end_does_not_wait_for_a_call_that_hangs(nvidia: Start) -> None:
    manager = nvidia(Scenario.healthy(1).call("nvmlInitWithFlags", hang=True), "--open-timeout=1m")
    assert manager.snapshot()["collector"]["state"] == "starting"

    assert manager.stop() == 0


def test_a_library_that_does_not_open_is_unresponsive(nvidia: Start) -> None:
    manager = nvidia(Scenario.healthy(1).call("nvmlInitWithFlags", hang=True), "--open-timeout=500ms")

    assert "opening the library" in manager.until_state("unresponsive")["collector"]["detail"]
    assert manager.ask("/livez").status == 200


@pytest.mark.parametrize("code", [2, 3, 13, 25, 999])
def test_the_drivers_reserve_is_not_used_memory_and_each_card_answers_as_it_can(nvidia: Start, code: int) -> None:
    scenario = Scenario.healthy(2).call("nvmlDeviceGetMemoryInfo_v2", 1, code=code)
    for index in range(2):
        scenario.card(index, used=308 * MIB, reserved=512 * MIB)

    with_reserve, without = cards(nvidia(scenario).until(complete(2)))

    assert with_reserve["memoryUsage"] == 308
    assert without["memoryUsage"] == 308 + 512  # the older call has no word for the reserve
    assert with_reserve["memory"] == without["memory"] == 81920


@pytest.mark.parametrize("when", ["at the start", "after a sample"])
def test_a_count_that_does_not_come_back_is_named(nvidia: Start, nvml: NvmlStandin, when: str) -> None:
    hanging = Scenario.healthy(2).call("nvmlDeviceGetCount_v2", "-", hang=True)
    running = nvidia(hanging if when == "at the start" else Scenario.healthy(2))
    if when == "after a sample":
        running.until(complete(2))
        nvml.play(hanging)
    seen = running.until(lambda seen: seen["collector"]["state"] == "unresponsive")
    assert seen["collector"]["detail"] == "no answer within 2 s while counting cards (nvmlDeviceGetCount)"
    nvml.play(Scenario.healthy(2))
    running.until(lambda seen: seen["collector"]["state"] == "ok" and complete(2)(seen))


@pytest.mark.parametrize("visible", ["all", "0,1"])
def test_a_card_on_the_bus_that_the_library_does_not_count_is_listed(
    serve: Serve, nvml: NvmlStandin, tmp_path: Path, visible: str
) -> None:
    """Where this container was given all cards."""
    addresses = [f"0000:{0x1B + index:02x}:00.0" for index in range(3)]
    sys_root = bus(tmp_path / "sys", *((address, "10de") for address in addresses), driver="nvidia")
    nvml.play(Scenario.healthy(2))
    environment = {**nvml.environment, "NVIDIA_VISIBLE_DEVICES": visible}
    running = serve("--manufacturer=nvidia", "--monitor-period=1s", sys_root, environment=environment)
    seen = running.until(lambda seen: len(cards(seen)) >= 2)
    first, second, *others = cards(seen)
    assert (first, second) == (expected(0), expected(1))
    if visible != "all":
        assert others == []
        return
    (missing,) = others
    assert missing == {
        "id": f"pci:{addresses[2]}",
        "index": 2,
        "pciBusId": addresses[2],
        "unhealthy": True,
        "unhealthyReason": "the library does not count this card, though its driver has taken it",
        "absent": dict.fromkeys(FIGURES, "lost"),
    }
    assert seen["collector"]["state"] == "ok"
    nvml.play(Scenario.healthy(3))
    running.until(complete(3))


def test_a_period_that_is_too_short_for_the_hardware_is_named(nvidia: Start, nvml: NvmlStandin) -> None:
    """Every card answers, each in its time, and all together take longer than a period."""
    slow = Scenario.healthy(4).call("nvmlDeviceGetPowerUsage", "*", delay_ms=300)
    running = nvidia(slow, "--card-timeout=900ms")
    seen = running.until(lambda seen: "detail" in seen["collector"])
    assert seen["collector"]["state"] == "ok"
    assert "s, longer than the period of 1 s: --monitor-period" in seen["collector"]["detail"]
    assert complete(4)(seen)
    warning = running.event("period_too_short")
    assert warning["taken_s"] > warning["period_s"] == 1.0
    nvml.play(Scenario.healthy(4))
    running.until(lambda seen: "detail" not in seen["collector"])
    running.event("period_long_enough")


def test_what_is_old_says_so_and_success_clears_it(nvidia: Start, nvml: NvmlStandin) -> None:
    manager = nvidia(Scenario.healthy(2))
    manager.until(complete(2))

    nvml.play(Scenario.healthy(2).call("nvmlDeviceGetCount_v2", code=999))
    failing = manager.until(lambda seen: seen["collector"]["consecutiveFailures"] >= 3)
    first = manager.ask()

    assert failing["collector"]["state"] == "failed"
    assert first.document["timestamp"] == failing["timestamp"]
    manager.until(lambda _: int(manager.ask().headers["age"]) > int(first.headers["age"]) >= 1)
    assert manager.snapshot()["timestamp"] == failing["timestamp"]

    nvml.play(Scenario.healthy(2))
    again = manager.until_state("ok")
    assert again["timestamp"] > failing["timestamp"]
    assert again["collector"]["consecutiveFailures"] == 0
    assert "detail" not in again["collector"]
    assert int(manager.ask().headers["age"]) <= 2


def test_what_a_library_prints_reaches_no_answer(nvidia: Start) -> None:
    noise = '{"end":{"count":0}}\n'
    manager = nvidia(Scenario.healthy(2).call("nvmlDeviceGetUtilizationRates", prints=noise))

    assert cards(manager.until(complete(2))) == [expected(0), expected(1)]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_card_that_crashes_the_library_costs_itself(
    nvidia: Start, nvml: NvmlStandin, number: signal.Signals
) -> None:
    manager = nvidia(Scenario.healthy(3).call("nvmlDeviceGetTemperatureV", 1, crash=number))

    first, crashing, last = cards(manager.until(lambda seen: len(cards(seen)) == 3))

    assert [first, last] == [expected(0), expected(2)]
    assert crashing["unhealthy"] is True
    assert number.name in crashing["unhealthyReason"]
    assert {crashing["absent"][figure] for figure in FIGURES} == {"transient_driver_error"}


def test_ecc_errors_make_a_card_unhealthy_and_keep_its_figures(nvidia: Start) -> None:
    no_rows = {"remapped_pending": None, "remapped_failure": None}
    manager = nvidia(Scenario.healthy(1).card(0, ecc_uncorrected=4, **no_rows))

    (card,) = cards(manager.until_state("ok"))

    assert (card["unhealthy"], card["memory"], card["absent"]) == (True, 81920, {})
    assert "4 uncorrected ECC errors" in card["unhealthyReason"]


def test_a_contained_error_does_not_make_a_card_unhealthy(nvidia: Start) -> None:
    """The error was counted, and the row it was in is remapped."""
    (card,) = cards(nvidia(Scenario.healthy(1).card(0, ecc_uncorrected=1)).until_state("ok"))

    assert card == expected(0)


def test_a_query_that_keeps_failing_is_a_reason_until_it_answers(nvidia: Start, nvml: NvmlStandin) -> None:
    """The figures that are read stay."""
    manager = nvidia(Scenario.healthy(2).call("nvmlDeviceGetPowerUsage", 1, code=10))

    sick = cards(manager.until(lambda seen: len(cards(seen)) == 2 and cards(seen)[1]["unhealthy"]))[1]
    assert sick["unhealthyReason"] == "power keeps failing: TIMEOUT (10)"
    assert sick["absent"] == {"powerUsage": "transient_driver_error"}
    assert sick["memory"] == 81920

    nvml.play(Scenario.healthy(2))
    assert cards(manager.until(complete(2))) == [expected(0), expected(1)]


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetHandleByIndex_v2"])
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("code", [1, 9, 12, 18])
def test_a_card_with_a_driver_code_is_listed_whatever_its_position(
    nvidia: Start, function: str, position: int, code: int
) -> None:
    """With its own fault; the other one has its figures, and the state is good."""
    manager = nvidia(Scenario.healthy(2).call(function, position, code=code))

    seen = manager.until(lambda seen: len(cards(seen)) == 2)

    assert seen["collector"]["state"] == "ok"
    assert f"({code})" in cards(seen)[position]["unhealthyReason"]
    assert cards(seen)[1 - position] == expected(1 - position)


def test_another_card_at_an_index_is_never_shown_under_the_former_cards_id(
    nvidia: Start, nvml: NvmlStandin
) -> None:
    """While it says only where it sits, that is its id; the former one is lost."""
    manager = nvidia(Scenario.healthy(2))
    manager.until(complete(2))

    other = Scenario.healthy(2).card(0, power=77_000, pci="00000000:99:00.0").call("nvmlDeviceGetUUID", 0, code=27)
    nvml.play(other)

    seen = cards(manager.until(lambda seen: any(card["id"] == "pci:0000:99:00.0" for card in cards(seen))))
    assert [card["id"] for card in seen if card.get("powerUsage") == 77] == ["pci:0000:99:00.0"]
    assert [card["absent"]["powerUsage"] for card in seen if card["id"] == uuid(0)] == ["lost"]


def test_another_distributions_module_is_named_in_the_log_and_read_as_far_as_it_goes(
    serve: Serve, nvml: NvmlStandin, no_bus: str, tmp_path: Path
) -> None:
    """The module of the name ``pynvml`` that comes first is not the one we are written for."""
    nvml.play(Scenario.healthy(1))
    folder = binding.other_distribution(tmp_path / "other")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", str(Path.cwd()))])

    flags = ("--manufacturer=nvidia", "--monitor-period=1s", no_bus)
    manager = serve(*flags, environment={**nvml.environment, "PYTHONPATH": path})

    (card,) = cards(manager.until(complete(1)))
    notes = {"memoryUsage": "with what the driver reserves for itself (older call)"}
    assert card == {**expected(0), "memoryUsage": 3072 + 1 + 512, "memoryUtilization": 4, "notes": notes}
    found = manager.event("collector_library_found", level="warning")
    assert found["library"].startswith(f"pynvml 8.0.4 ({folder}")
    assert "lacks nvmlMemory_v2" in found["detail"]


@pytest.mark.parametrize("code", [4, 19, 21, 999])
def test_a_measurement_that_fails_leads_to_the_plain_call(nvidia: Start, code: int) -> None:
    """Utilization from the rates, memory from the older call."""
    scenario = Scenario.healthy(1).card(0, gpm=1, gpm_sm=33, gpu=37)
    scenario.call("nvmlGpmSampleGet", code=code).call("nvmlDeviceGetMemoryInfo_v2", code=code)

    (card,) = cards(nvidia(scenario).until(complete(1)))

    assert (card["coresUtilization"], card["memoryUsage"], card["absent"]) == (37, 3072 + 1 + 512, {})
