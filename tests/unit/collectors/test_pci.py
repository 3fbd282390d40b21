"""Finding accelerators on the PCI bus, on invented trees of /sys."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors import pci
from collectors.pci_address import normalise


class Bus:
    """A tree of /sys in the making."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._devices = root / "bus" / "pci" / "devices"
        self._devices.mkdir(parents=True)

    def add(
        self, address: str, vendor: str, class_code: str, *, driver: str | None = None, virtual: bool = False
    ) -> None:
        folder = self._devices / address
        folder.mkdir()
        (folder / "vendor").write_text(f"0x{vendor}\n")
        (folder / "device").write_text("0x2330\n")
        (folder / "class").write_text(f"0x{class_code}\n")
        if driver is not None:
            (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        if virtual:
            (folder / "physfn").symlink_to("../0000:00:01.0")
            (self._devices / "0000:00:01.0").mkdir(exist_ok=True)

    def found(self) -> tuple[str, ...]:
        return pci.detect(pci.scan(self.root))


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path)


@pytest.mark.parametrize(
    ("vendor", "class_code", "name"),
    [
        ("10de", "030200", "nvidia"),
        ("10de", "030000", "nvidia"),
        ("1002", "038000", "amd"),
        ("1002", "120000", "amd"),
        ("19e5", "120000", "ascend"),
        ("1d94", "0b4000", "hygon"),
        ("cabc", "120000", "cambricon"),
        ("1e3e", "120000", "iluvatar"),
        ("9999", "038000", "metax"),
        ("1ed5", "030200", "mthreads"),
        ("1ded", "030200", "thead"),
    ],
)
def test_cards(bus: Bus, vendor: str, class_code: str, name: str) -> None:
    bus.add("0000:3b:00.0", vendor, class_code)
    assert bus.found() == (name,)
    assert pci.addresses(pci.scan(bus.root), name) == ("0000:3b:00.0",)


@pytest.mark.parametrize(
    ("vendor", "class_code"),
    [
        pytest.param("10de", "040300", id="audio function of a card"),
        pytest.param("10de", "0c0330", id="USB function of a card"),
        pytest.param("10de", "068000", id="NVSwitch"),
        pytest.param("19e5", "030000", id="Huawei iBMC display"),
        pytest.param("19e5", "020000", id="Huawei network card"),
        pytest.param("1d94", "060000", id="Hygon root complex"),
        pytest.param("1ded", "010802", id="Alibaba NVMe"),
        pytest.param("8086", "030000", id="Intel display"),
        pytest.param("102b", "030000", id="board display"),
    ],
)
def test_what_is_no_card(bus: Bus, vendor: str, class_code: str) -> None:
    bus.add("0000:3b:00.0", vendor, class_code)
    assert bus.found() == ()


def test_the_processors_own_display_is_no_card(bus: Bus) -> None:
    bus.add("0000:0c:00.0", "1002", "030000")
    bus.add("0000:0c:00.1", "1002", "040300")
    bus.add("0000:0c:00.2", "1022", "108000")
    bus.add("0000:03:00.0", "10de", "030000")
    assert bus.found() == ("nvidia",)
    assert [device.integrated for device in pci.scan(bus.root)] == [False, True]


def test_a_discrete_card_beside_the_processors_display(bus: Bus) -> None:
    bus.add("0000:0c:00.0", "1002", "030000")
    bus.add("0000:0c:00.2", "1022", "108000")
    bus.add("0000:03:00.0", "1002", "038000")
    assert pci.addresses(pci.scan(bus.root), "amd") == ("0000:03:00.0",)


def test_a_card_given_to_a_virtual_machine_is_listed_and_not_counted(bus: Bus) -> None:
    bus.add("0000:3b:00.0", "10de", "030200", driver="vfio-pci")
    assert bus.found() == ()
    (device,) = pci.scan(bus.root)
    assert device.passthrough
    assert device.driver == "vfio-pci"
    bus.add("0000:af:00.0", "10de", "030200", driver="nvidia")
    assert pci.addresses(pci.scan(bus.root), "nvidia") == ("0000:af:00.0",)


def test_a_virtual_function_is_counted_by_its_physical_one(bus: Bus) -> None:
    bus.add("0000:3b:00.4", "10de", "030200", virtual=True)
    assert bus.found() == ()


def test_addresses_are_in_order_and_normalised(bus: Bus) -> None:
    for address in ("0000:AF:00.0", "000f:01:00.0", "0000:3b:00.0"):
        bus.add(address, "10de", "030200")
    assert pci.addresses(pci.scan(bus.root), "nvidia") == ("0000:3b:00.0", "0000:af:00.0", "000f:01:00.0")


def test_two_manufacturers_are_both_named(bus: Bus) -> None:
    bus.add("0000:3b:00.0", "10de", "030200")
    bus.add("0000:af:00.0", "1002", "120000")
    assert bus.found() == ("amd", "nvidia")


def test_a_bus_that_cannot_be_read_has_no_cards(tmp_path: Path) -> None:
    assert pci.scan(tmp_path / "nowhere") == ()


def test_a_device_that_vanishes_or_is_garbage_costs_only_itself(bus: Bus) -> None:
    devices = bus.root / "bus" / "pci" / "devices"
    (devices / "0000:01:00.0").mkdir()
    (devices / "0000:02:00.0").mkdir()
    (devices / "0000:02:00.0" / "vendor").write_bytes(b"\xff\xff")
    (devices / "0000:02:00.0" / "class").write_bytes(b"")
    (devices / "not-an-address").mkdir()
    bus.add("0000:3b:00.0", "10de", "030200")
    assert [device.address for device in pci.scan(bus.root)] == ["0000:3b:00.0"]


@pytest.mark.parametrize("manufacturer", ["simulated", "nobody"])
def test_a_manufacturer_not_on_the_bus_has_no_addresses(bus: Bus, manufacturer: str) -> None:
    bus.add("0000:3b:00.0", "10de", "030200")
    assert pci.addresses(pci.scan(bus.root), manufacturer) == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("3b:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0\n", "0000:3b:00.0"),
        ("0000:3b:00", None),
        ("0000:3b:00.8", None),
        ("", None),
    ],
)
def test_addresses_as_others_write_them(written: str, expected: str | None) -> None:
    assert normalise(written) == expected


@pytest.mark.parametrize("file", ["vendor", "class", "device", "driver", "physfn"])
def test_a_file_that_cannot_be_read_costs_one_function_at_most(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The kernel answers EIO for a device that is falling off the bus."""
    bus.add("0000:3b:00.0", "10de", "030200")
    bus.add("0000:3c:00.0", "10de", "030200", driver="nvidia", virtual=file == "physfn")

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if str(path).endswith(f"0000:3c:00.0/{file}"):
                raise OSError(errno.EIO, "Input/output error")
            return real(path, *arguments, **options)

        return call

    for name in ("lstat", "stat", "readlink"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    monkeypatch.setattr(Path, "read_bytes", failing(Path.read_bytes))

    found = [device.address for device in pci.scan(bus.root)]

    assert found == ["0000:3b:00.0"] + ([] if file in ("vendor", "class") else ["0000:3c:00.0"])
    assert pci.addresses(pci.scan(bus.root), "nvidia") == tuple(found)


def test_a_folder_that_cannot_be_listed_is_an_empty_bus(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    bus.add("0000:3b:00.0", "10de", "030200")

    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert pci.scan(bus.root) == ()


def test_the_functions_that_a_driver_has_taken_are_those_that_its_library_must_count(bus: Bus) -> None:
    """Neither what was given to a virtual machine, nor a share of another, nor what is no card at all."""
    bus.add("0000:1b:00.0", "10de", "030200", driver="nvidia")
    bus.add("0000:1c:00.0", "10de", "030000", driver="nvidia")
    bus.add("0000:1d:00.0", "10de", "030200", driver="vfio-pci")
    bus.add("0000:1e:00.0", "10de", "030200")
    bus.add("0000:1f:00.0", "10de", "030200", driver="nouveau")
    bus.add("0000:20:00.0", "10de", "030200", driver="nvidia", virtual=True)
    bus.add("0000:21:00.0", "10de", "068000", driver="nvidia")  # a switch between cards
    bus.add("0000:22:00.0", "10de", "038000", driver="nvidia")
    bus.add("0000:23:00.0", "1002", "030200", driver="nvidia")
    assert pci.taken(pci.scan(bus.root), "nvidia") == ("0000:1b:00.0", "0000:1c:00.0")
    assert pci.taken(pci.scan(bus.root), "amd") == (), "whose driver and classes are not known"
    assert pci.taken(pci.scan(bus.root), "acme") == ()
