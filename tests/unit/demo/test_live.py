"""What the demo draws, character by character."""

import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from devicemanager.demo.live import Frame, View, cores_text, gib_text, percent
from devicemanager.model.accelerator import CollectorState, Figure, Reason
from devicemanager.model.usage import (
    AcceleratorUsage,
    Resources,
    SourceReport,
    SourceState,
    UsageSample,
    WorkloadUsage,
)
from tests import devices

NOW = datetime(2026, 8, 12, 9, 15, 4, tzinfo=UTC)
KUBELET = SourceReport("kubelet", SourceState.OK, 3)
AURORA = SourceReport("device-manager/simulated-aurora", CollectorState.OK, 0)
BOREALIS = SourceReport("device-manager/simulated-borealis", CollectorState.CRASHED, 99, "ended by SIGSEGV")


def card(index: int, busy: Figure = 73, *, unhealthy: bool | Reason = False, **figures: Figure) -> AcceleratorUsage:
    values = {"memory_used": 60500, "memory_utilization": 73, "temperature": 61, "power_usage": 430, **figures}
    return AcceleratorUsage(
        id=f"SIM-aurora-{index}",
        manufacturer="simulated-aurora",
        index=index,
        name="Aurora A80",
        mode="Exclusive",
        figures=devices.published(compute_utilization=busy, **values),
        unhealthy=unhealthy,
    )


def view(
    cpu: Figure = 1_392_822_467,
    cards: tuple[AcceleratorUsage, ...] = (card(0),),
    sources: tuple[SourceReport, ...] = (KUBELET, AURORA),
    limits: Resources = Resources(4000, 8192, 20480),  # noqa: B008 - frozen
) -> View:
    sample = UsageSample(NOW - timedelta(seconds=4), cpu, 2574, 610, 624, cards, Resources(), limits, sources)
    return View("team-a/chat", WorkloadUsage("team-a", "chat", "uid", None, node_name="demo-node", sample=sample))


def drawn(*views: View, width: int = 80, encoding: str = "utf-8", color: bool = False) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        file=file,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
    )
    console.print(Frame(views, NOW))
    file.flush()
    buffer = file.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(encoding)


def test_eighty_columns() -> None:
    assert drawn(view()) == (
        "╭─ team-a/chat on demo-node ───────────────────────────────────────────────────╮\n"
        "│ CPU     ━━━╌╌╌╌╌╌╌  34 %  1.39 / 4 cores                                     │\n"
        "│ Memory  ━━━╌╌╌╌╌╌╌  31 %  2.51 / 8 GiB                                       │\n"
        "│ Disk    ╌╌╌╌╌╌╌╌╌╌   3 %  0.61 / 20 GiB                                      │\n"
        "│ Card          Util                      Memory   Temp  Power  Health         │\n"
        "│ SIM-aurora-0  ━━━━━━━╌╌╌  73 %  59.08 / 80 GiB  61 °C  430 W  ok             │\n"
        "│ Sources kubelet ok 3s · device-manager/simulated-aurora ok 0s                │\n"
        "╰───────────────────────────────────────────────────────────── sampled 3s ago ─╯\n"
    )


def test_a_wide_terminal_has_room_for_names_and_is_not_filled() -> None:
    lines = drawn(view(), width=200).splitlines()
    assert {len(line) for line in lines} == {110}
    assert "Product" in lines[4]
    assert "Aurora A80" in lines[5]


def test_a_narrow_terminal_has_fewer_columns_and_whole_figures() -> None:
    assert drawn(view(), width=60) == (
        "╭─ team-a/chat on demo-node ───────────────────────────────╮\n"
        "│ CPU     ━━━╌╌╌╌╌╌╌  34 %  1.39 / 4 cores                 │\n"
        "│ Memory  ━━━╌╌╌╌╌╌╌  31 %  2.51 / 8 GiB                   │\n"
        "│ Disk    ╌╌╌╌╌╌╌╌╌╌   3 %  0.61 / 20 GiB                  │\n"
        "│ Card          Util           Memory  Power  Health       │\n"
        "│ SIM-aurora-0   73 %  59.08 / 80 GiB  430 W  ok           │\n"
        "│ Sources kubelet ok 3s                                    │\n"
        "│         device-manager/simulated-aurora ok 0s            │\n"
        "╰───────────────────────────────────────── sampled 3s ago ─╯\n"
    )


@pytest.mark.parametrize("width", range(40, 112))
@pytest.mark.parametrize("busy", [9, 100, Reason.UNSUPPORTED])
def test_no_figure_is_cut_short(width: int, busy: Figure) -> None:
    lines = drawn(view(cards=(card(0, busy), card(1, 73))), width=width).splitlines()[:-1]
    figures = "\n".join(line for line in lines if "device-manager" not in line)
    assert "…" not in figures
    assert "1.39 / 4 cores" in figures
    assert "<unsupported>" in figures or f"{busy} %" in figures


@pytest.mark.parametrize("width", range(44, 112))
def test_figures_that_move_keep_their_columns(width: int) -> None:
    shown = set()
    for busy, memory, temperature, power in ((1, 9, 9, 9), (73, 60500, 61, 430), (100, 81920, 100, 999)):
        moved = card(0, busy, memory_used=memory, temperature=temperature, power_usage=power)
        header, figures = drawn(view(cards=(moved,)), width=width).splitlines()[4:6]
        shown.add((tuple(header.split()), not {"━", "╌"}.isdisjoint(figures)))
    assert len(shown) == 1


@pytest.mark.parametrize("busy", [73, 100, Reason.UNSUPPORTED], ids=str)
@pytest.mark.parametrize("width", range(8, 45))
def test_on_the_narrowest_terminals_names_are_cut_and_figures_whole_or_missing(width: int, busy: Figure) -> None:
    named = replace(card(0, busy, unhealthy=True), id="SIM-aurora-left")
    figures = set(re.findall(r"[0-9][0-9.]*", drawn(view(cards=(named,)), width=110)))

    narrow = drawn(view(cards=(named,)), width=width)

    assert set(re.findall(r"[0-9][0-9.]*", narrow)) <= figures
    assert all(len(line) == width for line in narrow.splitlines())
    if width >= 30:
        assert "1.39 / 4 cores" in narrow
    if width >= (34 if isinstance(busy, Reason) else 30):
        assert str(busy) in narrow


@pytest.mark.parametrize("width", [60, 80, 96, 110, 120])
def test_every_line_is_as_wide_as_the_others(width: int) -> None:
    busy = view(
        Reason.NOT_YET, (card(0, Reason.TRANSIENT_DRIVER_ERROR, unhealthy=True),), (KUBELET, AURORA, BOREALIS)
    )
    lines = drawn(busy, width=width).splitlines()
    assert {len(line) for line in lines} == {min(width, 110)}


def test_absent_figures_show_their_reason_and_no_bar() -> None:
    text = drawn(view(Reason.NOT_YET, (card(0, Reason.UNSUPPORTED, unhealthy=Reason.PERMISSION),)))
    assert "CPU                       <not_yet> / 4 cores" in text
    assert "SIM-aurora-0  <unsupported>" in text
    assert "<permission>" in text


def test_problems_are_shown_in_words() -> None:
    text = drawn(view(cards=(card(0, unhealthy=True),), sources=(KUBELET, AURORA, BOREALIS)))
    assert "unhealthy" in text
    assert "device-manager/simulated-borealis crashed 99s (ended by SIGSEGV)" in text


def test_an_instance_that_cannot_be_read_says_why() -> None:
    text = drawn(View("team-a/chat", problem="503: no source answers"))
    assert "503: no source answers" in text
    assert "sampled" not in text


def test_no_card_no_table() -> None:
    assert "Util" not in drawn(view(cards=()))


def test_plain_terminals_get_plain_characters() -> None:
    text = drawn(view(), encoding="ascii")
    assert "| CPU     ###-------  34 %  1.39 / 4 cores" in text
    assert "61 C" in text


def test_color_only_repeats_what_the_text_says() -> None:
    colored = drawn(view(), color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == drawn(view())


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [(34, 100, 34), (1, 3, 33), (5, 0, None), (5, None, None), (Reason.STALE, 10, None), (5, Reason.LOST, None)],
)
def test_shares_are_of_something_known(used: Figure, limit: Figure | None, expected: int | None) -> None:
    assert percent(used, limit) == expected


def test_figures_without_a_limit_stand_alone() -> None:
    assert cores_text(1_500_000_000, None) == "1.50 cores"
    assert cores_text(500_000_000, 1000) == "0.50 / 1 core"
    assert gib_text(512, None) == "0.50 GiB"
    assert gib_text(Reason.LOST, Reason.LOST) == "<lost>"
    assert gib_text(Reason.NOT_YET, 8192) == "<not_yet> / 8 GiB"
    assert gib_text(512, Reason.NOT_REPORTED) == "0.50 / <not_reported> GiB"
