"""What people read in a row."""

from dataclasses import replace

import pytest

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.figures import Figures
from devicemanager.model.usage import AcceleratorUsage, Resources, SourceReport, SourceState, WorkloadUsage
from devicemanager.worker.workloads.instance.table import COLUMNS, cells
from tests.unit.worker.apiserver.api_server import NOW, card, usage

OK = SourceReport("kubelet", SourceState.OK, 5)
NVIDIA = SourceReport("device-manager/nvidia", SourceState.OK, 2)
DOWN = SourceReport("device-manager/amd", SourceState.TIMEOUT)


def row(one: WorkloadUsage) -> dict[str, str]:
    return dict(zip((column.name for column in COLUMNS), cells(one, NOW), strict=True))


def test_columns() -> None:
    shown = [(column.name, column.priority) for column in COLUMNS]
    assert shown == [
        ("Name", 0),
        ("CPU", 0),
        ("Memory", 0),
        ("Disk", 0),
        ("GPUs", 0),
        ("GPU-Util", 0),
        ("GPU-Mem", 0),
        ("Health", 0),
        ("Sample-Age", 0),
        ("Node", 1),
        ("Instance-Age", 1),
        ("Temp", 1),
        ("Power", 1),
        ("Power-Limit", 1),
        ("Clock-Reduction", 1),
        ("Health-Reason", 1),
        ("Profile", 1),
        ("Sources", 1),
    ]
    assert all(" " not in column.name and column.description for column in COLUMNS)


def test_a_complete_row() -> None:
    one = usage(cards=[card()], limits=Resources(2000, 1536, 10240), sources=[OK, NVIDIA])
    assert row(one) == {
        "Name": "web",
        "CPU": "250m/2000m",
        "Memory": "512Mi/1536Mi",
        "Disk": "640Mi/10240Mi",
        "GPUs": "1",
        "GPU-Util": "40%",
        "GPU-Mem": "20480Mi/81920Mi",
        "Health": "ok",
        "Sample-Age": "5s",
        "Node": "node-a",
        "Instance-Age": "120m",
        "Temp": "51C",
        "Power": "233W",
        "Power-Limit": "700W",
        "Clock-Reduction": "<none>",
        "Health-Reason": "<none>",
        "Profile": "<none>",
        "Sources": "kubelet,device-manager/nvidia",
    }


def test_what_was_not_measured_is_unknown_and_zero_is_zero() -> None:
    absent = usage(cpu_nanocores=Reason.NOT_YET, memory_mib=Reason.STALE, disk_mib=Reason.UNSUPPORTED)
    assert [row(absent)[name] for name in ("CPU", "Memory", "Disk")] == ["<unknown>"] * 3
    limited = usage(cpu_nanocores=Reason.NOT_YET, limits=Resources(cpu_millicores=500))
    assert row(limited)["CPU"] == "<unknown>/500m"
    assert row(usage(cpu_nanocores=0, memory_mib=0))["CPU"] == "0m"


def test_several_cards() -> None:
    one = usage(cards=[card(1), card(2, compute_utilization=61, temperature=70)], sources=[OK, NVIDIA])
    shown = row(one)
    assert (shown["GPUs"], shown["GPU-Util"], shown["GPU-Mem"]) == ("2", "50%", "40960Mi/163840Mi")
    assert (shown["Temp"], shown["Power"], shown["Power-Limit"]) == ("70C", "466W", "1400W")


def test_names_of_several_cards_are_listed_once() -> None:
    cards = [
        card(1, clock_reduction_reasons=("sw_power_cap", "gpu_idle")),
        card(2, clock_reduction_reasons=("gpu_idle", "hw_slowdown")),
        card(3, clock_reduction_reasons=Reason.UNSUPPORTED),
        card(4),
    ]
    shown = row(usage(cards=cards, sources=[OK, NVIDIA]))
    assert shown["Clock-Reduction"] == "sw_power_cap,gpu_idle,hw_slowdown (3/4)"
    assert row(usage(cards=cards[2:3], sources=[OK, NVIDIA]))["Clock-Reduction"] == "<unknown>"


def test_one_card_without_figures_hides_nothing_of_the_others_and_is_not_hidden() -> None:
    lost = card(
        2,
        memory_used=Reason.LOST,
        compute_utilization=Reason.LOST,
        temperature=Reason.LOST,
        power_usage=Reason.LOST,
    )
    shown = row(usage(cards=[card(1), lost], sources=[OK, NVIDIA]))
    assert shown["GPUs"] == "2"
    assert shown["GPU-Util"] == "40% (1/2)"
    assert shown["GPU-Mem"] == "20480Mi/81920Mi (1/2)"
    assert shown["Temp"] == "51C (1/2)"
    assert shown["Power"] == "233W (1/2)"
    alone = row(usage(cards=[lost], sources=[OK, NVIDIA]))
    assert [alone[name] for name in ("GPU-Util", "GPU-Mem", "Temp", "Power")] == ["<unknown>"] * 4


def test_without_cards_there_is_nothing_and_without_a_record_nothing_is_known() -> None:
    none = row(usage(sources=[OK]))
    names = ("GPUs", "GPU-Util", "GPU-Mem", "Health", "Temp")
    assert [none[name] for name in names] == ["0", "<none>", "<none>", "<none>", "<none>"]
    malformed = row(usage(sources=[OK, SourceReport("allocation", SourceState.INVALID)]))
    assert (malformed["GPUs"], malformed["Health"]) == ("<unknown>", "<unknown>")
    part = row(usage(cards=[card()], sources=[OK, SourceReport("allocation", SourceState.INVALID)]))
    assert (part["GPUs"], part["GPU-Util"], part["Health"]) == ("1+", "40%", "ok")


@pytest.mark.parametrize("state", [SourceState.TIMEOUT, SourceState.STALE, *list(CollectorState)[1:]])
def test_a_device_manager_that_does_not_answer_well_changes_no_count(state: SourceState | CollectorState) -> None:
    down = AcceleratorUsage("GPU-9", "amd", 9, None, "Exclusive", Figures(Reason.STALE), Reason.STALE)
    shown = row(usage(cards=[card(), down], sources=[OK, NVIDIA, replace(DOWN, state=state)]))
    assert (shown["GPUs"], shown["GPU-Util"], shown["Health"]) == ("2", "40% (1/2)", "ok (1/2)")
    assert shown["Sources"] == f"kubelet,device-manager/nvidia,device-manager/amd={state}"


@pytest.mark.parametrize(
    ("healths", "health"),
    [
        ([False, False], "ok"),
        ([False, Reason.LOST], "ok (1/2)"),
        ([Reason.LOST, Reason.STALE], "<unknown>"),
        ([True], "unhealthy"),
        ([True, True], "unhealthy"),
        ([True, False], "unhealthy (1/2)"),
        ([True, Reason.STALE, True], "unhealthy (2/3)"),
    ],
)
def test_health_of_several_cards(healths: list[bool | Reason], health: str) -> None:
    cards = [card(number, unhealthy=each) for number, each in enumerate(healths)]
    assert row(usage(cards=cards, sources=[OK, NVIDIA]))["Health"] == health


def test_why_cards_are_unhealthy_is_said_once_for_each_reason() -> None:
    def ill(number: int, why: str | None) -> AcceleratorUsage:
        return replace(card(number, unhealthy=True), unhealthy_reason=why)

    cards = [ill(1, "double-bit ECC error"), ill(2, "double-bit ECC error"), ill(3, None)]
    assert row(usage(cards=cards))["Health-Reason"] == "double-bit ECC error"
    assert row(usage(cards=cards[2:]))["Health-Reason"] == "<none>"
    many = [ill(number, f"fault {number}") for number in range(5)]
    assert row(usage(cards=many))["Health-Reason"] == "fault 0; fault 1; fault 2; and 2 more"
    well = [replace(card(), unhealthy_reason="left over")]
    assert row(usage(cards=well))["Health-Reason"] == "<none>"


def test_a_partition_shows_its_own_figures_and_its_profile() -> None:
    small = replace(
        card(1, memory_total=9856, memory_used=2464, compute_utilization=Reason.UNSUPPORTED),
        id="MIG-1",
        mode="Partitioned",
        profile="1g.10gb",
    )
    shown = row(usage(cards=[small, replace(small, id="MIG-2")], sources=[OK, NVIDIA]))
    assert (shown["GPUs"], shown["GPU-Mem"], shown["GPU-Util"]) == ("2", "4928Mi/19712Mi", "<unknown>")
    assert shown["Profile"] == "1g.10gb"
    assert row(usage(cards=[small, replace(small, profile="3g.40gb")]))["Profile"] == "1g.10gb; 3g.40gb"


def test_an_instance_without_a_sample_keeps_its_row() -> None:
    shown = row(replace(usage(node_name=None), sample=None))
    assert shown["Name"] == "web"
    assert shown["Node"] == "<none>"
    assert {
        shown[name]
        for name in ("CPU", "Memory", "Disk", "GPUs", "GPU-Util", "GPU-Mem", "Health", "Sample-Age", "Temp")
    } == {"<unknown>"}


def test_no_column_is_called_age_which_elsewhere_means_the_objects_own() -> None:
    """Scripts that look for AGE would read an age of seconds as that of the Instance."""
    assert "AGE" not in [column.name.upper() for column in COLUMNS]
    assert row(replace(usage(), created_at=None))["Instance-Age"] == "<unknown>"
    assert row(replace(usage(), sample=None))["Instance-Age"] == "120m"


def test_age_is_the_oldest_source_and_only_without_one_a_difference_of_clocks() -> None:
    assert row(usage(sources=[OK, replace(NVIDIA, age_s=40)]))["Sample-Age"] == "40s"
    assert row(usage(sources=[replace(OK, age_s=None)]))["Sample-Age"] == "7s"
    assert row(usage(sources=[replace(DOWN, age_s=4000)]))["Sample-Age"] == "7s"
