"""The settings of ``devicemanager instance-metrics``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from typing_extensions import override

from devicemanager.settings.flags import Conflict, FlagSpec
from devicemanager.settings.output import LogLevel, LogSettings, OutputSettings
from devicemanager.settings.values import ExistingDirectory, ExistingFile, Seconds, between, checked
from devicemanager.settings.worker import DEFAULT_API_GROUP, group_problem

DEFAULT_KUBECONFIG = "~/.kube/config"


class InstanceMetricsSettings(OutputSettings, LogSettings):
    """`devicemanager instance-metrics`: one Instance's current sample."""

    name: Annotated[str, FlagSpec("The Instance.", "NAME", positional=True)]
    namespace: Annotated[
        str | None, FlagSpec("Its namespace.", "NAMESPACE", short="n", default="the context's, else `default`")
    ] = None
    kubeconfig: Annotated[
        str,
        FlagSpec(
            "Your kubeconfig; several files are joined by colons.",
            "PATH",
            also_from=("KUBECONFIG",),
        ),
    ] = DEFAULT_KUBECONFIG
    context: Annotated[str | None, FlagSpec("Context of the kubeconfig.", "NAME", default="the current one")] = None
    api_group: Annotated[
        str,
        AfterValidator(checked(group_problem)),
        FlagSpec("API group of the worker, which is asked first.", "GROUP"),
    ] = DEFAULT_API_GROUP
    device_manager_namespace: Annotated[
        str, FlagSpec("Namespace of the device managers, for reading without a worker.", "NAMESPACE")
    ] = "gpustack-system"
    device_manager_ca_file: Annotated[
        ExistingFile,
        FlagSpec(
            "Certificates of the authorities that device managers' certificates come from.",
            "PATH",
            default="without a worker, cards are not read",
        ),
    ] = None
    device_manager_client_cert_dir: Annotated[
        ExistingDirectory, FlagSpec("Directory with tls.crt and tls.key to show to device managers.", "PATH")
    ] = None
    device_manager_server_name: Annotated[
        str | None,
        FlagSpec("Name that device managers' certificates carry.", "NAME", default="the pod's address"),
    ] = None
    timeout: Annotated[Seconds, between(0.1, 60), FlagSpec("How long the whole answer may take.", "DURATION")] = (
        10.0
    )
    log_level: Annotated[LogLevel, FlagSpec("Least severe events to write.", "debug|info|warning|error")] = (
        LogLevel.ERROR
    )

    @property
    def kubeconfig_paths(self) -> str:
        """The kubeconfig's files with the home directory filled in."""
        return ":".join(str(Path(path).expanduser()) for path in self.kubeconfig.split(":") if path)

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.device_manager_client_cert_dir is not None and self.device_manager_ca_file is None:
            yield Conflict(
                ("device_manager_client_cert_dir", "device_manager_ca_file"),
                "--device-manager-client-cert-dir: needs --device-manager-ca-file, or nobody is shown it",
            )
