"""Every kind of workload that is served, in the order in which discovery lists them."""

from pkgutil import resolve_name
from typing import Final

from devicemanager.worker.workloads.workload import Workload

_KINDS: Final = (
    "instance.workload:INSTANCE",
)  # fmt: skip
"""One line per kind: where its :class:`Workload` is, below this package."""

WORKLOADS: Final[tuple[Workload, ...]] = tuple(resolve_name(f"{__package__}.{kind}") for kind in _KINDS)
