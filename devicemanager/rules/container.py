"""Whether a container was created before its driver was loaded, and lacks the driver's files."""

from dataclasses import dataclass

from devicemanager.model.accelerator import CollectorState


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """What this container sees of a manufacturer's kernel driver.

    Attributes:
        module: Name of the kernel module.
        loaded: Whether the kernel has it.
        device_node: Path of the device file without which the library cannot be used.
        node_present: Whether this container has it.
    """

    module: str
    loaded: bool
    device_node: str
    node_present: bool


def lacking(state: CollectorState, driver: DriverFiles | None, *, ever_sampled: bool) -> str | None:
    """What this container lacks although the driver is loaded; None if a new container would not help.

    Args:
        state: Of the collector.
        driver: None where nothing is known of it.
        ever_sampled: Whether cards were ever read, or counted as none, since the program started. What worked once
            in this container was there when it was made.
    """
    if ever_sampled or driver is None or not driver.loaded:
        return None
    if state is CollectorState.LIBRARY_MISSING:
        return "the manufacturer's library"
    return None if driver.node_present else driver.device_node
