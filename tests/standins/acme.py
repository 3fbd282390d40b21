"""A made-up vendor library and its module, for tests of the code that all vendors share.

The library counts its cards anew at every call, wants its handles freed, and has codes and units of its own: memory
in KiB, temperatures in tenths of a degree, power in watts. What it answers is a :class:`Script`: an object within a
test, a file for a collector process, which finds the vendor's module by its entry point.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from collectors.base import LibraryCollector
from collectors.codes import ErrorCodes, Fault
from collectors.device import Device
from collectors.vendor_library import CallNames, Health
from devicemanager.model.accelerator import CollectorState, Reason, Versions

OK: Final = 0
NO_SUCH_FIGURE: Final = -1
FORBIDDEN: Final = -2
BUSY: Final = -3
FAILED: Final = -4
DAMAGED: Final = -5
GONE: Final = -6
NO_DRIVER: Final = -7
NOBODY_KNOWS: Final = -8
NAMELESS: Final = -77

CODES: Final = ErrorCodes(
    names={
        NO_SUCH_FIGURE: "NO_SUCH_FIGURE",
        FORBIDDEN: "FORBIDDEN",
        BUSY: "BUSY",
        FAILED: "FAILED",
        DAMAGED: "DAMAGED",
        GONE: "GONE",
        NO_DRIVER: "NO_DRIVER",
        NOBODY_KNOWS: "NOBODY_KNOWS",
    },
    faults={
        NO_SUCH_FIGURE: Fault.UNSUPPORTED,
        FORBIDDEN: Fault.PERMISSION,
        BUSY: Fault.BUSY,
        DAMAGED: Fault.DEGRADED,
        GONE: Fault.LOST,
        NO_DRIVER: Fault.DRIVER,
        NOBODY_KNOWS: Fault.AMBIGUOUS,
    },
    states={NO_DRIVER: CollectorState.DRIVER_NOT_LOADED},
)

_SCRIPT: Final = "ACME_SCRIPT"


@dataclass
class Script:
    """What the library answers.

    Attributes:
        cards: One mapping a card: function -> answer.
        codes: ``"<function> <index>"`` -> code; ``*`` stands for any function or index, ``-`` for no card. Of those
            that fit, the one that was set last counts.
        absent: Functions that this release of the library lacks.
    """

    cards: list[dict[str, Any]] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @classmethod
    def healthy(cls, cards: int) -> "Script":
        """Cards that answer everything, each with figures of its own."""
        return cls([healthy_card(index) for index in range(cards)])

    def fail(self, function: str, index: int | str, code: int) -> None:
        """Set the code of a function."""
        self.codes.pop(f"{function} {index}", None)
        self.codes[f"{function} {index}"] = code


def healthy_card(number: int) -> dict[str, Any]:
    """One card that answers everything: 1 GiB of memory, ``number`` + 1 MiB in use, and 1 MiB reserved."""
    return {
        "uuid": f"ACME-{number}",
        "name": "Acme One",
        "address": f"0000000A:0{number}:00.0",
        "memory_exact": [1 << 20, (number + 1) << 10],
        "memory": [1 << 20, (number + 2) << 10],
        "load": 10 + number,
        "heat": 400 + 10 * number,
        "draw": 100 + number,
        "cracks": 0,
    }


class AcmeError(Exception):
    """The library refused."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False)
class Handle:
    """An open card; not to be used once it is freed."""

    index: int
    open: bool = True


class Acme:
    """The library. A function is an attribute; each call is written down.

    Args:
        script: What it answers now.
    """

    def __init__(self, script: Callable[[], Script]) -> None:
        self._script = script
        self.calls: list[tuple[str, int | str]] = []

    def init(self) -> None:
        self._called("init", "-")

    def shutdown(self) -> None:
        self._called("shutdown", "-")

    def count(self) -> int:
        return len(self._called("count", "-").cards)

    def handle(self, index: int) -> Handle:
        self._called("handle", index)
        return Handle(index)

    def free(self, handle: Handle) -> None:
        if not handle.open:
            raise RuntimeError("freed twice")
        handle.open = False
        self._called("free", handle.index)

    def __getattr__(self, function: str) -> Callable[[Handle], Any]:
        if function in self._script().absent:
            raise AttributeError(function)

        def call(handle: Handle) -> Any:
            if not handle.open:
                raise RuntimeError("used after it was freed")
            card = self._called(function, handle.index).cards[handle.index]
            if function not in card:
                raise AcmeError(NO_SUCH_FIGURE)
            return card[function]

        return call

    def _called(self, function: str, index: int | str) -> Script:
        self.calls.append((function, index))
        script = self._script()
        fitting = [f"{one} {other}" for one in (function, "*") for other in (index, *["*"] * (index != "-"))]
        if code := next((code for key, code in reversed(script.codes.items()) if key in fitting), OK):
            raise AcmeError(code)
        return script


class AcmeLibrary:
    """The vendor's module: calls, units and codes."""

    codes = CODES
    call_names = CallNames("acmeInit", "acmeCount", "acmeHandle")

    def __init__(self, acme: Acme) -> None:
        self.found: str | None = None
        self.found_fault: str | None = None
        self.versions = Versions()
        self.acme = acme

    def open(self) -> None:
        self.found = "libacme.so"
        self.acme.init()

    def close(self) -> None:
        self.acme.shutdown()

    def code_of(self, error: Exception) -> int | None:
        return error.code if isinstance(error, AcmeError) else None

    def count(self) -> int:
        return self.acme.count()

    def handle(self, index: int) -> Any:
        return self.acme.handle(index)

    def release(self, handle: Any) -> None:
        self.acme.free(handle)

    def uuid(self, handle: Any) -> Any:
        return self.acme.uuid(handle)

    def name(self, handle: Any) -> Any:
        return self.acme.name(handle)

    def serial(self, handle: Any) -> Any:
        return Reason.UNSUPPORTED

    def pci_address(self, handle: Any) -> Any:
        return self.acme.address(handle)

    def figures(self, device: Device) -> Mapping[str, Any]:
        acme = self.acme
        memory = device.query(
            "memory", lambda handle: acme.memory_exact(handle), lambda handle: acme.memory(handle), keep=True
        )
        total, used = (memory, memory) if isinstance(memory, Reason) else [1024 * kib for kib in memory]
        load = device.query("load", lambda handle: acme.average(handle), lambda handle: acme.load(handle))
        if isinstance(load, Reason) and device.ask("split", lambda handle: acme.split(handle)) is True:
            load = device.excuse("load", Reason.PARTITIONED)
        heat = device.query("heat", lambda handle: acme.heat(handle))
        draw = device.query("draw", lambda handle: acme.draw(handle))
        return {
            "memory_total": total,
            "memory_used": used,
            "compute_utilization": load,
            "temperature": heat if isinstance(heat, Reason) else heat // 10,
            "power_usage": draw if isinstance(draw, Reason) else draw * 1000,
        }

    def health(self, device: Device) -> Health:
        device.kept["readings"] = device.kept.get("readings", 0) + 1
        cracks = device.query("cracks", lambda handle: self.acme.cracks(handle))
        if isinstance(cracks, Reason):
            return Health(unread={"cracks": cracks})
        return Health([f"{cracks} cracks"] if cracks else ())


def collector() -> LibraryCollector:
    """The entry point: the library answers by the file that the environment names."""
    file = Path(os.environ[_SCRIPT])
    return LibraryCollector(AcmeLibrary(Acme(lambda: Script(**json.loads(file.read_text(encoding="utf-8"))))))


def play(script: Script, folder: Path) -> None:
    """Put a script in place of the one that plays for processes, whole or not at all."""
    (folder / "new").write_text(json.dumps(asdict(script)), encoding="utf-8")
    os.replace(folder / "new", folder / "script")


def install(folder: Path) -> dict[str, str]:
    """What a process needs in its environment to find the vendor, as if its package were installed."""
    records = folder / "acme_devicemanager-1.0.dist-info"
    records.mkdir()
    (records / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-devicemanager\nVersion: 1.0\n")
    (records / "entry_points.txt").write_text("[devicemanager.collectors]\nacme = tests.standins.acme:collector\n")
    root = Path(__file__).parents[2]
    return {"PYTHONPATH": f"{folder}:{root}", _SCRIPT: str(folder / "script")}
