"""The NVIDIA collector in its own process: the real binding on the stand-in library, read line by line."""

import os
import signal
from collections.abc import Callable

import pynvml
import pytest

from collectors.nvidia import UNKNOWN_STRIKES, NvidiaCollector
from devicemanager.model.accelerator import Card, Reason
from tests.standins.child import CollectorChild, Line, ReadSample
from tests.standins.nvml import GIB, MIB, NvmlStandin, Scenario

StartNvidia = Callable[..., CollectorChild]
FIGURES = ("memory", "memoryUsed", "cores", "temperature", "power")


def figures(sample: ReadSample, index: int) -> dict[str, object]:
    return {name: sample.readings[index][name] for name in FIGURES}


def absent(reason: str) -> dict[str, object]:
    return dict.fromkeys(FIGURES, reason)


class TestHealthyCards:
    def test_every_figure_is_what_the_library_says(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(2))
        sample = nvidia().sample()
        assert sample.count == 2
        assert sample.announced == (0, 1)
        assert sample.readings[1] == {
            "index": 1,
            "id": "GPU-00000001-aaaa-bbbb-cccc-000000000001",
            "name": "NVIDIA H100 80GB HBM3",
            "pci": "0000:1c:00.0",
            "memory": 80 * GIB,
            "memoryUsed": 6 * GIB + 5,
            "cores": 11,
            "temperature": 41,
            "power": 121_500,
            "unhealthy": None,
            "unread": {},
        }

    def test_the_first_line_says_who_speaks(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        assert child.line() == {"hello": {"v": 2, "manufacturer": "nvidia", "pid": child.process.pid}}

    def test_identity_is_announced_once_it_is_known(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        announcements: list[Line] = []
        while len(announcements) < 2:
            line = child.line()
            assert line is not None
            announcements += [line["card"]] if "card" in line else []
        assert announcements[0] == {"index": 0, "id": None, "name": None, "pci": None}
        assert announcements[1]["id"] == "GPU-00000000-aaaa-bbbb-cccc-000000000000"

    def test_the_session_is_opened_once(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        for _ in range(5):
            child.sample()
        functions = [function for function, _ in nvml.calls()]
        assert functions.count("nvmlInitWithFlags") == 1
        assert functions.count("nvmlDeviceGetHandleByIndex_v2") == 1
        assert functions.count("nvmlDeviceGetUUID") == 1
        assert functions.count("nvmlDeviceGetCount_v2") >= 5

    def test_a_card_that_appears_is_read_at_the_next_tick(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        child.sample()
        nvml.play(Scenario.healthy(3))
        assert sorted(child.sample_where(lambda sample: sample.count == 3).readings) == [0, 1, 2]

    def test_another_count_may_mean_other_cards(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(3))
        child = nvidia()
        child.sample()
        fallen = Scenario.healthy(3).counting(2)
        fallen.card(0, uuid="GPU-second").card(1, uuid="GPU-third")
        nvml.play(fallen)
        sample = child.sample_where(lambda sample: sample.count == 2)
        assert [sample.readings[index]["id"] for index in (0, 1)] == ["GPU-second", "GPU-third"]

    @pytest.mark.parametrize("count", [0xFFFF_FFFF, 1025])
    def test_more_cards_than_any_node_has_are_not_believed(
        self, nvml: NvmlStandin, nvidia: StartNvidia, count: int
    ) -> None:
        nvml.play(Scenario.healthy(1).claiming(count))
        assert nvidia().failure() == ("failed", f"nvmlDeviceGetCount answered {count} cards", 1)


class TestOneFigureAtATime:
    @pytest.mark.parametrize(
        ("function", "lost"),
        [
            ("nvmlDeviceGetUtilizationRates", {"cores"}),
            ("nvmlDeviceGetPowerUsage", {"power"}),
            ("nvmlDeviceGetMemoryErrorCounter", set()),
        ],
    )
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (3, "unsupported"),
            (13, "unsupported"),
            (25, "unsupported"),
            (4, "permission"),
            (17, "permission"),
            (10, "transient_driver_error"),
            (999, "transient_driver_error"),
            (777, "transient_driver_error"),
        ],
    )
    def test_a_refusal_costs_one_figure(
        self,
        nvml: NvmlStandin,
        nvidia: StartNvidia,
        function: str,
        lost: set[str],
        code: int,
        reason: str,
    ) -> None:
        nvml.play(Scenario.healthy(1).call(function, 0, code=code))
        reading = nvidia("--once").sample().readings[0]
        assert {name for name in FIGURES if reading[name] == reason} == lost
        assert all(isinstance(reading[name], int) for name in set(FIGURES) - lost)
        assert reading["unhealthy"] is None
        assert reading["unread"] == ({} if lost else {"ecc": reason})

    def test_memory_that_is_not_supported(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """Case N01: a GB10 answers everything but memory, power cap, fan and partitioning."""
        nvml.play(
            Scenario(1).card(
                0,
                name="NVIDIA GB10",
                uuid="GPU-00000001-aaaa-bbbb-cccc-000000000001",
                pci="0000000F:01:00.0",
                gpu=0,
                memory=0,
                power=11170,
                temperature=35,
                processes="4000:20064501760",
            )
        )
        reading = nvidia("--once").sample().readings[0]
        assert reading == {
            "index": 0,
            "id": "GPU-00000001-aaaa-bbbb-cccc-000000000001",
            "name": "NVIDIA GB10",
            "pci": "000f:01:00.0",
            "memory": "unsupported",
            "memoryUsed": "unsupported",
            "cores": 0,
            "temperature": 35,
            "power": 11170,
            "unhealthy": None,
            "unread": {"ecc": "unsupported"},
        }

    def test_what_is_not_supported_is_not_asked_for_every_tick(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=3))
        child = nvidia(period="0.001")
        for _ in range(15):
            child.sample()
        assert nvml.calls().count(("nvmlDeviceGetPowerUsage", "0")) == 1

    def test_what_is_not_supported_is_asked_for_again_in_the_end(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=3))
        child = nvidia(period="0.001")
        assert child.sample().readings[0]["power"] == "unsupported"
        nvml.play(Scenario.healthy(1))
        child.sample_where(lambda sample: sample.readings[0]["power"] == 120_500)

    def test_a_transient_error_passes(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=19))
        child = nvidia()
        assert child.sample().readings[0]["power"] == "transient_driver_error"
        nvml.play(Scenario.healthy(1))
        child.sample_where(lambda sample: sample.readings[0]["power"] == 120_500)


class TestImplausibleNumbers:
    """Case N03, at its source: what is not plausible is absent, never clamped and never a crash."""

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"total": 0, "used": 0}, {"memory": "invalid_data", "memoryUsed": "invalid_data"}),
            ({"used": 81 * GIB}, {"memory": 80 * GIB, "memoryUsed": "invalid_data"}),
            ({"used": 2**64 - 1}, {"memoryUsed": "invalid_data"}),
            ({"gpu": 4294967295}, {"cores": "invalid_data"}),
            ({"gpu": 101}, {"cores": "invalid_data"}),
            ({"gpu": 100}, {"cores": 100}),
            ({"temperature": -5}, {"temperature": "invalid_data"}),
            ({"temperature": 3800}, {"temperature": "invalid_data"}),
            ({"power": 4294967295}, {"power": "invalid_data"}),
            ({"power": 0}, {"power": 0}),
            ({"gpm": 1, "gpm_sm": "nan"}, {"cores": 10}),
        ],
    )
    def test_one_figure(
        self,
        nvml: NvmlStandin,
        nvidia: StartNvidia,
        values: dict[str, int | str],
        expected: dict[str, object],
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, **values))
        assert expected.items() <= nvidia("--once").sample().readings[0].items()

    def test_an_implausible_error_count_is_no_verdict(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, ecc_uncorrected=2**64 - 1))
        reading = nvidia("--once").sample().readings[0]
        assert reading["unhealthy"] is None
        assert reading["unread"] == {"ecc": "invalid_data"}


class TestMemoryVersions:
    """Case N14: the older call counts what the driver reserves as used."""

    @pytest.mark.parametrize("code", [2, 3, 13, 25, 999])
    def test_the_older_call_where_the_newer_is_refused(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        nvml.play(Scenario.healthy(2).call("nvmlDeviceGetMemoryInfo_v2", 0, code=code))
        child = nvidia()
        for sample in (child.sample(), child.sample()):
            assert sample.readings[0]["memoryUsed"] == 3 * GIB + 5 + 512 * MIB
            assert sample.readings[1]["memoryUsed"] == 6 * GIB + 5, "the choice is the card's, not the process's"
        assert nvml.calls().count(("nvmlDeviceGetMemoryInfo_v2", "0")) == 1
        assert ("nvmlDeviceGetMemoryInfo", "1") not in nvml.calls()

    @pytest.mark.parametrize("code", [10, 999])
    def test_no_change_of_meaning_once_the_newer_has_answered(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        assert child.sample().readings[0]["memoryUsed"] == 3 * GIB + 5
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetMemoryInfo_v2", 0, code=code))
        sample = child.sample_where(lambda sample: sample.readings[0]["memoryUsed"] != 3 * GIB + 5)
        assert sample.readings[0]["memoryUsed"] == "transient_driver_error"
        assert ("nvmlDeviceGetMemoryInfo", "0") not in nvml.calls()

    def test_a_refusal_that_may_pass_does_not_settle_the_choice(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetMemoryInfo_v2", 0, code=4))
        child = nvidia()
        assert child.sample().readings[0]["memoryUsed"] == "permission"
        nvml.play(Scenario.healthy(1))
        sample = child.sample_where(lambda sample: sample.readings[0]["memoryUsed"] != "permission")
        assert sample.readings[0]["memoryUsed"] == 3 * GIB + 5


class TestTemperature:
    def test_the_older_call_where_the_newer_is_missing(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetTemperatureV", code=13))
        child = nvidia()
        assert [child.sample().readings[0]["temperature"] for _ in range(3)] == [40, 40, 40]
        assert nvml.calls().count(("nvmlDeviceGetTemperatureV", "0")) == 1

    def test_neither(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, temperature=None))
        assert nvidia("--once").sample().readings[0]["temperature"] == "unsupported"


class TestCompute:
    def test_the_second_tick_is_measured_between_two_samples(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=33.97))
        child = nvidia(period="0.15")
        assert child.sample().readings[0]["cores"] == 10, "one sample says nothing: the rates stand in"
        assert child.sample().readings[0]["cores"] == 33, "truncated, as percentages are"

    def test_samples_too_close_together_are_not_compared(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=33.97))
        child = nvidia(period="0.01")
        values = [child.sample().readings[0]["cores"] for _ in range(25)]
        assert values[0] == 10
        assert values[-1] == 33
        assert set(values) == {10, 33}, "the stand-in, as the library, refuses samples less than 100 ms apart"

    @pytest.mark.parametrize("junk", ["nan", "inf", "-1.0", "100.5"])
    def test_junk_around_a_reset(self, nvml: NvmlStandin, nvidia: StartNvidia, junk: str) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=junk))
        child = nvidia(period="0.15")
        child.sample()
        assert child.sample().readings[0]["cores"] == "invalid_data"

    def test_a_failing_measurement_is_not_replaced_by_another_meaning(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=33).call("nvmlGpmMetricsGet", 0, code=27))
        child = nvidia(period="0.15")
        child.sample()
        assert child.sample().readings[0]["cores"] == "transient_driver_error"

    def test_the_rates_where_the_measurement_is_not_supported_after_all(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1).call("nvmlGpmSampleGet", 0, code=3))
        child = nvidia(period="0.15")
        assert [child.sample().readings[0]["cores"] for _ in range(2)] == [10, 10]

    def test_the_parent_of_a_partitioned_card(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """Case N09: memory and power are the board's, utilization there is none."""
        scenario = Scenario.healthy(1).card(0, gpu=None, mig=1, mig_pending=1, total=80 * GIB, used=36 * GIB)
        scenario.mig(0, 0, uuid="MIG-a0", total=9 * GIB, used=3 * MIB).mig(0, 2, uuid="MIG-a2")
        nvml.play(scenario)
        sample = nvidia("--once").sample()
        assert sample.count == 1
        assert figures(sample, 0) == {
            "memory": 80 * GIB,
            "memoryUsed": 36 * GIB,
            "cores": "partitioned",
            "temperature": 40,
            "power": 120_500,
        }

    def test_a_pending_change_of_mode_is_none_yet(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpu=None, mig=0, mig_pending=1))
        assert nvidia("--once").sample().readings[0]["cores"] == "unsupported"


class TestHealth:
    def test_uncorrected_errors(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(2).card(1, ecc_uncorrected=4))
        sample = nvidia("--once").sample()
        assert sample.readings[0]["unhealthy"] is None
        assert sample.readings[1]["unhealthy"] == "4 uncorrected ECC errors in device memory"
        assert sample.readings[1]["power"] == 121_500

    def test_a_corrupted_inforom(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=14))
        reading = nvidia("--once").sample().readings[0]
        assert reading["unhealthy"] == "CORRUPTED_INFOROM (14)"
        assert reading["temperature"] == 40


class TestLostCards:
    @pytest.mark.parametrize("code", [15, 16, 28])
    def test_lost_before_the_start(self, nvml: NvmlStandin, nvidia: StartNvidia, code: int) -> None:
        """Case N04 A: the middle one of three cards has no handle."""
        nvml.play(Scenario.healthy(3).call("nvmlDeviceGetHandleByIndex_v2", 1, code=code))
        sample = nvidia("--once").sample()
        assert sample.count == 3
        assert figures(sample, 1) == absent("lost")
        assert sample.readings[1]["unhealthy"].startswith("lost: ")
        assert f"({code})" in sample.readings[1]["unhealthy"]
        assert all(isinstance(value, int) for index in (0, 2) for value in figures(sample, index).values())

    def test_lost_while_running_and_back(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(3))
        child = nvidia()
        child.sample()
        nvml.play(Scenario.healthy(3).call("*", 1, code=15))
        sample = child.sample_where(lambda sample: sample.readings[1]["power"] == "lost")
        assert sample.readings[1] == {
            "index": 1,
            "id": "GPU-00000001-aaaa-bbbb-cccc-000000000001",
            "name": "NVIDIA H100 80GB HBM3",
            "pci": "0000:1c:00.0",
            **absent("lost"),
            "unhealthy": "lost: GPU_IS_LOST (15)",
            "unread": {},
        }
        assert isinstance(sample.readings[2]["power"], int)
        nvml.play(Scenario.healthy(3))
        sample = child.sample_where(lambda sample: sample.readings[1]["power"] != "lost")
        assert sample.readings[1]["power"] == 121_500
        assert sample.readings[1]["unhealthy"] is None

    def test_another_card_in_its_place_has_its_own_identity(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        nvml.play(Scenario.healthy(2).call("*", 1, code=15))
        child.sample_where(lambda sample: sample.readings[1]["power"] == "lost")
        nvml.play(Scenario.healthy(2).card(1, uuid="GPU-replacement"))
        sample = child.sample_where(lambda sample: sample.readings[1]["power"] != "lost")
        assert sample.readings[1]["id"] == "GPU-replacement"

    @pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "*"])
    def test_unknown_from_one_card_is_transient_and_then_lost(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str
    ) -> None:
        nvml.play(Scenario.healthy(3).call(function, 1, code=999))
        child = nvidia()
        powers = [child.sample().readings[1]["power"] for _ in range(UNKNOWN_STRIKES)]
        assert powers == ["transient_driver_error"] * (UNKNOWN_STRIKES - 1) + ["lost"]
        nvml.play(Scenario.healthy(3))
        sample = child.sample_where(lambda sample: isinstance(sample.readings[1]["power"], int))
        assert sample.readings[1]["unhealthy"] is None

    def test_unknown_from_all_but_the_lookup_keeps_the_last_known_identity(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        unknown = Scenario.healthy(2).call("*", 1, code=999).call("nvmlDeviceGetHandleByIndex_v2", 1, code=0)
        nvml.play(unknown)
        sample = child.sample_where(lambda sample: sample.readings[1]["power"] == "lost")
        assert sample.readings[1]["id"] == "GPU-00000001-aaaa-bbbb-cccc-000000000001"

    def test_unknown_from_the_only_card_is_the_cards_fault(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("*", 0, code=999))
        child = nvidia()
        powers = [child.sample().readings[0]["power"] for _ in range(UNKNOWN_STRIKES)]
        assert powers[-1] == "lost"

    def test_a_card_that_must_not_be_opened(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(2).call("nvmlDeviceGetHandleByIndex_v2", 0, code=4))
        sample = nvidia("--once").sample()
        assert figures(sample, 0) == absent("permission")
        assert sample.readings[0]["unhealthy"] == "cannot be opened: NO_PERMISSION (4)"
        assert sample.readings[1]["power"] == 121_500


class TestDriver:
    """Cases N05 and N06: which part is missing is told apart, and the process ends so that a new one can try."""

    @pytest.mark.parametrize(
        ("code", "state", "exit_code"),
        [
            (9, "driver_not_loaded", 72),
            (18, "version_mismatch", 73),
            (4, "no_permission", 74),
            (17, "no_permission", 74),
            (999, "failed", 1),
            (777, "failed", 1),
        ],
    )
    def test_at_the_start(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int, state: str, exit_code: int
    ) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlInitWithFlags", code=code))
        found, detail, ended = nvidia().failure()
        assert (found, ended) == (state, exit_code)
        assert detail.startswith("nvmlInit answered ")
        assert f"({code})" in detail

    def test_no_library(self) -> None:
        with CollectorChild(("nvidia",), {"LD_LIBRARY_PATH": "/nonexistent"}) as child:
            state, detail, ended = child.failure()
        assert (state, ended) == ("library_missing", 71)
        assert detail == "nvmlInit answered LIBRARY_NOT_FOUND (12)"

    def test_no_card(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario(0))
        state, _, ended = nvidia().failure()
        assert (state, ended) == ("no_devices", 70)

    def test_no_card_any_more(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        child.sample()
        nvml.play(Scenario(0))
        state, _, ended = child.failure()
        assert (state, ended) == ("no_devices", 70)

    @pytest.mark.parametrize(("code", "state"), [(1, "failed"), (9, "driver_not_loaded"), (18, "version_mismatch")])
    @pytest.mark.parametrize(
        "function", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPowerUsage"]
    )
    def test_the_driver_goes_away_under_any_call(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str, code: int, state: str
    ) -> None:
        nvml.play(Scenario.healthy(2).call(function, code=code))
        found, detail, _ = nvidia().failure()
        assert found == state
        assert f"({code})" in detail

    @pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPowerUsage"])
    def test_one_card_that_blames_the_driver_costs_no_other_its_figures(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str
    ) -> None:
        nvml.play(Scenario.healthy(3).call(function, 0, code=9))
        child = nvidia()
        for _ in range(2):
            readings = child.sample().readings
            assert "DRIVER_NOT_LOADED (9)" in readings[0]["unhealthy"]
            assert [readings[index]["power"] for index in (1, 2)] == [121_500, 122_500]
        nvml.play(Scenario.healthy(3))
        child.sample_where(lambda sample: sample.readings[0]["power"] == 120_500)

    def test_unknown_from_every_card_is_the_drivers_fault(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        unknown = Scenario.healthy(2).call("*", 0, code=999).call("*", 1, code=999)
        nvml.play(unknown)
        state, detail, _ = child.failure()
        assert (state, detail) == ("failed", "every card answers UNKNOWN (999)")


class TestBindingTraps:
    def test_a_name_that_is_no_text(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, name=b"\xf8NVIDIA"))
        reading = nvidia("--once").sample().readings[0]
        assert reading["name"] is None
        assert reading["id"] == "GPU-00000000-aaaa-bbbb-cccc-000000000000"
        assert reading["power"] == 120_500

    def test_an_id_that_is_no_text_is_no_id(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, uuid=b"GPU-\xff\xfe"))
        reading = nvidia("--once").sample().readings[0]
        assert reading["id"] is None
        assert reading["pci"] == "0000:1b:00.0"
        assert reading["power"] == 120_500

    def test_an_error_is_never_turned_into_text(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """For a code that the binding does not know, that would call the library."""
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=777))
        child = nvidia("--once")
        child.sample()
        assert child.end() == 0
        assert "nvmlErrorString" not in {function for function, _ in nvml.calls()}

    @pytest.mark.parametrize("error", [pynvml.NVMLLibraryMismatchError("no such symbol"), AttributeError("gone")])
    def test_errors_outside_the_bindings_own_family(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        def refuse(*_: object) -> None:
            raise error

        for name, answer in {
            "nvmlInit": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": object(),
            "nvmlDeviceGetUUID": "GPU-0",
            "nvmlDeviceGetName": "a card",
        }.items():
            monkeypatch.setattr(pynvml, name, lambda *_, answer=answer: answer)
        for name in ("PciInfo", "MemoryInfo", "UtilizationRates", "TemperatureV", "Temperature", "PowerUsage"):
            monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", refuse)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryErrorCounter", lambda *_: 2)
        monkeypatch.setattr(pynvml, "nvmlGpmQueryDeviceSupport", refuse)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", refuse)
        collector = NvidiaCollector()
        collector.open()
        (card,) = collector.cards()
        reading = collector.read(card)
        assert reading.card == Card(0, "GPU-0", "a card", None)
        assert reading.power_milliwatts is Reason.UNSUPPORTED
        assert reading.cores_percent is Reason.UNSUPPORTED
        assert reading.unhealthy_reason == "2 uncorrected ECC errors in device memory"

    def test_what_the_library_prints_is_kept_out_of_the_lines(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        noise = '{"end":{"count":99}}\nlibrary says hello'
        nvml.play(Scenario.healthy(1).call("*", prints=noise))
        child = nvidia("--once")
        assert child.sample().count == 1
        assert child.end() == 0
        assert child.process.stdout is not None
        assert child.process.stderr is not None
        assert child.process.stdout.read() == b""
        assert b"library says hello" in child.process.stderr.read()

    @pytest.mark.parametrize("fault", [signal.SIGSEGV, signal.SIGABRT])
    def test_a_crash_is_preceded_by_the_announcement_of_its_card(
        self, nvml: NvmlStandin, nvidia: StartNvidia, fault: signal.Signals
    ) -> None:
        nvml.play(Scenario.healthy(3).call("nvmlDeviceGetPowerUsage", 1, crash=fault))
        child = nvidia()
        lines = []
        while (line := child.line()) is not None:
            lines.append(line)
        assert child.end() == -fault
        assert [next(iter(line)) for line in lines] == ["hello", "begin", "card", "reading", "card"]
        assert lines[-1]["card"]["index"] == 1


class TestSelection:
    def test_a_skipped_card_is_counted_and_never_touched(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(3).call("*", 1, hang=True))
        sample = nvidia("--skip", "index:1").sample()
        assert sample.announced == (0, 2)
        assert sample.count == 3
        assert "1" not in {target for _, target in nvml.calls()}

    def test_only_one_card_once(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(3))
        child = nvidia("--only", "index:2", "--once")
        sample = child.sample()
        assert sample.announced == (2,)
        assert sample.count == 3
        assert child.end() == 0
        assert {target for _, target in nvml.calls()} == {"-", "2"}

    def test_a_session_that_does_not_close_spoils_no_sample(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlShutdown", code=999))
        child = nvidia("--once")
        assert child.sample().count == 1
        assert child.line() is None
        assert child.end() == 0

    def test_the_announcement_precedes_a_call_that_hangs(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(2).call("nvmlDeviceGetHandleByIndex_v2", 1, hang=True))
        child = nvidia()
        last: Line = {}
        while "card" not in last or last["card"]["index"] != 1:
            line = child.line()
            assert line is not None
            last = line
        assert child.process.poll() is None
        assert os.waitpid(child.process.pid, os.WNOHANG) == (0, 0)
