"""Writes what the stand-in ``libnvidia-ml.so.1`` (``nvml.c``, which describes the format) answers.

A :class:`Scenario` is text in the making and knows no path; an :class:`NvmlStandin` is a folder in which one plays.
Playing another one takes effect in running processes within a millisecond.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.standins.build import nvml_library

Value = int | float | str | bytes

GIB = 1 << 30
MIB = 1 << 20


class Scenario:
    """What the library says and does.

    Args:
        cards: How many cards the library counts. They answer nothing until they are given values.
    """

    def __init__(self, cards: int = 0) -> None:
        self.count = cards
        self._claimed: int | None = None
        self._driver = "590.48.01"
        self._values: dict[str, str] = {}
        self._calls: list[str] = []

    @classmethod
    def healthy(cls, cards: int = 2) -> Self:
        """Cards that answer everything, each with figures of its own; see :func:`healthy_card`."""
        scenario = cls(cards)
        for index in range(cards):
            scenario.card(index, **healthy_card(index))
        return scenario

    def counting(self, cards: int) -> Self:
        """Let the library count another number of cards."""
        self.count = cards
        return self

    def claiming(self, count: int) -> Self:
        """Let the library say that it counts so many cards, whatever is true."""
        self._claimed = count
        return self

    def driver(self, version: str) -> Self:
        """The driver's version."""
        self._driver = version
        return self

    def card(self, index: int, **values: Value | None) -> Self:
        """Set values of a card; None takes one away, so that it is not supported."""
        return self._set(f"card {index}", values)

    def field(self, index: int, field: int, value: int | None) -> Self:
        """Set a value for ``nvmlDeviceGetFieldValues``."""
        return self._set(f"card {index}", {f"field {field}": value})

    def mig(self, index: int, slot: int, **values: Value | None) -> Self:
        """Set values of the MIG device in a slot of a card. Slots without a ``uuid`` are holes."""
        return self._set(f"mig {index} {slot}", values)

    def call(
        self,
        function: str,
        target: int | str = "*",
        *,
        code: int | None = None,
        delay_ms: int | None = None,
        busy_us: int | None = None,
        hang: bool = False,
        crash: signal.Signals | None = None,
        prints: str | None = None,
    ) -> Self:
        """What happens when a function is called for a target; what was said before is overridden action by action.

        Args:
            function: The C symbol, or ``*`` for all.
            target: A card's index, ``<index>/<slot>``, ``*`` for any, ``-`` for calls without a card.
            code: What the call returns.
            delay_ms: Sleep that long first.
            busy_us: Use that much processor time first.
            hang: Never return.
            crash: Die of this signal.
            prints: Write this to standard output first.
        """
        actions: dict[str, object] = {"code": code, "delay_ms": delay_ms, "busy_us": busy_us}
        if hang:
            actions["hang"] = 1
        if crash is not None:
            actions["crash"] = int(crash)
        if prints is not None:
            actions["print"] = "".join(f"\\x{byte:02x}" for byte in prints.encode())
        said = " ".join(f"{name}={value}" for name, value in actions.items() if value is not None)
        self._calls.append(f"call {function} {target} {said}")
        return self

    def as_it_was(self) -> Self:
        """Take back every :meth:`call`."""
        self._calls.clear()
        return self

    def text(self) -> str:
        """The scenario file."""
        values = [f"{key} {value}" for key, value in self._values.items()]
        claim = [] if self._claimed is None else [f"count {self._claimed}"]
        lines = [f"cards {self.count}", *claim, f"driver {self._driver}", *values, *self._calls]
        return "\n".join(lines) + "\n"

    def _set(self, device: str, values: Mapping[str, Value | None]) -> Self:
        for key, value in values.items():
            if value is None:
                self._values.pop(f"{device} {key}", None)
            else:
                self._values[f"{device} {key}"] = _written(value)
        return self


class NvmlStandin:
    """A folder from which processes load the stand-in and read its scenario.

    Args:
        folder: Existing, for the scenario and the list of calls.
    """

    def __init__(self, folder: Path) -> None:
        self._scenario = folder / "nvml-scenario"
        self._calls = folder / "nvml-calls"
        self._library = nvml_library()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to load the stand-in in place of the vendor's library."""
        return {
            "LD_LIBRARY_PATH": str(self._library.parent),
            "NVML_STANDIN_SCENARIO": str(self._scenario),
            "NVML_STANDIN_CALLS": str(self._calls),
        }

    def play(self, scenario: Scenario) -> None:
        """Put a scenario in place of the one that plays, whole or not at all."""
        new = self._scenario.with_suffix(".new")
        new.write_text(scenario.text(), encoding="ascii")
        os.replace(new, self._scenario)

    def calls(self) -> list[tuple[str, str]]:
        """Function and target of every call so far, over all processes."""
        if not self._calls.exists():
            return []
        function_and_target = (line.split(" ", 1) for line in self._calls.read_text(encoding="ascii").splitlines())
        return [(function, target) for function, target in function_and_target]


def healthy_card(index: int) -> dict[str, Value]:
    """Values of one card that answers everything, an invented 80 GiB board. They differ from card to card."""
    return {
        "uuid": f"GPU-{index:08x}-aaaa-bbbb-cccc-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3",
        "serial": f"16530{index:08d}",
        "pci": f"00000000:{0x1B + index:02X}:00.0",
        "minor": index,
        "architecture": 9,
        "total": 80 * GIB,
        "used": (index + 1) * 3 * GIB + 5,
        "reserved": 512 * MIB,
        "gpu": 10 + index,
        "memory": 5 + index,
        "temperature": 40 + index,
        "power": 120_500 + 1000 * index,
        "limit": 700_000,
        "clocks": 0,
        "energy": 3_600_000,
        "ecc": 1,
        "ecc_uncorrected": 0,
        "ecc_corrected": 0,
        "remapped_pending": 0,
        "remapped_failure": 0,
        "processes": f"{4000 + index}:{GIB}",
        "process_samples": f"{4000 + index}:{10 + index}:3",
        "mig": 0,
        "mig_max": 7,
        "gpm": 0,
    }


def _written(value: Value) -> str:
    """Plain ASCII as it is, everything else escaped byte by byte."""
    if isinstance(value, int | float):
        return str(value)
    raw = value.encode() if isinstance(value, str) else value
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in raw)
