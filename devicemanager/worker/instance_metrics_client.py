"""One Instance's sample for a user: from the worker's API if there is one, else read with the user's own rights.

The second way needs what the worker needs and, for the cards, a way to the device managers' pods and a client pair
that they accept (``docs/demo.md``). What is missing is said in ``sources``, as everywhere.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from typing_extensions import override

from devicemanager.clock import Clock, SystemClock
from devicemanager.errors import DocumentError, FetchError, SettingsError, excerpt
from devicemanager.rules import retries
from devicemanager.rules.object_names import is_name
from devicemanager.settings.instance_metrics import InstanceMetricsSettings
from devicemanager.settings.process import proxy_environment
from devicemanager.tls.identity import ClientIdentity
from devicemanager.tls.material import PairFiles
from devicemanager.wire import instance_metrics
from devicemanager.worker.client import ReadOptions, connect_reader
from devicemanager.worker.cluster import ClusterClient, object_path
from devicemanager.worker.credentials import Credentials, CredentialsSource, Kubeconfig
from devicemanager.worker.outcomes import Answer, DeadlineExceeded, NotFound, Outcome, Unavailable
from devicemanager.worker.workloads.instance.workload import INSTANCE
from devicemanager.worker.workloads.workload import API_VERSION

_NO_WORKER: Final = frozenset({404, 502, 503})
"""Answers of an API server if no backend serves the group, or none that answers."""

_UNAVAILABLE: Final = 503
_GATEWAY_TIMEOUT: Final = 504

_RETRYABLE: Final = retries.STATUSES - {_UNAVAILABLE, _GATEWAY_TIMEOUT}
"""A worker that has no figures, or no time, has said so: asking again would cost the time that is left."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An outcome, and how it was fetched.

    Attributes:
        directly: None when the worker's API answered; else why it did not, and the rest was read with the caller's
            own rights.
    """

    outcome: Outcome
    directly: str | None = None


async def fetch_usage(settings: InstanceMetricsSettings, clock: Clock | None = None) -> Fetched:
    """The sample from the worker's API; if nobody serves it, read from the sources.

    Raises:
        SettingsError: The kubeconfig or a certificate cannot be used.
        FetchError: The API server refused the caller, or cannot be reached.
    """
    clock = clock or SystemClock()
    ends_s = clock.monotonic() + settings.timeout

    def left_s() -> float:
        return max(0.1, ends_s - clock.monotonic())

    kubeconfig = Kubeconfig(
        settings.kubeconfig_paths, settings.context, environment=proxy_environment(), left_s=left_s
    )
    credentials = _ReadOnce(kubeconfig)
    namespace = settings.namespace
    if namespace is None:
        namespace = await asyncio.to_thread(kubeconfig.namespace)
    if not is_name(namespace):
        raise SettingsError(
            [f"kubeconfig: the context's namespace {excerpt(namespace)!r} is no name of a namespace"]
        )
    try:
        async with ClusterClient(credentials, clock) as cluster:
            return Fetched(await _from_worker(cluster, settings, namespace, left_s()))
    except FetchError as error:
        if error.status == _GATEWAY_TIMEOUT:
            return Fetched(DeadlineExceeded(str(error)))
        if error.says_missing(settings.name):
            # Somebody serves the group, and knows no such Instance; as Kubernetes says it, without the namespace.
            return Fetched(NotFound(f'{error} in namespace "{namespace}"'))
        if error.status == _UNAVAILABLE and error.reason:
            # A Status: a backend's own words. An API server without one that answers sends plain text.
            return Fetched(Unavailable(str(error)))
        if error.status not in _NO_WORKER:
            raise
        reason = str(error)
    except DocumentError as error:
        reason = str(error)
    options = ReadOptions(
        device_manager_tls=_device_manager_tls(settings, clock),
        device_manager_namespace=settings.device_manager_namespace,
        device_manager_server_name=settings.device_manager_server_name,
    )
    async with connect_reader(credentials, options) as reader:
        return Fetched(await reader.read(namespace, settings.name, deadline_s=left_s()), reason)


class _ReadOnce(CredentialsSource):
    """Credentials that are read once: an exec plugin may take a second, or ask a person for a password."""

    def __init__(self, source: CredentialsSource) -> None:
        self._source = source
        self._read: Credentials | None = None

    @override
    def load(self) -> Credentials:
        if self._read is None:
            self._read = self._source.load()
        return self._read


async def _from_worker(
    cluster: ClusterClient, settings: InstanceMetricsSettings, namespace: str, deadline_s: float
) -> Outcome:
    resource = INSTANCE.resource
    prefix = f"/apis/{settings.api_group}/{API_VERSION}/namespaces"
    path = object_path(prefix, namespace, resource.source.plural, settings.name, resource.subresource)
    params = {"timeout": f"{deadline_s:.1f}s"}
    received = await cluster.fetch(path, params, deadline_s=deadline_s, retryable=_RETRYABLE)
    usage = instance_metrics.parse(received.body)
    if usage.sample is None:
        return Unavailable(f"the worker answered without a sample of Instance {namespace}/{settings.name}")
    return Answer(usage)


def _device_manager_tls(settings: InstanceMetricsSettings, clock: Clock) -> Callable[[], ssl.SSLContext] | None:
    if settings.device_manager_ca_file is None:
        return None
    folder = settings.device_manager_client_cert_dir
    identity = ClientIdentity(
        settings.device_manager_ca_file,
        None if folder is None else PairFiles.in_directory(folder),
        clock=clock,
        log=structlog.get_logger().bind(),
    )
    return lambda: identity.context
