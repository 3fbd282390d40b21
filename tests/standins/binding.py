"""Python modules called ``pynvml`` that are not the one we are written for, in folders for PYTHONPATH.

They stand in for what older releases and another distribution install. Their calls are those of the real module,
less what they never had.
"""

from pathlib import Path

import pynvml

NEWER_NAMES = (
    "nvmlMemory_v2",
    "nvmlDeviceGetTemperatureV",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetRemappedRows",
    "NVMLLibraryMismatchError",
)
"""Names that the stand-in for an old release lacks."""

_REAL = f"""
import sys
from importlib.util import module_from_spec, spec_from_file_location

_spec = spec_from_file_location("real_pynvml", {pynvml.__file__!r})
_real = module_from_spec(_spec)
sys.modules["real_pynvml"] = _real
_spec.loader.exec_module(_real)
_left_out = {NEWER_NAMES!r}
_names = [name for name in vars(_real) if name not in _left_out and not name.startswith("__")]
globals().update({{name: getattr(_real, name) for name in _names}})


def nvmlDeviceGetMemoryInfo(handle):
    return _real.nvmlDeviceGetMemoryInfo(handle)
"""

_BYTES = """

def nvmlDeviceGetUUID(handle):
    return _real.nvmlDeviceGetUUID(handle).encode()


def nvmlDeviceGetName(handle):
    return _real.nvmlDeviceGetName(handle).encode()
"""


def older_release(folder: Path) -> Path:
    """As ``nvidia-ml-py`` 11.450.51 installs it: one file."""
    return _installed(folder, "nvidia_ml_py-11.450.51", "pynvml.py", _REAL)


def other_distribution(folder: Path) -> Path:
    """As the distribution ``pynvml`` once installed it: a package, and text as bytes."""
    return _installed(folder, "pynvml-8.0.4", "pynvml/__init__.py", _REAL + _BYTES)


def something_else(folder: Path, text: str = "answer = 42\n") -> Path:
    """A module that only has the name, and was copied there."""
    return _installed(folder, None, "pynvml.py", text)


def _installed(folder: Path, records: str | None, file: str, text: str) -> Path:
    module = folder / file
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(text, encoding="utf-8")
    if records is not None:
        (folder / f"{records}.dist-info").mkdir()
        (folder / f"{records}.dist-info" / "RECORD").write_text(f"{file},sha256=x,1\n", encoding="utf-8")
    return folder
