"""How long a read may take, and how much of that is left."""

import asyncio
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that each part of a read may take.

    Attributes:
        whole_s: Everything, where the caller names no shorter time.
        api_s: Reading the Instance and its pod.
        kubelet_s: One kubelet, counted from when the pod is known.
        device_manager_s: One device manager, likewise, in parallel.
        hedge_s: How long the kubelet may be silent before metrics.k8s.io is asked too.
        fallback_s: What metrics.k8s.io always has.
    """

    whole_s: float = 10.0
    api_s: float = 5.0
    kubelet_s: float = 4.0
    device_manager_s: float = 3.0
    hedge_s: float = 2.0
    fallback_s: float = 3.0


DEADLINES: Final = Deadlines()


class Countdown:
    """Time that is left, from now on, by the running loop's clock."""

    def __init__(self, whole_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends_s = self._loop.time() + whole_s

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._ends_s - self._loop.time())

    @property
    def over(self) -> bool:
        """Whether no time is left; less than 1 ms counts as none, because a loop may wake up early."""
        return self.left_s <= 0.001

    def at_most(self, part_s: float) -> float:
        """Seconds for a part with a limit of its own."""
        return min(part_s, self.left_s)
