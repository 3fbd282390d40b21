"""The keys that are read of a kubelet's summary, as typed decoding takes them."""

import msgspec


class PodRef(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Cpu(msgspec.Struct, gc=False, rename="camel"):
    time: str | None = None
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None


class Memory(msgspec.Struct, gc=False, rename="camel"):
    time: str | None = None
    working_set_bytes: int | None = None
    usage_bytes: int | None = None
    rss_bytes: int | None = None


class NodeMemory(msgspec.Struct, gc=False, rename="camel"):
    available_bytes: int | None = None
    working_set_bytes: int | None = None


class Disk(msgspec.Struct, gc=False, rename="camel"):
    time: str | None = None
    used_bytes: int | None = None


class Container(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    start_time: str | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    rootfs: Disk | None = None


class UnreadableContainer(Container, gc=False):
    """An entry of a container that cannot be read: it makes every sum of the pod absent."""


class Pod(msgspec.Struct, gc=False, rename="camel"):
    pod_ref: PodRef | None = None
    start_time: str | None = None
    containers: list[Container] | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    ephemeral_storage: Disk | None = msgspec.field(default=None, name="ephemeral-storage")


class Node(msgspec.Struct, gc=False, rename="camel"):
    node_name: str | None = None
    cpu: Cpu | None = None
    memory: NodeMemory | None = None
