"""Every kind of workload that is served, in the order in which discovery lists them."""

from typing import Final

from devicemanager.worker.workloads.instance.workload import INSTANCE
from devicemanager.worker.workloads.workload import Workload

WORKLOADS: Final[tuple[Workload, ...]] = (
    INSTANCE,
)  # fmt: skip
