"""The NVIDIA collector in its own process: the real binding on the stand-in library, read line by line."""

import os
import signal
from collections.abc import Callable

import pynvml
import pytest

from collectors import nvidia as vendor
from collectors.device import KEPT_FAILURES, UNSUPPORTED_TICKS
from collectors.nvml_codes import CODES
from collectors.query_failures import UNHEALTHY_FAILURES
from devicemanager.model.accelerator import Card, Reason
from tests.standins.child import CollectorChild, Line, ReadSample
from tests.standins.nvml import GIB, MIB, NvmlStandin, Scenario, healthy_card

StartNvidia = Callable[..., CollectorChild]
FIGURES = ("memory", "memoryUsed", "cores", "temperature", "power", "powerLimit", "clockReductionReasons")


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
            "serial": "1653000000001",
            "memory": 80 * GIB,
            "memoryUsed": 6 * GIB + 5,
            "cores": 11,
            "temperature": 41,
            "power": 121_500,
            "powerLimit": 700_000,
            "clockReductionReasons": [],
            "unhealthy": None,
            "unread": {},
        }

    def test_the_first_line_names_the_manufacturer(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        line = child.line()
        assert line is not None
        assert line["hello"].pop("libraryName").startswith("nvidia-ml-py ")
        versions = {"driverVersion": "590.48.01", "libraryVersion": "590.48.01"}
        count = {"countCall": "nvmlDeviceGetCount"}
        assert line == {"hello": {"v": 3, "manufacturer": "nvidia", **count, **versions}}

    @pytest.mark.parametrize("code", [1, 3, 13, 15, 999])
    def test_what_is_only_there_to_be_shown_costs_nothing_when_it_fails(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        scenario = Scenario.healthy(1)
        for call in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"):
            scenario = scenario.call(call, code=code)
        if code != 15:  # that would be a lost card, whatever was asked
            scenario = scenario.call("nvmlDeviceGetSerial", code=code)
        nvml.play(scenario)
        child = nvidia()
        line = child.line()
        assert line is not None
        assert line["hello"].keys() == {"v", "manufacturer", "libraryName", "countCall"}
        reading = child.sample().readings[0]
        assert reading["id"] == "GPU-00000000-aaaa-bbbb-cccc-000000000000"
        assert isinstance(reading["power"], int)
        assert reading["unhealthy"] is None
        assert ("serial" in reading) is (code == 15)

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
        for once in (
            "nvmlDeviceGetName",
            "nvmlDeviceGetPciInfo_v3",
            "nvmlDeviceGetSerial",
            "nvmlSystemGetDriverVersion",
        ):
            assert functions.count(once) == 1
        assert functions.count("nvmlDeviceGetUUID") >= 5, "a handle that is kept must not come to mean another card"
        assert functions.count("nvmlDeviceGetCount_v2") >= 5

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
            ("nvmlDeviceGetEnforcedPowerLimit", {"powerLimit"}),
            ("nvmlDeviceGetMemoryErrorCounter", set()),
        ],
    )
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (3, "unsupported"),
            (4, "permission"),
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
        assert all(isinstance(reading[name], int | list) for name in set(FIGURES) - lost)
        assert reading["unhealthy"] is None
        assert reading["unread"] == ({} if lost else {"ecc": reason})

    def test_memory_that_is_not_supported(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """A GB10 answers everything but memory, power cap, fan and partitioning."""
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
            "powerLimit": "unsupported",
            "clockReductionReasons": "unsupported",
            "unhealthy": None,
            "unread": {"ecc": "unsupported"},
        }

    def test_a_card_that_has_no_figure_by_its_nature_is_well(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario(1).card(0, uuid="GPU-0", name="a card"))
        reading = nvidia("--once").sample().readings[0]
        assert (reading["id"], reading["power"], reading["unhealthy"]) == ("GPU-0", "unsupported", None)


class TestImplausibleNumbers:
    """What is not plausible is absent, never clamped and never a crash."""

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
            ({"power": 3_700_000, "limit": 300_000}, {"power": "invalid_data", "powerLimit": 300_000}),
            ({"power": 3_700_000, "limit": None}, {"power": 3_700_000, "powerLimit": "unsupported"}),
            ({"power": 120_500, "limit": 0}, {"power": 120_500, "powerLimit": "invalid_data"}),
            ({"power": 120_500, "limit": 4294967295}, {"power": 120_500, "powerLimit": "invalid_data"}),
            ({"clocks": 2**64 - 1}, {"clockReductionReasons": "invalid_data"}),
            ({"clocks": 4294967295}, {"clockReductionReasons": "invalid_data"}),
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

    @pytest.mark.parametrize("count", [2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1])
    @pytest.mark.parametrize("remaps", [0, None])
    def test_an_implausible_error_count_does_not_change_health(
        self, nvml: NvmlStandin, nvidia: StartNvidia, count: int, remaps: int | None
    ) -> None:
        """All ones of any width are no count, also where the count alone would decide."""
        nvml.play(Scenario.healthy(1).card(0, ecc_uncorrected=count, remapped_pending=remaps))
        reading = nvidia("--once").sample().readings[0]
        assert reading["unhealthy"] is None
        assert reading["unread"] == {"ecc": "invalid_data"}

    @pytest.mark.parametrize("rows", [{"remapped_pending": 2**32 - 1}, {"remapped_failure": 2**31 - 1}])
    @pytest.mark.parametrize("errors", [0, 5])
    def test_rows_that_answer_with_all_ones_do_not_change_health(
        self, nvml: NvmlStandin, nvidia: StartNvidia, rows: dict[str, int], errors: int
    ) -> None:
        """Nor does the count then decide in their place: the card does remap rows."""
        nvml.play(Scenario.healthy(1).card(0, ecc_uncorrected=errors, **rows))
        reading = nvidia("--once").sample().readings[0]
        assert reading["unhealthy"] is None
        assert reading["unread"] == {"remapped_rows": "invalid_data"}


class TestMemoryVersions:
    """The older call counts what the driver reserves as used."""

    @pytest.mark.parametrize("code", [13, 25, 999])
    def test_the_older_call_where_the_newer_is_refused(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        nvml.play(Scenario.healthy(2).call("nvmlDeviceGetMemoryInfo_v2", 0, code=code))
        child = nvidia()
        for sample in (child.sample(), child.sample()):
            assert sample.readings[0]["memoryUsed"] == 3 * GIB + 5 + 512 * MIB
            assert sample.readings[1]["memoryUsed"] == 6 * GIB + 5, "the choice is the card's, not the process's"
        if code != 999:
            assert nvml.calls().count(("nvmlDeviceGetMemoryInfo_v2", "0")) == 1
        assert ("nvmlDeviceGetMemoryInfo", "1") not in nvml.calls()

    @pytest.mark.parametrize("code", [4, 10, 999])
    def test_no_change_of_meaning_while_the_newer_fails_for_a_moment(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        """The older call is taken when the newer keeps failing, and left again when that answers."""
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        newer, older = 3 * GIB + 5, 3 * GIB + 5 + 512 * MIB
        assert child.sample().readings[0]["memoryUsed"] == newer
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetMemoryInfo_v2", 0, code=code))
        seen = [newer]
        while seen[-1] != older:
            seen.append(child.sample().readings[0]["memoryUsed"])
        assert [one for one in seen if one != newer] == [CODES.reason(code)] * (KEPT_FAILURES - 1) + [older]
        nvml.play(Scenario.healthy(1))
        child.sample_where(lambda sample: sample.readings[0]["memoryUsed"] == newer)

    def test_the_older_call_is_named(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetMemoryInfo_v2", 0, code=3))
        notes = nvidia("--once").sample().readings[0]["notes"]
        assert notes == {"memory_used": "with what the driver reserves for itself (older call)"}

    def test_the_reason_is_given_where_neither_answers(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
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
        """The same of temperatures."""
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetTemperatureV", code=code))
        reading = nvidia("--once").sample().readings[0]
        assert (reading["temperature"], reading["unhealthy"]) == (40, None)

    def test_neither(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, temperature=None))
        assert nvidia("--once").sample().readings[0]["temperature"] == "unsupported"


class TestPower:
    def test_of_the_instant_where_there_is_no_average(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """And it says so."""
        nvml.play(Scenario.healthy(2).card(0, power=None).field(0, 186, 87_000).field(1, 186, 99_000))
        first, second = nvidia("--once").sample().readings.values()
        assert (first["power"], first["notes"]) == (87_000, {"power_usage": "of the instant (field 186)"})
        assert (second["power"], "notes" in second) == (121_500, False), "the average, wherever there is one"

    @pytest.mark.parametrize("code", [4, 10, 21, 999])
    def test_a_failure_is_not_replaced_by_the_instant(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        """They differ in meaning, so they do not alternate; and a query that keeps failing is a fault."""
        scenario = Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=code).field(0, 186, 87_000)
        nvml.play(scenario)
        expected = "permission" if code == 4 else "transient_driver_error"
        assert nvidia("--once").sample().readings[0]["power"] == expected

    @pytest.mark.parametrize("value", [0, 87_000, 2**32 - 1, 2**64 - 1, 3_700_000])
    def test_the_instant_is_held_to_the_same_range(
        self, nvml: NvmlStandin, nvidia: StartNvidia, value: int
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, power=None, limit=300_000).field(0, 186, value))
        power = nvidia("--once").sample().readings[0]["power"]
        assert power == (value if value <= 600_000 else "invalid_data")

    def test_neither(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, power=None))
        reading = nvidia("--once").sample().readings[0]
        assert (reading["power"], reading["unhealthy"], "notes" in reading) == ("unsupported", None, False)

    def test_an_instant_that_keeps_failing_is_a_fault(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        scenario = Scenario.healthy(1).card(0, power=None)
        nvml.play(scenario.call("nvmlDeviceGetFieldValues", 0, code=10))
        child = nvidia()
        said = [child.sample().readings[0]["unhealthy"] for _ in range(UNHEALTHY_FAILURES)]
        expected = f"instant_power keeps failing: {CODES.named(10)}"
        assert said == [*[None] * (UNHEALTHY_FAILURES - 1), expected]


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

    def test_samples_of_two_cards_behind_one_handle_are_not_compared(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=33.97))
        child = nvidia(period="0.15")
        child.sample_where(lambda sample: sample.readings[0]["cores"] == 33)
        nvml.play(Scenario.healthy(1).card(0, uuid="GPU-other", gpm=1, gpm_sm=66.0))
        sample = child.sample_where(lambda sample: sample.readings[0]["id"] == "GPU-other")
        assert sample.readings[0]["cores"] == 10
        assert child.sample().readings[0]["cores"] == 66

    @pytest.mark.parametrize(
        ("computed", "percent"), [("100.0000001", 100), ("99.9999", 99), ("-0.0000001", 0), ("0.4", 0)]
    )
    def test_a_percentage_is_computed_in_floating_point(
        self, nvml: NvmlStandin, nvidia: StartNvidia, computed: str, percent: int
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=computed, gpu=37))
        child = nvidia(period="0.15")
        first, second = child.sample().readings[0], child.sample().readings[0]
        assert (first["cores"], second["cores"]) == (37, percent)
        assert list(first["notes"]) == ["compute_utilization"], "one sample of two is no answer of GPM"
        assert "notes" not in second

    @pytest.mark.parametrize("junk", ["nan", "inf", "-inf", "-1.0", "100.5", "1e300"])
    def test_junk_around_a_reset(self, nvml: NvmlStandin, nvidia: StartNvidia, junk: str) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=junk))
        child = nvidia(period="0.15")
        child.sample()
        assert child.sample().readings[0]["cores"] == "invalid_data"

    @pytest.mark.parametrize("function", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmQueryDeviceSupport"])
    @pytest.mark.parametrize("code", [4, 13, 27])
    def test_the_rates_whenever_the_measurement_fails(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str, code: int
    ) -> None:
        """Any failure of the preferred call that does not say that the card is lost leads to the plain one."""
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpm_sm=33, gpu=37).call(function, code=code))
        child = nvidia(period="0.15")
        readings = [child.sample().readings[0] for _ in range(2)]
        assert [(reading["cores"], reading["unhealthy"]) for reading in readings] == [(37, None)] * 2

    def test_the_reason_is_given_where_neither_answers(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1, gpu=None).call("nvmlGpmSampleGet", 0, code=4))
        assert nvidia("--once").sample().readings[0]["cores"] == "permission"

    def test_the_rates_where_the_measurement_is_not_supported_after_all(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpm=1).call("nvmlGpmSampleGet", 0, code=3))
        child = nvidia(period="0.15")
        assert [child.sample().readings[0]["cores"] for _ in range(2)] == [10, 10]

    def test_the_parent_of_a_partitioned_card(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """Memory and power are the board's, utilization there is none."""
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
            "powerLimit": 700_000,
            "clockReductionReasons": [],
        }

    @pytest.mark.parametrize("values", [{"gpu": 0}, {"gpu": 0, "gpm": 1, "gpm_sm": 0.0}])
    def test_the_parent_of_a_partitioned_card_that_claims_to_be_idle(
        self, nvml: NvmlStandin, nvidia: StartNvidia, values: dict[str, int | float]
    ) -> None:
        """Some drivers answer 0 with success."""
        nvml.play(Scenario.healthy(2).card(0, mig=1, **values).card(1, **values))
        child = nvidia(period="0.15")
        for sample in (child.sample(), child.sample()):
            assert [sample.readings[index]["cores"] for index in range(2)] == ["partitioned", 0]
            assert [sample.readings[index]["unhealthy"] for index in range(2)] == [None, None]

    @pytest.mark.parametrize("code", [3, 4, 999])
    def test_a_card_that_does_not_say_whether_it_is_partitioned_is_idle(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, gpu=0).call("nvmlDeviceGetMigMode", 0, code=code))
        assert nvidia("--once").sample().readings[0]["cores"] == 0

    def test_a_pending_change_of_mode_has_no_effect_yet(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
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

    def test_a_contained_error_does_not_change_health(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """Where rows are remapped and none waits for it or failed, the card goes on working."""
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
        """Also after the errors were counted from zero again."""
        nvml.play(Scenario.healthy(1).card(0, ecc_uncorrected=errors, **values))
        assert nvidia("--once").sample().readings[0]["unhealthy"] == reason

    @pytest.mark.parametrize("function", ["nvmlDeviceGetRemappedRows", "nvmlDeviceGetMemoryErrorCounter"])
    @pytest.mark.parametrize("pending", [0, 1])
    def test_a_check_that_fails_for_a_moment_does_not_change_health(
        self, nvml: NvmlStandin, nvidia: StartNvidia, function: str, pending: int
    ) -> None:
        """No flapping."""
        scenario = Scenario.healthy(1).card(0, ecc_uncorrected=1, remapped_pending=pending)
        nvml.play(scenario)
        child = nvidia()
        before = child.sample().readings[0]["unhealthy"]
        assert (before is not None) is bool(pending)
        nvml.play(scenario.call(function, 0, code=10))
        sample = child.sample_where(lambda sample: bool(sample.readings[0]["unread"]))
        assert sample.readings[0]["unhealthy"] == before

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
    @pytest.mark.parametrize("code", [10, 999])
    def test_a_query_that_keeps_failing_makes_a_card_unhealthy_until_it_answers(
        self, nvml: NvmlStandin, nvidia: StartNvidia, query: str, functions: tuple[str, ...], code: int
    ) -> None:
        """From the third reading in a row on, named with its code; one answer ends it."""
        scenario = Scenario.healthy(2)
        for function in functions:
            scenario.call(function, 1, code=code)
        nvml.play(scenario)
        child = nvidia()
        samples = [child.sample() for _ in range(UNHEALTHY_FAILURES + 2)]
        expected = f"{query} keeps failing: {CODES.named(code)}"
        assert [sample.readings[1]["unhealthy"] for sample in samples] == [
            *[None] * (UNHEALTHY_FAILURES - 1),
            *[expected] * 3,
        ]
        assert all(sample.readings[0]["unhealthy"] is None for sample in samples)
        assert any(isinstance(value, int) for value in figures(samples[-1], 1).values())
        nvml.play(Scenario.healthy(2))
        child.sample_where(lambda sample: sample.readings[1]["unhealthy"] is None)

    @pytest.mark.parametrize("code", [10, 21, 999])
    def test_an_error_count_that_never_answers_hides_no_row_that_could_not_be_remapped(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int
    ) -> None:
        """The rows decide where they are known."""
        scenario = Scenario.healthy(1).card(0, remapped_failure=1)
        nvml.play(scenario.call("nvmlDeviceGetMemoryErrorCounter", 0, code=code))
        reading = nvidia("--once").sample().readings[0]
        assert reading["unhealthy"] == "the remapping of a row of device memory failed"
        assert reading["unread"] == {"ecc": "transient_driver_error"}

    @pytest.mark.parametrize(("code", "named"), [(999, "UNKNOWN (999)"), (21, None)])
    def test_a_call_that_is_not_supported_is_never_named_as_the_one_that_fails(
        self, nvml: NvmlStandin, nvidia: StartNvidia, code: int, named: str | None
    ) -> None:
        """The older call is there on few cards, and asked for again only now and then."""
        scenario = Scenario.healthy(1).call("nvmlDeviceGetTemperatureV", 0, code=code)
        nvml.play(scenario.call("nvmlDeviceGetTemperature", 0, code=3))
        child = nvidia()
        said = {child.sample().readings[0]["unhealthy"] for _ in range(UNSUPPORTED_TICKS + 2)}
        assert said == ({None, f"temperature keeps failing: {named}"} if named else {None})

    def test_a_corrupted_inforom(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        nvml.play(Scenario.healthy(1).call("nvmlDeviceGetPowerUsage", 0, code=14))
        reading = nvidia("--once").sample().readings[0]
        assert reading["unhealthy"] == "CORRUPTED_INFOROM (14)"
        assert reading["temperature"] == 40


class TestClockReductionReasons:
    @pytest.mark.parametrize(
        ("mask", "expected"),
        [
            (0, []),
            (0x1, ["gpu_idle"]),
            (0x4 | 0x8 | 0x40, ["sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"]),
            (0x400 | 0x800 | 1 << 40, ["reliability", "other"]),
            (None, "unsupported"),
        ],
    )
    def test_each_bit_of_the_librarys_mask_has_a_name(
        self, nvml: NvmlStandin, nvidia: StartNvidia, mask: int | None, expected: object
    ) -> None:
        nvml.play(Scenario.healthy(1).card(0, clocks=mask))
        assert nvidia("--once").sample().readings[0]["clockReductionReasons"] == expected

    def test_a_driver_before_the_call_was_renamed_answers_the_older_one(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        scenario = Scenario.healthy(1).card(0, clocks=0x20)
        nvml.play(scenario.call("nvmlDeviceGetCurrentClocksEventReasons", code=13))
        assert nvidia("--once").sample().readings[0]["clockReductionReasons"] == ["sw_thermal_slowdown"]

    def test_a_card_that_refuses_says_why(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        scenario = Scenario.healthy(1).call("nvmlDeviceGetCurrentClocksEventReasons", code=4)
        nvml.play(scenario.call("nvmlDeviceGetCurrentClocksThrottleReasons", code=4))
        reading = nvidia("--once").sample().readings[0]
        assert reading["clockReductionReasons"] == "permission"
        assert reading["unhealthy"] is None


class TestLostCards:
    @pytest.mark.parametrize("code", [15, 16, 28])
    def test_lost_before_the_start(self, nvml: NvmlStandin, nvidia: StartNvidia, code: int) -> None:
        """The middle one of three cards has no handle."""
        nvml.play(Scenario.healthy(3).call("nvmlDeviceGetHandleByIndex_v2", 1, code=code))
        sample = nvidia("--once").sample()
        assert sample.count == 3
        assert figures(sample, 1) == absent("lost")
        assert sample.readings[1]["unhealthy"].startswith("lost: ")
        assert f"({code})" in sample.readings[1]["unhealthy"]
        assert all(isinstance(value, int | list) for index in (0, 2) for value in figures(sample, index).values())

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
            "serial": "1653000000001",
            **absent("lost"),
            "unhealthy": "lost: GPU_IS_LOST (15)",
            "unread": {},
        }
        assert isinstance(sample.readings[2]["power"], int)
        nvml.play(Scenario.healthy(3))
        sample = child.sample_where(lambda sample: sample.readings[1]["power"] != "lost")
        assert sample.readings[1]["power"] == 121_500
        assert sample.readings[1]["unhealthy"] is None

    @pytest.mark.parametrize("answering", [(), ("nvmlDeviceGetUUID",), ("nvmlDeviceGetHandleByIndex_v2",)])
    def test_a_handle_whose_every_call_is_an_invalid_argument(
        self, nvml: NvmlStandin, nvidia: StartNvidia, answering: tuple[str, ...]
    ) -> None:
        """Unhealthy, and looked up again at every sample until it answers."""
        nvml.play(Scenario.healthy(2))
        child = nvidia()
        child.sample()
        scenario = Scenario.healthy(2).call("*", 1, code=2)
        for function in answering:
            scenario.call(function, 1, code=0)
        nvml.play(scenario)
        sample = child.sample_where(lambda sample: sample.readings[1]["unhealthy"] is not None)
        for _ in range(3):
            assert sample.readings[1]["unhealthy"].endswith(": INVALID_ARGUMENT (2)")
            assert figures(sample, 1) == absent("transient_driver_error")
            assert sample.readings[0]["unhealthy"] is None
            sample = child.sample()
        looked_up = [call for call in nvml.calls() if call == ("nvmlDeviceGetHandleByIndex_v2", "1")]
        assert len(looked_up) >= 3
        nvml.play(Scenario.healthy(2))
        sample = child.sample_where(lambda sample: sample.readings[1]["unhealthy"] is None)
        assert sample.readings[1]["power"] == 121_500

    def test_another_card_behind_a_handle_that_was_kept(self, nvml: NvmlStandin, nvidia: StartNvidia) -> None:
        """Nor is anything believed of it that the former one did not support."""
        nvml.play(Scenario.healthy(2).card(0, power=None))
        child = nvidia(period="0.001")
        assert child.sample().readings[0]["power"] == "unsupported"
        nvml.play(Scenario.healthy(2).card(0, uuid="GPU-other", name="another", pci="00000000:99:00.0"))
        sample = child.sample_where(lambda sample: sample.readings[0]["id"] == "GPU-other")
        assert (sample.readings[0]["name"], sample.readings[0]["power"]) == ("another", 120_500)

    def test_another_card_behind_a_handle_that_is_lost_before_it_has_said_all(
        self, nvml: NvmlStandin, nvidia: StartNvidia
    ) -> None:
        """It is the other card that is lost."""
        nvml.play(Scenario.healthy(1))
        child = nvidia()
        child.sample()
        moved = Scenario(1).card(0, **healthy_card(1))
        nvml.play(moved.call("nvmlDeviceGetName", 0, code=15))
        lost = child.sample_where(lambda sample: sample.readings[0]["unhealthy"] is not None).readings[0]
        assert (lost["id"], lost["memory"]) == (healthy_card(1)["uuid"], "lost")


class TestDriver:
    """Which part is missing is told apart, and the process ends so that a new one can try."""

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
        """Each says so, and none gives a figure, whatever else still answers."""
        gone = Scenario.healthy(2).call("*", 0, code=code).call("*", 1, code=code)
        if kept is not None:
            gone.call("nvmlDeviceGetHandleByIndex_v2", code=0).call(kept, code=0)
        nvml.play(gone)
        found, detail, _ = nvidia().failure()
        assert found == state
        assert f"({code})" in detail


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
        memory_and_sensors = (
            "Serial",
            "PciInfo",
            "MemoryInfo",
            "UtilizationRates",
            "TemperatureV",
            "Temperature",
            "PowerUsage",
        )
        clocks = ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
        for name in (*memory_and_sensors, "EnforcedPowerLimit", "FieldValues", *clocks):
            monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", refuse)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryErrorCounter", lambda *_: 2)
        monkeypatch.setattr(pynvml, "nvmlGpmQueryDeviceSupport", refuse)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", refuse)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetRemappedRows", refuse)
        collector = vendor.collector()
        collector.open()
        (card,) = collector.cards()
        reading = collector.read(card)
        assert reading.card == Card(0, "GPU-0", "a card", None)
        assert reading.figures["power_usage"] is Reason.UNSUPPORTED
        assert reading.figures["compute_utilization"] is Reason.UNSUPPORTED
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
