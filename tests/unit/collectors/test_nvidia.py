"""The NVIDIA collector in its own process: the real binding on the stand-in library, read line by line."""

import os
import signal
from collections.abc import Callable

import pynvml
import pytest

from collectors import nvml_codes
from collectors.nvidia import UNKNOWN_STRIKES, NvidiaCollector
from collectors.nvidia_figures import MEMORY_FAILURES
from collectors.nvidia_health import FAILURES
from devicemanager.model.accelerator import Card, Reason
from tests.standins.child import CollectorChild, Line, ReadSample
from tests.standins.nvml import GIB, MIB, NvmlStandin, Scenario, healthy_card

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
        line = child.line()
        assert line is not None
        assert line["hello"].pop("libraryName").startswith("nvidia-ml-py ")
        assert line == {"hello": {"v": 3, "manufacturer": "nvidia"}}

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
        assert functions.count("nvmlDeviceGetName") == functions.count("nvmlDeviceGetPciInfo_v3") == 1
        assert functions.count("nvmlDeviceGetUUID") >= 5, "a handle that is kept must not come to mean another card"
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

    @pytest.mark.parametrize("code", [2, 3, 4, 10, 13, 19, 25, 999])
    def test_the_older_call_where_the_newer_is_refused(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        nvml.play(Scenario.healthy(2).call("nvmlDeviceGetMemoryInfo_v2", 0, code=code))
        child = nvidia()
        for sample in (child.sample(), child.sample()):
            assert sample.readings[0]["memoryUsed"] == 3 * GIB + 5 + 512 * MIB
            assert sample.readings[1]["memoryUsed"] == 6 * GIB + 5, "the choice is the card's, not the process's"
        if code in (2, 3, 13, 25):
            assert nvml.calls().count(("nvmlDeviceGetMemoryInfo_v2", "0")) == 1
        assert ("nvmlDeviceGetMemoryInfo", "1") not in nvml.calls()

    @pytest.mark.parametrize("code", [4, 10, 999])
    def test_no_change_of_meaning_while_the_newer_fails_for_a_moment(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        """F07: the older call is taken when the newer keeps failing, and left again when that answers."""
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        newer, older = 3 * GIB + 5, 3 * GIB + 5 + 512 * MIB
        assert child.sample().readings[0]["memoryUsed"] == newer
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetMemoryInfo_v2", 0, code=code))
        seen = [newer]
        while seen[-1] != older:
            seen.append(child.sample().readings[0]["memoryUsed"])
        assert [one for one in seen if one != newer] == [nvml_codes.reason(code)] * (MEMORY_FAILURES - 1) + [older]
        nvml.play(Scenario.healthy(1))
        child.sample_where(lambda sample: sample.readings[0]["memoryUsed"] == newer)

    @pytest.mark.parametrize("code", [4, 999])
    def test_the_newer_call_is_tried_again_after_it_failed_on_the_first_tick(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        """F07: one failure does not settle the choice for ever."""
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetMemoryInfo_v2", 0, code=code))
        child = nvidia()
        assert child.sample().readings[0]["memoryUsed"] == 3 * GIB + 5 + 512 * MIB
        nvml.play(Scenario.healthy(1))
        child.sample_where(lambda sample: sample.readings[0]["memoryUsed"] == 3 * GIB + 5)

    def test_why_there_is_none_where_neither_answers(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        scenario = Scenario.healthy(1).call("nvmlDeviceGetMemoryInfo_v2", 0, code=4)
        nvml.play(scenario.call("nvmlDeviceGetMemoryInfo", 0, code=13))
        assert nvidia("--once").sample().readings[0]["memory"] == "permission"


class TestTemperature:
    def test_the_older_call_where_the_newer_is_missing(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetTemperatureV", code=13))
        child = nvidia()
        assert [child.sample().readings[0]["temperature"] for _ in range(3)] == [40, 40, 40]
        assert nvml.calls().count(("nvmlDeviceGetTemperatureV", "0")) == 1

    @pytest.mark.parametrize("code", [4, 10, 999])
    def test_the_older_call_whenever_the_newer_fails(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        """F07: the same of temperatures."""
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetTemperatureV", code=code))
        reading = nvidia("--once").sample().readings[0]
        assert (reading["temperature"], reading["unhealthy"]) == (40, None)

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

    @pytest.mark.parametrize("function", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmQueryDeviceSupport"])
    @pytest.mark.parametrize("code", [3, 4, 10, 13, 19, 21, 27, 999])
    def test_the_rates_whenever_the_measurement_fails(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str, code: int
    ) -> None:
        """F07: any failure of the preferred call that does not say that the card is lost leads to the plain one."""
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=33, gpu=37).call(function, code=code))
        child = nvidia(period="0.15")
        readings = [child.sample().readings[0] for _ in range(2)]
        assert [(reading["cores"], reading["unhealthy"]) for reading in readings] == [(37, None)] * 2

    def test_why_there_is_none_where_neither_answers(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpu=None).call("nvmlGpmSampleGet", 0, code=4))
        assert nvidia("--once").sample().readings[0]["cores"] == "permission"

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
    def test_uncorrected_errors_of_a_card_that_remaps_no_rows(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        scenario = Scenario.healthy(2).card(1, ecc_uncorrected=4, remapped_pending=None, remapped_failure=None)
        nvml.play(scenario)
        sample = nvidia("--once").sample()
        assert sample.readings[0]["unhealthy"] is None
        assert sample.readings[1]["unhealthy"] == "4 uncorrected ECC errors in device memory"
        assert (sample.readings[1]["power"], sample.readings[1]["unread"]) == (121_500, {})

    def test_a_contained_error_is_a_count_and_no_verdict(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """F10: where rows are remapped and none waits for it or failed, the card goes on working."""
        nvml.play(Scenario.healthy(1).card(0, ecc_uncorrected=1))
        reading = nvidia("--once").sample().readings[0]
        assert (reading["unhealthy"], reading["unread"]) == (None, {})

    @pytest.mark.parametrize(
        ("values", "reason"),
        [
            ({"remapped_pending": 1}, "a row of device memory waits to be remapped, by a reset"),
            ({"remapped_failure": 1}, "the remapping of a row of device memory failed"),
        ],
    )
    @pytest.mark.parametrize("errors", [0, 1])
    def test_rows_that_are_not_remapped(
        self, nvml: NvmlStandin, nvidia: StartNvidia, values: dict[str, int], reason: str, errors: int
    ) -> None:
        """F10: also after the errors were counted from zero again."""
        nvml.play(Scenario.healthy(1).card(0, ecc_uncorrected=errors, **values))
        assert nvidia("--once").sample().readings[0]["unhealthy"] == reason

    @pytest.mark.parametrize("function", ["nvmlDeviceGetRemappedRows", "nvmlDeviceGetMemoryErrorCounter"])
    @pytest.mark.parametrize("pending", [0, 1])
    def test_a_check_that_fails_for_a_moment_changes_no_verdict(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str, pending: int
    ) -> None:
        """F10: no flapping."""
        scenario = Scenario.healthy(1).card(0, ecc_uncorrected=1, remapped_pending=pending)
        nvml.play(scenario)
        child = nvidia()
        before = child.sample().readings[0]["unhealthy"]
        assert (before is not None) is bool(pending)
        nvml.play(scenario.call(function, 0, code=10))
        sample = child.sample_where(lambda sample: bool(sample.readings[0]["unread"]))
        assert sample.readings[0]["unhealthy"] == before

    @pytest.mark.parametrize("code", [10, 999, 777])
    @pytest.mark.parametrize(
        ("query", "functions"),
        [
            ("memory", ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")),
            ("utilization", ("nvmlDeviceGetUtilizationRates",)),
            ("power", ("nvmlDeviceGetPowerUsage",)),
            ("temperature", ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")),
            ("ecc", ("nvmlDeviceGetMemoryErrorCounter",)),
            ("remapped_rows", ("nvmlDeviceGetRemappedRows",)),
        ],
    )
    def test_a_query_that_keeps_failing_makes_a_card_unhealthy_until_it_answers(
        self, nvml: NvmlStandin, nvidia: StartNvidia, query: str, functions: tuple[str, ...], code: int
    ) -> None:
        """F10: from the third reading in a row on, named with its code; one answer ends it."""
        scenario = Scenario.healthy(2)
        for function in functions:
            scenario.call(function, 1, code=code)
        nvml.play(scenario)
        child = nvidia()
        samples = [child.sample() for _ in range(FAILURES + 2)]
        expected = f"{query} keeps failing: {nvml_codes.named(code)}"
        assert [sample.readings[1]["unhealthy"] for sample in samples] == [
            *[None] * (FAILURES - 1),
            *[expected] * 3,
        ]
        assert all(sample.readings[0]["unhealthy"] is None for sample in samples)
        assert any(isinstance(value, int) for value in figures(samples[-1], 1).values())
        nvml.play(Scenario.healthy(2))
        child.sample_where(lambda sample: sample.readings[1]["unhealthy"] is None)

    @pytest.mark.parametrize("code", [3, 4, 13, 19, 21, 27])
    def test_what_a_card_in_good_health_says_too_never_counts(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        """F10: not supported, not allowed, or no value at the moment."""
        scenario = Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=code)
        nvml.play(scenario.call("nvmlDeviceGetMemoryErrorCounter", 0, code=code))
        child = nvidia()
        assert [child.sample().readings[0]["unhealthy"] for _ in range(FAILURES + 2)] == [None] * (FAILURES + 2)

    def test_failures_that_are_not_in_a_row_do_not_add_up(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """F10: one answer in between begins the count anew."""
        failing = Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=10)
        nvml.play(failing)
        child = nvidia()
        for _ in range(FAILURES):
            first = child.sample_where(lambda sample: sample.readings[0]["power"] == "transient_driver_error")
            assert first.readings[0]["unhealthy"] is None
            nvml.play(Scenario.healthy(1))
            child.sample_where(lambda sample: sample.readings[0]["power"] == 120_500)
            nvml.play(failing)

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

    def test_nothing_that_was_remembered_is_said_of_a_card_that_does_not_say_who_it_is(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        """F01: who it must be is for the reader to find out, who knows the other cards."""
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        unknown = Scenario.healthy(2).call("*", 1, code=999).call("nvmlDeviceGetHandleByIndex_v2", 1, code=0)
        nvml.play(unknown)
        sample = child.sample_where(lambda sample: sample.readings[1]["power"] == "lost")
        assert [sample.readings[1][key] for key in ("id", "name", "pci")] == [None, None, None]

    @pytest.mark.parametrize("readable", ["nothing", "pci"])
    def test_figures_of_another_card_at_an_index_never_have_the_former_cards_identity(
        self, nvml: NvmlStandin, nvidia: StartNvidia, readable: str
    ) -> None:
        """F01: the count is unchanged, and so is the handle, which was kept."""
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        other = Scenario.healthy(2).card(0, power=77_000, name="another", pci="00000000:99:00.0")
        other.call("nvmlDeviceGetUUID", 0, code=27)
        if readable == "nothing":
            other.call("nvmlDeviceGetPciInfo_v3", 0, code=27)
        nvml.play(other)
        child.sample_where(lambda sample: sample.readings[0]["power"] == 77_000)
        sample = child.sample()  # the one before may have begun under the former scenario
        identity = [sample.readings[0][key] for key in ("id", "name", "pci")]
        assert identity == [None, "another", None if readable == "nothing" else "0000:99:00.0"]
        nvml.play(other.as_it_was().card(0, uuid="GPU-other"))
        sample = child.sample_where(lambda sample: sample.readings[0]["id"] is not None)
        identity = [sample.readings[0][key] for key in ("id", "name", "pci")]
        assert identity == ["GPU-other", "another", "0000:99:00.0"]

    def test_another_card_behind_a_handle_that_was_kept(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """F01: nor is anything believed of it that the former one did not support."""
        nvml.play(Scenario.healthy(2).card(0, power=None))
        child = nvidia(period="0.001")
        assert child.sample().readings[0]["power"] == "unsupported"
        nvml.play(Scenario.healthy(2).card(0, uuid="GPU-other", name="another", pci="00000000:99:00.0"))
        sample = child.sample_where(lambda sample: sample.readings[0]["id"] == "GPU-other")
        assert (sample.readings[0]["name"], sample.readings[0]["power"]) == ("another", 120_500)

    def test_a_count_that_fell_leaves_no_identity_behind(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """F01: the card at index 0 is gone, the others moved, and one does not say who it is."""
        nvml.play(Scenario.healthy(3))
        child = nvidia()
        child.sample()
        moved = Scenario(2)
        for index in range(2):
            moved.card(index, **healthy_card(index + 1))
        for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"):
            moved.call(function, 1, code=27)
        nvml.play(moved)
        sample = child.sample_where(lambda sample: sample.count == 2)
        assert sample.readings[0]["id"] == healthy_card(1)["uuid"]
        assert (sample.readings[1]["id"], sample.readings[1]["pci"]) == (None, None)
        assert sample.readings[1]["power"] == healthy_card(2)["power"]

    def test_a_lost_card_is_announced_by_its_index_alone(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """F01: once the handle is gone, nothing says that its index still means the same card."""
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        nvml.play(Scenario.healthy(2).call("*", 1, code=15))
        child.sample_where(lambda sample: sample.readings[1]["power"] == "lost")
        announced: Line = {}
        while announced.get("index") != 1:
            line = child.line()
            assert line is not None
            announced = line.get("card", {})
        assert announced == {"index": 1, "id": None, "name": None, "pci": None}

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
    @pytest.mark.parametrize("kept", [None, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
    def test_the_driver_goes_away_for_every_card(
        self, nvml: NvmlStandin, nvidia: StartNvidia, kept: str | None, code: int, state: str
    ) -> None:
        """F04: each says so, and none gives a figure, whatever else still answers."""
        gone = Scenario.healthy(2).call("*", 0, code=code).call("*", 1, code=code)
        if kept is not None:
            gone.call("nvmlDeviceGetHandleByIndex_v2", code=0).call(kept, code=0)
        nvml.play(gone)
        found, detail, _ = nvidia().failure()
        assert found == state
        assert f"({code})" in detail

    @pytest.mark.parametrize("code", [1, 9, 12, 18])
    @pytest.mark.parametrize("faulty", [(0,), (1,), (2,), (0, 1, 2)])
    def test_one_figure_that_blames_the_driver_costs_itself_whatever_its_cards_position(
        self, nvml: NvmlStandin, nvidia: StartNvidia, faulty: tuple[int, ...], code: int
    ) -> None:
        """F04: all cards give other figures, so the driver is there."""
        scenario = Scenario.healthy(3)
        for index in faulty:
            scenario.call("nvmlDeviceGetPowerUsage", index, code=code)
        nvml.play(scenario)
        child = nvidia()
        for sample in (child.sample(), child.sample()):
            for index in range(3):
                reading = sample.readings[index]
                assert (reading["id"], reading["temperature"]) == (healthy_card(index)["uuid"], 40 + index)
                if index in faulty:
                    assert reading["power"] == "transient_driver_error"
                    assert reading["unhealthy"] == f"power: {nvml_codes.named(code)}"
                else:
                    assert (reading["power"], reading["unhealthy"]) == (120_500 + 1000 * index, None)
        nvml.play(Scenario.healthy(3))
        child.sample_where(lambda sample: all(one["unhealthy"] is None for one in sample.readings.values()))

    @pytest.mark.parametrize("code", [1, 9, 12, 18])
    @pytest.mark.parametrize("position", [0, 1, 2])
    @pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "*"])
    def test_one_card_that_blames_the_driver_costs_itself_whatever_its_position(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str, position: int, code: int
    ) -> None:
        """F04: the same of the whole card."""
        nvml.play(Scenario.healthy(3).call(function, position, code=code))
        child = nvidia()
        for sample in (child.sample(), child.sample()):
            assert figures(sample, position) == absent("transient_driver_error")
            assert f"({code})" in sample.readings[position]["unhealthy"]
            others = {0, 1, 2} - {position}
            assert {sample.readings[index]["unhealthy"] for index in others} == {None}
        nvml.play(Scenario.healthy(3))
        child.sample_where(lambda sample: sample.readings[position]["unhealthy"] is None)

    def test_unknown_from_every_card_is_the_drivers_fault(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        unknown = Scenario.healthy(2).call("*", 0, code=999).call("*", 1, code=999)
        nvml.play(unknown)
        state, detail, _ = child.failure()
        assert (state, detail) == ("failed", "every card answers UNKNOWN (999)")

    def test_unknown_from_every_card_that_is_read_is_the_drivers_fault(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        """F05: a card that was not to be touched says nothing for or against."""
        nvml.play(Scenario.healthy(3).call("*", 1, code=999).call("*", 2, code=999))
        state, detail, _ = nvidia("--skip", "index:0").failure()
        assert (state, detail) == ("failed", "every card answers UNKNOWN (999)")

    def test_unknown_from_all_but_one_is_theirs(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(3).call("*", 0, code=999).call("*", 2, code=999))
        sample = nvidia().sample()
        assert [sample.readings[index]["unhealthy"] is None for index in range(3)] == [False, True, False]


class TestCardsWithoutFigures:
    """F05: a card that gives no figure is not well, says why, and does not flap."""

    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (15, "lost"),
            (16, "lost"),
            (4, "permission"),
            (17, "permission"),
            (10, "transient_driver_error"),
            (20, "transient_driver_error"),
            (27, "transient_driver_error"),
        ],
    )
    @pytest.mark.parametrize("handle", [True, False])
    def test_every_card(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int, reason: str, *, handle: bool
    ) -> None:
        function = "nvmlDeviceGetHandleByIndex_v2" if handle else "*"
        scenario = Scenario.healthy(2).call(function, 0, code=code).call(function, 1, code=code)
        nvml.play(scenario if handle else scenario.call("nvmlDeviceGetHandleByIndex_v2", code=0))
        child = nvidia()
        for _ in range(5):
            sample = child.sample()
            for index in range(2):
                assert figures(sample, index) == absent(reason)
                assert f"({code})" in sample.readings[index]["unhealthy"]

    @pytest.mark.parametrize("code", [4, 10, 999])
    def test_a_card_that_answers_nothing_but_who_it_is(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        scenario = Scenario.healthy(2).call("*", 1, code=code)
        for function in ("HandleByIndex_v2", "UUID", "Name", "PciInfo_v3"):
            scenario.call(f"nvmlDeviceGet{function}", 1, code=0)
        nvml.play(scenario)
        child = nvidia()
        for tick in range(1, UNKNOWN_STRIKES + 3):
            sample = child.sample()
            lost = code == 999 and tick >= UNKNOWN_STRIKES
            assert figures(sample, 1) == absent("lost" if lost else nvml_codes.reason(code))
            assert f"({code})" in sample.readings[1]["unhealthy"]
            assert sample.readings[1]["id"] == healthy_card(1)["uuid"]
            assert sample.readings[0]["unhealthy"] is None

    def test_a_card_that_has_no_figure_by_its_nature_is_well(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario(1).card(0, uuid="GPU-0", name="a card"))
        reading = nvidia("--once").sample().readings[0]
        assert (reading["id"], reading["power"], reading["unhealthy"]) == ("GPU-0", "unsupported", None)

    def test_a_handle_that_leads_nowhere_any_more_is_looked_up_again(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        nvml.play(Scenario.healthy(2).call("*", 1, code=2).call("nvmlDeviceGetHandleByIndex_v2", 1, code=0))
        sample = child.sample_where(lambda sample: sample.readings[1]["unhealthy"] is not None)
        assert sample.readings[1]["unhealthy"] == "no figure can be read: INVALID_ARGUMENT (2)"
        nvml.play(Scenario.healthy(2))
        child.sample_where(lambda sample: sample.readings[1]["power"] == 121_500)


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
        monkeypatch.setattr(pynvml, "nvmlDeviceGetRemappedRows", refuse)
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
