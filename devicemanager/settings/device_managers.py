"""How device managers are read: a part of the settings of ``devicemanager worker`` and ``instance-metrics``."""

from collections.abc import Iterator
from typing import Annotated

from typing_extensions import override

from devicemanager.settings.flags import Conflict, FlagSpec, Settings
from devicemanager.settings.values import ExistingDirectory, ExistingFile, ObjectName


class DeviceManagerSettings(Settings):
    """Where device managers are, and how they and we know each other."""

    device_manager_namespace: Annotated[ObjectName, FlagSpec("Namespace of the device managers.", "NAMESPACE")] = (
        "gpustack-system"
    )
    device_manager_ca_file: Annotated[
        ExistingFile,
        FlagSpec(
            "Certificates of the authorities that device managers' certificates come from, followed while running.",
            "PATH",
            default="device managers are not read",
        ),
    ] = None
    device_manager_client_cert_dir: Annotated[
        ExistingDirectory,
        FlagSpec("Directory with tls.crt and tls.key to show to device managers, followed while running.", "PATH"),
    ] = None
    device_manager_server_name: Annotated[
        str | None,
        FlagSpec("Name that device managers' certificates carry.", "NAME", default="the pod's address"),
    ] = None

    @property
    def reads_device_managers(self) -> bool:
        """Whether device managers can be verified, or need not be."""
        return self.device_manager_ca_file is not None

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.device_manager_client_cert_dir is not None and not self.reads_device_managers:
            yield Conflict(
                ("device_manager_client_cert_dir", "device_manager_ca_file"),
                "--device-manager-client-cert-dir: needs --device-manager-ca-file, or nobody is shown it",
            )
