"""One Instance's sample as text."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.usage import (
    AcceleratorUsage,
    Resources,
    SourceReport,
    SourceState,
    UsageSample,
    WorkloadUsage,
)
from devicemanager.programs.present_usage import usage_text
from tests import devices

NOW = datetime(2026, 8, 12, 9, 15, 4, tzinfo=UTC)
CARD = AcceleratorUsage(
    "GPU-1",
    "nvidia",
    0,
    "H100",
    "Exclusive",
    devices.published(temperature=Reason.UNSUPPORTED, clock_reduction_reasons=("sw_power_cap", "gpu_idle")),
    Reason.PERMISSION,
)


def test_figures_cards_and_sources() -> None:
    sample = UsageSample(
        NOW - timedelta(seconds=75),
        250_000_001,
        2048,
        Reason.NOT_YET,
        1024,
        (CARD,),
        Resources(),
        Resources(4000, 8192, None),
        (
            SourceReport("kubelet", SourceState.OK, 75),
            SourceReport("device-manager/nvidia", CollectorState.CRASHED, None, "ended by SIGSEGV"),
        ),
    )
    assert usage_text(WorkloadUsage("team-a", "web", "uid", None, sample=sample), NOW) == (
        "team-a/web: sampled 1m15s ago\n"
        "\n"
        "FIGURE   USED\n"
        "CPU      251m of 4000m (6 %)\n"
        "MEMORY   2048 MiB of 8192 MiB (25 %)\n"
        "ROOTFS   <not_yet>\n"
        "DISK     1024 MiB\n"
        "\n"
        "CARD    MANUFACTURER   INDEX   NAME   MODE        MEMORY                     "
        "UTIL   TEMP            POWER   POWER-LIMIT   CLOCK-REDUCTION          HEALTH\n"
        "GPU-1   nvidia         0       H100   Exclusive   20480 / 81920 MiB (25 %)   "
        "40 %   <unsupported>   233 W   700 W         sw_power_cap, gpu_idle   <permission>\n"
        "\n"
        "SOURCE                  STATE     AGE     MESSAGE\n"
        "kubelet                 ok        1m15s\n"
        "device-manager/nvidia   crashed   -       ended by SIGSEGV"
    )  # fmt: skip


def test_a_partition_has_its_profile_and_an_unhealthy_card_the_reason() -> None:
    partition = replace(
        CARD, mode="Partitioned", profile="1g.10gb", unhealthy=True, unhealthy_reason="ECC errors: 2"
    )
    sources = (SourceReport("kubelet", SourceState.OK, 3),)
    sample = UsageSample(NOW, 1, 1, 1, 1, (partition,), Resources(), Resources(), sources)
    text = usage_text(WorkloadUsage("team-a", "web", "uid", None, sample=sample), NOW)
    assert "   Partitioned 1g.10gb   " in text
    assert "   unhealthy (ECC errors: 2)\n" in text


@pytest.mark.parametrize("skew_s", [-300, 300])
def test_the_age_does_not_depend_on_the_clock_of_whoever_asks(skew_s: int) -> None:
    sources = (SourceReport("kubelet", SourceState.OK, 3),)
    sample = UsageSample(NOW, 1, 1, 1, 1, (), Resources(), Resources(), sources)
    usage = WorkloadUsage("team-a", "web", "uid", None, sample=sample)
    assert usage_text(usage, NOW + timedelta(seconds=skew_s)).startswith("team-a/web: sampled 3s ago\n")


def test_an_instance_without_a_sample_says_so() -> None:
    assert usage_text(WorkloadUsage("team-a", "web", "uid", None), NOW) == "team-a/web: no sample"
