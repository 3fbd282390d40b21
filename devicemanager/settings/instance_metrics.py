"""The settings of ``devicemanager instance-metrics``."""

from pathlib import Path
from typing import Annotated

from devicemanager.settings.device_managers import DeviceManagerSettings
from devicemanager.settings.flags import FlagSpec
from devicemanager.settings.output import OutputSettings
from devicemanager.settings.values import ObjectName, Seconds, between
from devicemanager.settings.worker import DEFAULT_API_GROUP, ApiGroup

DEFAULT_KUBECONFIG = "~/.kube/config"


class InstanceMetricsSettings(DeviceManagerSettings, OutputSettings):
    """`devicemanager instance-metrics`: one Instance's current sample."""

    name: Annotated[ObjectName, FlagSpec("The Instance.", "NAME", positional=True)]
    namespace: Annotated[
        ObjectName | None,
        FlagSpec("Its namespace.", "NAMESPACE", short="n", default="the context's, else `default`"),
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
        ApiGroup,
        FlagSpec("API group of the worker, which is asked first.", "GROUP"),
    ] = DEFAULT_API_GROUP
    timeout: Annotated[Seconds, between(0.1, 60), FlagSpec("How long the whole answer may take.", "DURATION")] = (
        10.0
    )

    @property
    def kubeconfig_paths(self) -> str:
        """The kubeconfig's files with the home directory filled in."""
        return ":".join(str(Path(path).expanduser()) for path in self.kubeconfig.split(":") if path)
