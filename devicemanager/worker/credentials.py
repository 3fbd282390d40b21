"""Where the API server is and who we are to it, from a service account or a kubeconfig.

The official ``kubernetes`` package reads both, exec plugins and OIDC included; nothing else of it is used, and it
is imported only when credentials are read. Everything here blocks, so the cluster client calls it in a thread.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from typing_extensions import override
from yarl import URL

from devicemanager.errors import SettingsError, excerpt

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's token and the cluster's CA."""

PLUGIN_DEADLINE_S: Final = 30.0
"""For reading a kubeconfig with the exec plugin it names: such a plugin may ask a remote identity provider."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach the API server.

    Attributes:
        server: Base URL.
        authorization: Value of the header, or None where a client certificate or nothing is used. Never printed.
        tls: None for a plain-HTTP server.
        server_hostname: The name to verify where the kubeconfig gives one.
        proxy: From the kubeconfig only.
    """

    server: URL
    authorization: str | None = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    server_hostname: str | None = None
    proxy: URL | None = None


class CredentialsSource(Protocol):
    """Something that can read credentials again and again."""

    def load(self) -> Credentials:
        """Reads them now. Blocks. Raises SettingsError with one sentence per problem."""
        ...


class ServiceAccount(CredentialsSource):
    """A pod's own credentials.

    Args:
        folder: Holds ``token`` and ``ca.crt``.
        environment: Names the server in ``KUBERNETES_SERVICE_HOST`` and ``_PORT``; None for the process's own.
    """

    def __init__(self, folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._environment = environment
        self._contexts = _Contexts()

    @override
    def load(self) -> Credentials:
        configuration = import_module("kubernetes.aio.client.configuration").Configuration()
        loader = import_module("kubernetes.aio.config.incluster_config").InClusterConfigLoader
        where = {} if self._environment is None else {"environ": self._environment}
        environment = os.environ if self._environment is None else self._environment  # noqa: TID251 - the kubelet's
        if not (self._folder.exists() and environment.get("KUBERNETES_SERVICE_HOST")):
            raise SettingsError(
                ["not in a cluster, and no --kubeconfig: one of the two says where the API server is"]
            )
        try:
            loader(str(self._folder / "token"), str(self._folder / "ca.crt"), **where).load_and_set(configuration)
            return _credentials(configuration, self._contexts)
        except Exception as error:  # the package raises whatever its reading trips over
            raise SettingsError([f"service account in {self._folder}: {excerpt(str(error))}"]) from error


class Kubeconfig(CredentialsSource):
    """The credentials of a person, or of anything else that has a kubeconfig.

    Args:
        paths: One file, or several joined as in ``KUBECONFIG``.
        context: None for the current one.
    """

    def __init__(self, paths: str, context: str | None = None) -> None:
        self._paths = paths
        self._context = context
        self._contexts = _Contexts()

    @override
    def load(self) -> Credentials:
        if not any(Path(path).expanduser().exists() for path in self._paths.split(os.pathsep)):
            raise SettingsError([f"kubeconfig {self._paths}: no such file"])  # the package would log that as well
        try:
            # A loop of its own: the package reads files on the loop that runs it.
            with asyncio.Runner(loop_factory=_PluginLoop) as runner:
                configuration = runner.run(self._read())
            return _credentials(configuration, self._contexts)
        except Exception as error:  # the package raises whatever its parsing trips over
            raise self._refused(error) from error

    def namespace(self) -> str:
        """The namespace that the context names; ``default`` where it names none, as kubectl takes it. Blocks.

        Raises:
            SettingsError: The files cannot be read, or have no such context.
        """
        try:
            _, loader = self._open()
            return str(loader.current_context["context"].get("namespace") or "default")
        except Exception as error:  # the package raises whatever its parsing trips over
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> SettingsError:
        return SettingsError([f"kubeconfig {self._paths}: {excerpt(str(error) or type(error).__name__)}"])

    def _open(self) -> tuple[Any, Any]:
        """The files as one, and the package's loader of its context."""
        kube_config = import_module("kubernetes.aio.config.kube_config")
        merged = kube_config.KubeConfigMerger(self._paths).config
        if merged is None:
            raise SettingsError(["no such file"])
        return merged, kube_config.KubeConfigLoader(merged, active_context=self._context, config_base_path=None)

    async def _read(self) -> Any:
        configuration = import_module("kubernetes.aio.client.configuration").Configuration()
        merged, loader = self._open()
        try:
            async with asyncio.timeout(PLUGIN_DEADLINE_S):
                await loader.load_and_set(configuration)
        except TimeoutError as error:
            raise SettingsError([f"its exec plugin did not answer within {PLUGIN_DEADLINE_S:.3g} s"]) from error
        finally:
            await _PluginLoop.end_children()
        if _names_plugin(merged, loader.current_context) and not (configuration.api_key or configuration.cert_file):
            # The package logs a plugin's failure and goes on as nobody; what the plugin said is in that log.
            raise SettingsError(["its exec plugin gave no credential"])
        return configuration


class _PluginLoop(asyncio.SelectorEventLoop):
    """A loop that knows the processes started on it: the package leaves a plugin running that took too long."""

    def __init__(self) -> None:
        super().__init__()
        self._children: list[asyncio.SubprocessTransport] = []

    @override
    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        transport, protocol = await super().subprocess_exec(*args, **kwargs)
        self._children.append(transport)
        return transport, protocol

    @classmethod
    async def end_children(cls) -> None:
        """Kills those that still run on the running loop, and collects them."""
        loop = asyncio.get_running_loop()
        running = (
            [each for each in loop._children if each.get_returncode() is None] if isinstance(loop, cls) else []
        )
        for transport in running:
            transport.kill()
        for transport in running:
            while transport.get_returncode() is None:  # noqa: ASYNC110 - a transport offers nothing to wait on
                await asyncio.sleep(0.01)
            transport.close()


def _names_plugin(merged: Any, context: Any) -> bool:
    user = context["context"].get("user")
    entries = (getattr(entry, "value", entry) for entry in merged.value["users"])
    return any(entry["name"] == user and "exec" in (entry.get("user") or {}) for entry in entries)


class _Contexts:
    """One TLS context as long as what it is made of stays the same, so that connections outlive a re-reading."""

    def __init__(self) -> None:
        self._made_of: tuple[object, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def of(self, configuration: Any) -> ssl.SSLContext:
        files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        made_of = (configuration.verify_ssl, *(Path(file).read_bytes() if file else None for file in files))
        if self._context is None or made_of != self._made_of:
            self._context = _context(configuration)
            self._made_of = made_of
        return self._context


def _context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 demands extensions that the CAs of many clusters lack; Go, and so kubectl, never asked for them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _credentials(configuration: Any, contexts: _Contexts) -> Credentials:
    server = URL(configuration.host)
    if server.scheme not in {"http", "https"} or not server.host:
        raise ValueError(f"server {excerpt(configuration.host)!r} is no http or https URL")
    return Credentials(
        server=server,
        authorization=_authorization(configuration.api_key.get("BearerToken")),
        tls=contexts.of(configuration) if server.scheme == "https" else None,
        server_hostname=configuration.tls_server_name or None,
        proxy=URL(configuration.proxy) if configuration.proxy else None,
    )


def _authorization(value: str | None) -> str | None:
    """``Bearer …`` or ``Basic …`` with the white space that files end in stripped."""
    if value is None:
        return None
    scheme, _, secret = value.strip().partition(" ")
    secret = secret.strip()
    if not secret or not secret.isascii() or any(c.isspace() or not c.isprintable() for c in secret):
        raise ValueError("the token is empty or holds characters that no token has")
    return f"{scheme.capitalize()} {secret}"
