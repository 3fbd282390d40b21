"""How the worker reaches kubelets: a part of the settings of ``devicemanager worker``."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator
from typing_extensions import override

from devicemanager.rules.object_names import is_name
from devicemanager.settings.flags import Conflict, FlagSpec, Settings
from devicemanager.settings.values import ExistingFile, Seconds, between, checked, names
from devicemanager.wire.nodes import AddressType

NODE_NAME: Final = "{node}"
"""Stands for the node's name in the name that a kubelet's certificate must carry."""


class KubeletMode(StrEnum):
    """How kubelets are reached."""

    PROXY = "proxy"
    DIRECT = "direct"


def _server_name_problem(value: str | None) -> str | None:
    if value is None or is_name(value.replace(NODE_NAME, "node")):
        return None
    return f"must be a DNS name in lower case, in which {NODE_NAME} stands for the node's name"


class KubeletSettings(Settings):
    """How a kubelet is reached, and whose certificate it must show."""

    kubelet_mode: Annotated[
        KubeletMode,
        FlagSpec(
            "How to reach kubelets: proxy goes through the API server and needs the right to nodes/proxy; "
            "direct goes to each node's address and needs nodes and nodes/stats.",
            "proxy|direct",
        ),
    ] = KubeletMode.PROXY
    kubelet_preferred_address_types: Annotated[
        tuple[AddressType, ...],
        BeforeValidator(names),
        AfterValidator(checked(lambda value: None if value else "must name at least one type")),
        FlagSpec("Types of a Node's addresses, tried in this order; direct mode only.", "TYPE,..."),
    ] = (AddressType.INTERNAL_IP, AddressType.HOSTNAME, AddressType.EXTERNAL_IP)
    kubelet_certificate_authority: Annotated[
        ExistingFile,
        FlagSpec(
            "Certificates of the authorities that kubelets' certificates come from, followed while running; direct "
            "mode only.",
            "PATH",
            default="the cluster's, from the service account",
        ),
    ] = None
    kubelet_server_name: Annotated[
        str | None,
        AfterValidator(checked(_server_name_problem)),
        FlagSpec(
            f"Name that a kubelet's certificate carries, in which {NODE_NAME} stands for the node's name; "
            "direct mode only.",
            "NAME",
            default="the address dialled",
        ),
    ] = None
    kubelet_insecure_skip_verify: Annotated[
        bool,
        FlagSpec(
            "Do not verify kubelets' certificates, and show them the worker's token; direct mode only. For "
            "kubelets with self-signed certificates."
        ),
    ] = False
    kubelet_max_age: Annotated[
        Seconds,
        between(0, 60),
        FlagSpec("How long a kubelet's answer is shared with later readers; 0s reads each time.", "DURATION"),
    ] = 15.0

    @property
    def reads_kubelets_directly(self) -> bool:
        """Whether kubelets are reached at their own addresses."""
        return self.kubelet_mode is KubeletMode.DIRECT

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        given = {
            "kubelet_certificate_authority": self.kubelet_certificate_authority is not None,
            "kubelet_server_name": self.kubelet_server_name is not None,
            "kubelet_insecure_skip_verify": self.kubelet_insecure_skip_verify,
        }
        for name in [name for name, is_given in given.items() if is_given]:
            flag = f"--{name.replace('_', '-')}"
            if not self.reads_kubelets_directly:
                yield Conflict(
                    (name, "kubelet_mode"),
                    f"{flag}: has no effect with --kubelet-mode={self.kubelet_mode}; "
                    "drop it, or give --kubelet-mode=direct",
                )
            elif self.kubelet_insecure_skip_verify and name != "kubelet_insecure_skip_verify":
                yield Conflict(
                    ("kubelet_insecure_skip_verify", name),
                    f"--kubelet-insecure-skip-verify: would make {flag} pointless; drop one of them",
                )
