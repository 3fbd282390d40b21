"""Machines recorded by others, each as a scenario for the NVML stand-in and as the figures that must come out.

Three kinds of record: the XML that ``nvidia-smi -q -x`` printed, captures that hold its CSV output (idle and under
load), and device profiles. What the vendor's tool printed as N/A is left out of the scenario, so that the stand-in
answers "not supported" for it, and must be absent in the end. The records are read where they lie; nothing of them
is kept here.
"""

import csv
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.standins.nvml import Scenario, Value

FOLDER_VARIABLE: Final = "DEVICEMANAGER_RECORDED_MACHINES"
"""Names the folder with the records. Tests that need it are skipped where it is not set."""

_MIB: Final = 1 << 20


@dataclass(frozen=True)
class ExpectedCard:
    """What the vendor's tool said of a card, in its own units. None: it printed N/A, or nothing.

    Attributes:
        id: UUID.
        name: Product name.
        pci: ``dddd:bb:dd.f`` in lower case.
        memory_bytes: Capacity; whole MiB where the tool printed MiB.
        memory_used_bytes: In use, what the driver reserves not counted.
        utilization_percent: Utilization of the compute units.
        partitioned: MIG is on, so that a missing utilization has that reason.
        temperature_celsius: Of the card.
        power_milliwatts: Exactly as printed.
        ecc_uncorrected: Uncorrected volatile errors in device memory.
        limit_milliwatts: Enforced power limit, exactly as printed.
        clock_reductions: Names of the reasons that were active.
    """

    id: str
    name: str
    pci: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    utilization_percent: int | None
    partitioned: bool
    temperature_celsius: int | None
    power_milliwatts: int | None
    ecc_uncorrected: int | None
    limit_milliwatts: int | None
    clock_reductions: Sequence[str] | None


@dataclass(frozen=True)
class RecordedMachine:
    """One machine at one moment.

    Attributes:
        name: File, and moment where a file holds several.
        scenario: For the stand-in.
        expected_cards: In index order.
    """

    name: str
    scenario: Scenario
    expected_cards: tuple[ExpectedCard, ...]


def machines(folder: Path) -> list[RecordedMachine]:
    """All machines recorded in the folders ``nvidia_smi_xml``, ``nvidia_smi_captures`` and ``nvml_profiles``."""
    return [
        *(_from_xml(path) for path in sorted((folder / "nvidia_smi_xml").glob("*.xml"))),
        *(
            machine
            for path in sorted((folder / "nvidia_smi_captures").glob("*.txt"))
            for machine in _from_capture(path)
        ),
        *(_from_profile(path) for path in sorted((folder / "nvml_profiles").glob("*.yaml"))),
    ]


@dataclass(frozen=True)
class _Record:
    """One card as a record has it, before it becomes a scenario and an expectation."""

    uuid: str
    name: str
    bus_id: str
    total: int | None
    used: int | None
    reserved: int | None
    gpu: int | None
    memory: int | None
    temperature: int | None
    power_milliwatts: int | None
    ecc_uncorrected: int | None
    mig: bool | None
    minor: int | None = None
    limit_milliwatts: int | None = None
    clock_reductions: Sequence[str] | None = None

    def values(self) -> dict[str, Value | None]:
        """Its values for the stand-in."""
        mig = None if self.mig is None else int(self.mig)
        return {
            "uuid": self.uuid,
            "name": self.name,
            "pci": self.bus_id,
            "minor": self.minor,
            "total": self.total,
            "used": self.used,
            "reserved": self.reserved,
            "gpu": self.gpu,
            "memory": self.memory,
            "temperature": self.temperature,
            "power": self.power_milliwatts,
            "limit": self.limit_milliwatts,
            "clocks": None
            if self.clock_reductions is None
            else sum(map(_CLOCK_BITS.__getitem__, self.clock_reductions)),
            "ecc_uncorrected": self.ecc_uncorrected,
            "mig": mig,
            "mig_max": None if mig is None else 7,
        }

    def expected(self) -> ExpectedCard:
        """What must come out."""
        return ExpectedCard(
            id=self.uuid,
            name=self.name,
            pci=self.bus_id.lower()[-12:],
            memory_bytes=self.total,
            memory_used_bytes=self.used,
            utilization_percent=self.gpu,
            partitioned=bool(self.mig),
            temperature_celsius=self.temperature,
            power_milliwatts=self.power_milliwatts,
            ecc_uncorrected=self.ecc_uncorrected,
            limit_milliwatts=self.limit_milliwatts,
            clock_reductions=self.clock_reductions,
        )


_CLOCK_BITS: Final = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
"""As the tool prints them, and as the library's header numbers them, in its order."""


def _machine(name: str, driver: str | None, records: list[_Record]) -> RecordedMachine:
    scenario = Scenario(len(records))
    if driver:
        scenario.driver(driver)
    for index, record in enumerate(records):
        scenario.card(index, **record.values())
        if record.reserved is None:  # a driver that does not tell its reserve apart has no newer memory call either
            scenario.call("nvmlDeviceGetMemoryInfo_v2", index, code=13)
    return RecordedMachine(name, scenario, tuple(record.expected() for record in records))


def _from_xml(path: Path) -> RecordedMachine:
    log = ET.parse(path).getroot()
    cards = log.findall("gpu")
    machine = _machine(path.stem, log.findtext("driver_version"), [_xml_record(card) for card in cards])
    for index, card in enumerate(cards):
        for position, mig in enumerate(card.findall("mig_devices/mig_device")):
            machine.scenario.mig(
                index,
                int(mig.findtext("index", "0")),
                uuid=f"MIG-{index}-{position}",  # the tool does not print it in this form
                gpu_instance=int(mig.findtext("gpu_instance_id", "0")),
                compute_instance=int(mig.findtext("compute_instance_id", "0")),
                total=_mib(mig.findtext("fb_memory_usage/total")),
                used=_mib(mig.findtext("fb_memory_usage/used")),
                reserved=_mib(mig.findtext("fb_memory_usage/reserved")),
            )
    return machine


def _xml_record(card: ET.Element) -> _Record:
    def text(*paths: str) -> str | None:
        """What was printed in the first of these places that exists. Drivers renamed some."""
        return next((found for path in paths if (found := card.findtext(path)) is not None), None)

    minor = _number(text("minor_number"))
    return _Record(
        uuid=text("uuid") or "",
        name=text("product_name") or "",
        bus_id=card.attrib["id"],
        total=_mib(text("fb_memory_usage/total")),
        used=_mib(text("fb_memory_usage/used")),
        reserved=_mib(text("fb_memory_usage/reserved")),
        gpu=_number(text("utilization/gpu_util")),
        memory=_number(text("utilization/memory_util")),
        temperature=_number(text("temperature/gpu_temp")),
        power_milliwatts=_milliwatts(
            text(
                "gpu_power_readings/average_power_draw",
                "gpu_power_readings/power_draw",
                "power_readings/power_draw",
            )
        ),
        ecc_uncorrected=_number(
            text("ecc_errors/volatile/dram_uncorrectable", "ecc_errors/volatile/double_bit/device_memory")
        ),
        mig=_enabled(text("mig_mode/current_mig")),
        minor=minor,
        limit_milliwatts=_milliwatts(
            text(
                "gpu_power_readings/current_power_limit",
                "power_readings/enforced_power_limit",
                "power_readings/power_limit",
            )
        ),
        clock_reductions=_active(card),
    )


def _active(card: ET.Element) -> Sequence[str] | None:
    """Names of the reasons that were active, in the library's order; None where none is said of."""
    for word in ("event", "throttle"):
        found = card.find(f"clocks_{word}_reasons")
        if found is not None:
            return [name for name in _CLOCK_BITS if found.findtext(f"clocks_{word}_reason_{name}") == "Active"]
    return None


def _from_capture(path: Path) -> Iterator[RecordedMachine]:
    sections = re.split(r"^#{80}\n# (.+ :: .+)\n# \$ .*\n#{80}\n", path.read_text(encoding="utf-8"), flags=re.M)
    for title, body in zip(sections[1::2], sections[2::2], strict=True):
        if "query-gpu (csv" not in title:
            continue
        rows = csv.DictReader(io.StringIO(body.strip()), skipinitialspace=True)
        printed = [{str(key).split(" [")[0]: str(value) for key, value in row.items()} for row in rows]
        moment = title.split(" :: ")[0]
        records = [_csv_record(row) for row in printed]
        yield _machine(f"{path.stem}__{moment}", printed[0]["driver_version"], records)


def _csv_record(row: Mapping[str, str]) -> _Record:
    return _Record(
        uuid=row["uuid"],
        name=row["name"],
        bus_id=row["pci.bus_id"],
        total=_mib(row["memory.total"]),
        used=_mib(row["memory.used"]),
        reserved=_mib(row["memory.reserved"]),
        gpu=_number(row["utilization.gpu"]),
        memory=_number(row["utilization.memory"]),
        temperature=_number(row["temperature.gpu"]),
        power_milliwatts=_milliwatts(row["power.draw"]),
        ecc_uncorrected=_number(row["ecc.errors.uncorrected.volatile.dram"]),
        mig=_enabled(row["mig.mode.current"]),
        limit_milliwatts=_milliwatts(row.get("enforced.power.limit")),
    )


def _from_profile(path: Path) -> RecordedMachine:
    profile = yaml.safe_load(path.read_text(encoding="utf-8"))
    records = [_profile_record({**profile["device_defaults"], **device}) for device in profile["devices"]]
    return _machine(path.stem, profile["system"]["driver_version"], records)


def _profile_record(device: Mapping[str, Any]) -> _Record:
    memory, ecc = device["memory"], device["ecc"]
    volatile = ecc.get("errors", ecc).get("volatile", {})
    return _Record(
        uuid=device["uuid"],
        name=device["name"],
        bus_id=device["pci"]["bus_id"],
        total=memory["total_bytes"],
        used=memory["used_bytes"],
        reserved=memory["reserved_bytes"],
        gpu=device["utilization"]["gpu"],
        memory=device["utilization"]["memory"],
        temperature=device["thermal"]["temperature_gpu_c"],
        power_milliwatts=device["power"]["current_draw_mw"],
        ecc_uncorrected=volatile["double_bit"]["device_memory"] if ecc["mode_current"] == "enabled" else None,
        mig=device["mig"]["mode_current"] == "enabled" if "mig" in device else None,
        minor=device["minor_number"],
        limit_milliwatts=device["power"].get("enforced_limit_mw"),
    )


def _number(printed: str | None) -> int | None:
    """The whole number in front of a unit; None for N/A in any of its spellings."""
    match = re.match(r"-?\d+", printed.strip()) if printed else None
    return int(match.group()) if match else None


def _mib(printed: str | None) -> int | None:
    number = _number(printed)
    return None if number is None else number * _MIB


def _milliwatts(printed: str | None) -> int | None:
    match = re.match(r"(\d+)\.(\d+)", printed.strip()) if printed else None
    return int(match[1]) * 1000 + int(match[2].ljust(3, "0")) if match else None


def _enabled(printed: str | None) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get((printed or "").strip("[]"))
