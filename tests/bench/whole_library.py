"""The stand-in with every symbol that nvidia-ml-py knows: peers call far more of the library than we do.

What the stand-in itself has not is answered NOT_SUPPORTED, but for the few answers without which a peer gives up.
"""

import ctypes
import importlib.util
import re
from pathlib import Path
from typing import Final

from tests.standins import build

_SYMBOL: Final = re.compile(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)')
_ANSWERED: Final = {
    "nvmlSystemGetCudaDriverVersion": "(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }",
    "nvmlDeviceGetCudaComputeCapability": "(void *card, int *major, int *minor) "
    "{ (void)card; *major = 9; *minor = 0; return 0; }",
    "nvmlDeviceGetNumGpuCores": "(void *card, unsigned *cores) { (void)card; *cores = 16896; return 0; }",
}


def whole_library(folder: Path) -> Path:
    """The folder of a compiled ``libnvidia-ml.so.1``, for LD_LIBRARY_PATH."""
    binding = importlib.util.find_spec("pynvml")
    if binding is None or binding.origin is None:
        raise ModuleNotFoundError("nvidia-ml-py is not installed", name="pynvml")
    known = set(_SYMBOL.findall(Path(binding.origin).read_text(encoding="utf-8")))
    there = ctypes.CDLL(str(build.nvml_library()))
    missing = sorted(symbol for symbol in known if not hasattr(there, symbol))
    text = "".join(
        f"int {symbol}{_ANSWERED.get(symbol, '(void) { return NOT_SUPPORTED; }')}\n" for symbol in missing
    )
    source = folder / "whole_nvml.c"
    source.write_text(f'#include "{Path(build.__file__).parent / "nvml.c"}"\n{text}', encoding="ascii")
    return build.shared_library(source, "libnvidia-ml.so.1", folder).parent
