"""The settings of ``devicemanager worker``."""

import re
from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import AfterValidator
from typing_extensions import override

from devicemanager.rules.object_names import is_name
from devicemanager.settings.device_managers import DeviceManagerSettings
from devicemanager.settings.flags import Conflict, FlagSpec
from devicemanager.settings.kubelet import KubeletSettings
from devicemanager.settings.output import LogSettings
from devicemanager.settings.server import SecurePort, ServerSettings
from devicemanager.settings.values import (
    Address,
    Seconds,
    between,
    checked,
)

DEFAULT_API_GROUP: Final = "worker.gpustack.ai"

_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_API_GROUP: Final = re.compile(rf"{_LABEL}(\.{_LABEL})+", re.ASCII)


def _group_problem(value: str) -> str | None:
    if _API_GROUP.fullmatch(value) is not None:
        return None
    return "must be the name of an API group with a dot in it, such as metrics.example.org"


def _service_problem(value: str | None) -> str | None:
    if value is None or [is_name(part) for part in value.split("/")] == [True, True]:
        return None
    return "must look like NAMESPACE/NAME"


ApiGroup = Annotated[str, AfterValidator(checked(_group_problem))]


class WorkerSettings(KubeletSettings, DeviceManagerSettings, ServerSettings, LogSettings):
    """`devicemanager worker`: the aggregated API server."""

    bind_address: Annotated[Address, FlagSpec("IP address to listen on; every caller is checked.", "ADDRESS")] = (
        "0.0.0.0"  # noqa: S104
    )
    secure_port: SecurePort = 10250
    kubeconfig: Annotated[
        str | None,
        FlagSpec(
            "Kubeconfig for the API server.",
            "PATH",
            default="the pod's own service account",
            also_from=("KUBECONFIG",),
        ),
    ] = None
    api_group: Annotated[
        ApiGroup,
        FlagSpec(
            "API group to serve. Beside the existing operator, which serves the default one, take another.",
            "GROUP",
        ),
    ] = DEFAULT_API_GROUP
    service: Annotated[
        str | None,
        AfterValidator(checked(_service_problem)),
        FlagSpec(
            "Service that reaches this worker; the group's APIService must not point at another.",
            "NAMESPACE/NAME",
            default="the APIService is not looked at",
        ),
    ] = None
    api_service_owner: Annotated[
        str | None,
        FlagSpec(
            "Label devicemanager.gpustack.ai/owner that the group's APIService must carry; needs --service.",
            "VALUE",
            default="the label is not looked at",
        ),
    ] = None
    take_over_api_service: Annotated[
        bool, FlagSpec("Serve the group even where its APIService points at another service.")
    ] = False
    shutdown_delay: Annotated[
        Seconds,
        between(0, 300),
        FlagSpec("How long to keep serving after a termination signal, so that clients move on first.", "DURATION"),
    ] = 0.0
    device_manager_insecure_skip_verify: Annotated[
        bool,
        FlagSpec("Do not verify the certificates of device managers. Only for the existing operator's."),
    ] = False
    snapshot_max_age: Annotated[
        Seconds,
        between(0, 60),
        FlagSpec(
            "How long a device manager's answer is shared with later readers; 0s reads each time.", "DURATION"
        ),
    ] = 1.0
    max_reads: Annotated[
        int,
        AfterValidator(checked(lambda value: None if 1 <= value <= 100_000 else "must be between 1 and 100000")),
        FlagSpec("Reads of Instances under way at most; beyond, requests are answered with 429.", "NUMBER"),
    ] = 400

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.device_manager_insecure_skip_verify and self.device_manager_ca_file is not None:
            yield Conflict(
                ("device_manager_insecure_skip_verify", "device_manager_ca_file"),
                "--device-manager-insecure-skip-verify: would make --device-manager-ca-file pointless; "
                "drop one of them",
            )
        if (
            self.reads_kubelets_directly
            and self.kubeconfig is not None
            and self.kubelet_certificate_authority is None
            and not self.kubelet_insecure_skip_verify
        ):
            yield Conflict(
                ("kubelet_mode", "kubeconfig", "kubelet_certificate_authority", "kubelet_insecure_skip_verify"),
                "--kubelet-mode=direct: with --kubeconfig there is no service account whose authority could be "
                "taken for kubelets; give --kubelet-certificate-authority",
            )
        if self.api_service_owner is not None and self.service is None:
            yield Conflict(
                ("api_service_owner", "service"),
                "--api-service-owner: needs --service, or the APIService is not looked at",
            )

    @property
    @override
    def reads_device_managers(self) -> bool:
        return super().reads_device_managers or self.device_manager_insecure_skip_verify
