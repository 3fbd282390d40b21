"""What whoever runs a bench may choose."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """For all benches.

    Attributes:
        rounds: Interleaved rounds of each comparison.
        peers_python: An interpreter with nvitop-exporter and gpustack-runtime; None compares with neither.
    """

    rounds: int = 5
    peers_python: Path | None = None
