"""Imports ``pynvml``, and tells which distribution it is from and what it lacks.

The module that we are written for comes with ``nvidia-ml-py``. Another distribution, ``pynvml``, once brought a
module of the same name, and a package wins over a module beside it. Older releases of either lack names that we
use. Without those, figures come from older calls or are absent, so each process reports what it found.
"""

import os
from dataclasses import dataclass
from typing import Any, Final

from devicemanager.errors import CollectorError, excerpt
from devicemanager.model.accelerator import CollectorState

DISTRIBUTION: Final = "nvidia-ml-py"

_NEEDED: Final = ("NVMLError", "nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
"""Without one of these there is nothing to read a card with."""

_USED: Final = (
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMemoryInfo",
    "nvmlMemory_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetFieldValues",
)


@dataclass(frozen=True, slots=True)
class Binding:
    """An imported module.

    Attributes:
        module: With at least what a card cannot be read without.
        name: Distribution, version and file, for a person.
        fault: What is unusual about it; None when it is what we are written for.
    """

    module: Any
    name: str
    fault: str | None


def load() -> Binding:
    """Import the module and look at it. The vendor's library is not loaded yet.

    Raises:
        CollectorError: ``failed``: there is no such module, or it is something else altogether. It is not
            ``library_missing``: the vendor's library is not looked for, and another container would change nothing.
    """
    try:
        import pynvml
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "pynvml":
            what = f"the Python package {DISTRIBUTION} is not installed"
        else:
            what = f"the Python module pynvml cannot be imported: {type(error).__name__}: {excerpt(str(error))}"
        raise CollectorError(CollectorState.FAILED, what) from error
    file = getattr(pynvml, "__file__", None)
    distribution, version = _installed_by(file) if file else (None, None)
    name = f"{distribution or 'pynvml'} {version or 'of unknown version'} ({file or 'no file'})"
    if lacking := [one for one in _NEEDED if not hasattr(pynvml, one)]:
        what = f"the Python module pynvml is not that of {DISTRIBUTION}: {name} lacks {', '.join(lacking)}"
        raise CollectorError(CollectorState.FAILED, what)
    return Binding(pynvml, name, _fault(pynvml, distribution))


def _fault(module: Any, distribution: str | None) -> str | None:
    faults = [] if distribution == DISTRIBUTION else [f"not known to be of {DISTRIBUTION}"]
    if lacking := [name for name in _USED if not hasattr(module, name)]:
        faults.append(f"lacks {', '.join(lacking)}: what needs them comes from older calls or is absent")
    return "; ".join(faults) or None


def _installed_by(file: str) -> tuple[str | None, str | None]:
    """Distribution and version by the installer's records beside the module; ``importlib.metadata`` costs 20 ms."""
    folder, own = os.path.split(file)
    if own == "__init__.py":
        folder, package = os.path.split(folder)
        own = f"{package}/{own}"
    try:
        beside = sorted(os.listdir(folder))
    except OSError:
        return None, None
    for records in beside:
        name, _, version = records.removesuffix(".dist-info").rpartition("-")
        name = name.replace("_", "-").lower()
        if name in (DISTRIBUTION, "pynvml") and _lists(f"{folder}/{records}/RECORD", f"{own},"):
            return name, version
    return None, None


def _lists(record: str, line_start: str) -> bool:
    try:
        with open(record, encoding="utf-8") as lines:
            return any(line.startswith(line_start) for line in lines)
    except (OSError, UnicodeDecodeError):
        return False
