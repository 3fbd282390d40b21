"""The one use case: from a namespace and a name to what that Instance uses now."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from devicemanager.clock import Clock
from devicemanager.worker.outcomes import ListResult, Outcome, Reader, Unavailable


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that each part of a read may take.

    Attributes:
        whole_s: Everything, where the caller names no shorter time.
        api_s: Reading the Instance and its pod.
        kubelet_s: One kubelet read, counted from when the pod is known.
        device_manager_s: One snapshot, likewise, in parallel.
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


class InstanceReader(Reader):
    """Joins the sources. Under construction: the signatures are final."""

    def __init__(self, clock: Clock, deadlines: Deadlines = DEADLINES) -> None:
        self._clock = clock
        self._deadlines = deadlines

    @override
    async def read(self, namespace: str, name: str, *, deadline_s: float | None = None) -> Outcome:
        return Unavailable("not built yet")

    @override
    async def list(self, namespace: str | None = None, *, deadline_s: float | None = None) -> ListResult:
        return Unavailable("not built yet")
