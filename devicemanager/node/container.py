"""Ends the program if its container was created before the driver was loaded: only a new one can help.

The runtime mounts libraries and device files when it creates a container. One that was created too early never
gets them; the kubelet creates a new one when the program ends.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

from devicemanager.clock import Clock
from devicemanager.errors import ContainerOutdatedError
from devicemanager.node.blocking import BlockingCalls
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.rules.container import DriverFiles, lacking
from devicemanager.rules.duration import format_duration

LACKING_FOR_S = 300.0
"""An installer loads the module first and has libraries and device files in place minutes later."""

LOOK_EVERY_S = 15.0

_FILES_DEADLINE_S: Final = 2.0


class ContainerWatch:
    """Watches for a driver that was loaded after the container was created, until there is a sample."""

    def __init__(
        self,
        store: SnapshotStore,
        files: Callable[[str], DriverFiles | None],
        clock: Clock,
        *,
        lacking_for_s: float | None = None,
        look_every_s: float | None = None,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            store: For the manufacturer, the sample and the collector's state.
            files: What the container sees of a manufacturer's driver, None if nothing is known of it. Blocks.
            clock: Measures how long something is lacking.
            lacking_for_s: How long without a break until the program ends; None is :data:`LACKING_FOR_S`.
            look_every_s: Between two looks; None is :data:`LOOK_EVERY_S`.
        """
        self._store = store
        self._files = files
        self._reads = BlockingCalls("the driver's files")
        self._clock = clock
        self._lacking_for_s = LACKING_FOR_S if lacking_for_s is None else lacking_for_s
        self._look_every_s = LOOK_EVERY_S if look_every_s is None else look_every_s

    async def run(self) -> NoReturn:
        """Watch; for ever, once there was a sample.

        Raises:
            ContainerOutdatedError: The driver is loaded, and library or device files have been lacking for long.
        """
        since_s: float | None = None
        while True:
            await asyncio.sleep(self._look_every_s)  # first, because most containers have a sample by then
            if self._store.snapshot.sample is not None:
                await asyncio.get_running_loop().create_future()  # libraries and device files are there
            driver = await self._seen(self._store.snapshot.manufacturer)
            snapshot = self._store.snapshot
            what = lacking(snapshot.collector.state, driver, ever_sampled=snapshot.sample is not None)
            now_s = self._clock.monotonic()
            since_s = None if what is None else now_s if since_s is None else since_s
            if driver is not None and since_s is not None and now_s - since_s >= self._lacking_for_s:
                raise ContainerOutdatedError(
                    f"the kernel module {driver.module} is loaded, but for {format_duration(self._lacking_for_s)} "
                    f"this container has been without {what}: it was made before they were there. It ends, so "
                    "that it is made anew. If that does not help, let the container have them: the manufacturer's "
                    "runtime class, or the host mounts of the chart"
                )

    async def _seen(self, manufacturer: str) -> DriverFiles | None:
        try:
            return await self._reads.run(lambda: self._files(manufacturer), _FILES_DEADLINE_S)
        except OSError:  # TimeoutError is one
            return None
