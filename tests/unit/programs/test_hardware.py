"""Which manufacturer is read, and how its collector is started."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from devicemanager.clock import SystemClock
from devicemanager.errors import SettingsError
from devicemanager.node.auto_detect import AutoDetectSupervisor
from devicemanager.node.process_usage import UsageLimits
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.supervisor import Supervisor
from devicemanager.programs import hardware
from devicemanager.settings.loading import load
from devicemanager.settings.node import DetectSettings, MonitorSettings, ServeSettings
from devicemanager.settings.process import environment_of_collectors
from tests.standins import acme

NVIDIA, AMD = "10de", "1002"


def bus(root: Path, *vendors: str) -> str:
    for number, vendor in enumerate(vendors):
        folder = root / "bus" / "pci" / "devices" / f"0000:{0x3C + number:02x}:00.0"
        folder.mkdir(parents=True)
        for name, value in {"vendor": f"0x{vendor}", "device": "0x2330", "class": "0x030200"}.items():
            (folder / name).write_text(value + "\n")
    (root / "bus" / "pci" / "devices").mkdir(parents=True, exist_ok=True)
    return f"--sys-root={root}"


@pytest.mark.parametrize("name", ["nvidia", "simulated", "simulated-b"])
def test_a_named_manufacturer_need_not_be_on_the_bus(tmp_path: Path, name: str) -> None:
    assert hardware.manufacturer(load(ServeSettings, [f"--manufacturer={name}", bus(tmp_path / "sys")], {})) == name


def test_auto_takes_the_only_one_on_the_bus(tmp_path: Path) -> None:
    settings = load(ServeSettings, [bus(tmp_path / "sys", NVIDIA, NVIDIA)], {})

    assert hardware.manufacturer(settings) == "nvidia"
    assert list(hardware.rules(settings)) == []


@pytest.mark.parametrize(
    ("vendors", "flags", "expected"),
    [
        (
            [],
            [],
            "--manufacturer=auto: no accelerator of a known manufacturer is on the PCI bus; name one, or try ",
        ),
        (
            [NVIDIA, AMD],
            [],
            "--manufacturer=auto: cards of two or more manufacturers are on the PCI bus, amd and nvidia",
        ),
        ([AMD], [], "--manufacturer=auto: the collector for amd is not built yet; built are nvidia, simulated"),
        ([], ["--manufacturer=amd"], "--manufacturer=amd: the collector for amd is not built yet"),
        ([], ["--manufacturer=Nvidia"], "--manufacturer=Nvidia: unknown; did you mean nvidia? known are amd, "),
        ([], ["--manufacturer=simulated-"], "--manufacturer=simulated-: unknown"),
    ],
    ids=["none", "two", "found-not-built", "named-not-built", "unknown", "no-suffix"],
)
def test_what_cannot_be_read_is_refused_with_the_way_out(
    tmp_path: Path, vendors: Sequence[str], flags: Sequence[str], expected: str
) -> None:
    settings = load(ServeSettings, [bus(tmp_path / "sys", *vendors), *flags], {})

    with pytest.raises(SettingsError) as raised:
        hardware.manufacturer(settings)

    (problem,) = raised.value.problems
    assert problem.startswith(expected)
    assert [conflict.message for conflict in hardware.rules(settings)] == [problem]


def test_a_bus_that_is_not_where_it_is_looked_for_is_said_to_be_missing(tmp_path: Path) -> None:
    settings = load(ServeSettings, [f"--sys-root={tmp_path}"], {})
    missing = f"no PCI bus can be looked at, {tmp_path}/bus/pci/devices does not exist"

    assert [conflict.message for conflict in hardware.rules(settings)] == [
        f"--manufacturer=auto: {missing}; name one, or try --manufacturer=simulated"
    ]
    waiting = hardware.supervised(settings, 15.0)[1]
    assert isinstance(waiting, AutoDetectSupervisor)
    assert waiting._nothing_found == missing


def test_a_server_waits_for_a_card_but_chooses_between_no_two(tmp_path: Path) -> None:
    none = load(ServeSettings, [bus(tmp_path / "none")], {})
    two = load(ServeSettings, [bus(tmp_path / "two", NVIDIA, AMD)], {})

    assert list(hardware.rules_for_serving(none)) == []
    assert ["amd and nvidia" in conflict.message for conflict in hardware.rules_for_serving(two)] == [True]
    assert isinstance(hardware.supervised(none, 15.0)[1], AutoDetectSupervisor)


def test_looking_at_all_manufacturers_needs_none_on_the_bus(tmp_path: Path) -> None:
    settings = load(DetectSettings, [bus(tmp_path / "sys", AMD, NVIDIA)], {})

    assert list(hardware.rules_for_a_name(settings)) == []


def test_looking_at_a_name_needs_a_known_one() -> None:
    settings = load(DetectSettings, ["--manufacturer=nobody"], {})

    assert [conflict.names for conflict in hardware.rules_for_a_name(settings)] == [
        ("manufacturer", "sys_root", "no_pci_check")
    ]


def supervisor(*flags: str) -> Supervisor:
    settings = load(ServeSettings, flags, {})
    store = SnapshotStore("nvidia", 15.0, None, SystemClock())
    return hardware.supervisor(settings, "nvidia", 15.0, store)


def test_the_collector_is_started_from_the_same_installation_and_nowhere_else() -> None:
    command = supervisor()._options.command

    assert list(command) == [sys.executable, "-P", "-m", "collectors", "nvidia"]


def test_the_scenario_and_the_deadlines_are_handed_on(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text("")

    options = supervisor(
        "--manufacturer=simulated", f"--simulated-scenario={file}", "--card-timeout=1s", "--open-timeout=2s"
    )._options

    assert list(options.command[-2:]) == ["--scenario", str(file)]
    assert (options.card_deadline_s, options.open_deadline_s) == (1.0, 2.0)


def test_the_bus_is_asked_for_addresses_unless_told_not_to(tmp_path: Path) -> None:
    root = bus(tmp_path / "sys", NVIDIA, AMD, NVIDIA)

    assert supervisor(root)._options.bus_addresses() == ("0000:3c:00.0", "0000:3e:00.0")
    assert supervisor(root, "--no-pci-check", "--manufacturer=nvidia")._options.bus_addresses() == ()


@pytest.fixture
def hanging_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bus of which one file is never read to its end, until the test is over."""
    flag = bus(tmp_path / "sys", NVIDIA)
    vendor = tmp_path / "sys/bus/pci/devices/0000:3c:00.0/vendor"
    vendor.unlink()
    os.mkfifo(vendor)
    monkeypatch.setattr(hardware, "_BUS_DEADLINE_S", 0.05)
    yield flag
    for _ in range(10):  # as often as it was tried
        with contextlib.suppress(OSError):
            os.close(os.open(vendor, os.O_WRONLY | os.O_NONBLOCK))


def test_a_server_starts_though_the_bus_hangs_and_waits_for_a_card(hanging_bus: str) -> None:
    settings = load(ServeSettings, [hanging_bus], {}, hardware.rules_for_serving)

    _, supervisor = hardware.supervised(settings, 15.0)

    assert isinstance(supervisor, AutoDetectSupervisor)


def test_a_command_says_that_the_bus_hangs(hanging_bus: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(MonitorSettings, [hanging_bus], {}, hardware.rules)
    root = hanging_bus.removeprefix("--sys-root=")
    assert refused.value.problems == (f"{hanging_bus}: the PCI bus in {root}: not read within 0.05 s",)


def test_a_named_manufacturer_needs_no_bus(hanging_bus: str) -> None:
    settings = load(ServeSettings, [hanging_bus, "--manufacturer=nvidia"], {}, hardware.rules_for_serving)

    assert isinstance(hardware.supervised(settings, 15.0)[1], Supervisor)


def test_a_collector_process_is_bounded_by_the_settings_and_marked() -> None:
    settings = load(ServeSettings, ["--manufacturer=nvidia", "--collector-memory-limit=96Mi"], {})
    store = SnapshotStore("nvidia", 15.0, None, SystemClock())

    options = hardware.supervisor(settings, "nvidia", 15.0, store)._options

    assert options.usage == UsageLimits(96 << 20, 512)
    assert options.environment == environment_of_collectors()


def test_a_name_that_is_nearly_that_of_a_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(acme.install(tmp_path)["PYTHONPATH"].split(":")[0])

    with pytest.raises(SettingsError) as refused:
        hardware.manufacturer(load(ServeSettings, ["--manufacturer=acmee"], {}))

    known = "acme, amd, ascend, cambricon, hygon, iluvatar, metax, mthreads, nvidia, simulated, thead"
    assert refused.value.problems == (f"--manufacturer=acmee: unknown; did you mean acme? known are {known}",)


def test_a_name_like_no_other_is_answered_with_all(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        hardware.manufacturer(load(ServeSettings, ["--manufacturer=quantum9"], {}))

    (problem,) = refused.value.problems
    assert problem.startswith("--manufacturer=quantum9: unknown; known are amd, ascend, ")


@pytest.mark.parametrize(
    ("visible", "nodes", "flags", "expected"),
    [
        pytest.param("all", 0, (), 3, id="given all by the runtime"),
        pytest.param("0,1", 2, (), 0, id="given two of them"),
        pytest.param("GPU-1", 1, (), 0, id="given one by its id"),
        pytest.param("void", 3, (), 3, id="given all as device files"),
        pytest.param(None, 3, (), 3, id="on the host itself"),
        pytest.param(None, 2, (), 0, id="without a device file of each"),
        pytest.param(None, 0, (), 0, id="without device files"),
        pytest.param("all", 3, ("--no-pci-check",), 0, id="told not to look"),
    ],
)
def test_the_library_must_count_every_card_only_where_all_were_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    nodes: int,
    flags: tuple[str, ...],
    expected: int,
) -> None:
    sys_root = bus(tmp_path / "sys", NVIDIA, NVIDIA, NVIDIA)
    for folder in (tmp_path / "sys" / "bus" / "pci" / "devices").iterdir():
        (folder / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(nodes))):
        (dev / name).touch()
    monkeypatch.setattr(hardware, "DEV_ROOT", dev)
    settings = load(ServeSettings, ["--manufacturer=nvidia", sys_root, *flags], {})
    environment = {} if visible is None else {"NVIDIA_VISIBLE_DEVICES": visible}

    assert len(hardware._taken_by_the_driver(settings, "nvidia", environment)) == expected
    assert hardware._taken_by_the_driver(settings, "simulated", environment) == ()
