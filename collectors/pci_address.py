"""Normalises PCI addresses of libraries and the kernel."""

import re
from typing import Final

_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII)


def normalise(address: str) -> str | None:
    """A PCI address as ``dddd:bb:dd.f`` in lower case, or None if it is none. NVML writes eight domain digits."""
    match = _ADDRESS.fullmatch(address.strip().lower())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    number = int(domain or "0", 16)
    return f"{number:04x}:{bus}:{device}.{function}"
