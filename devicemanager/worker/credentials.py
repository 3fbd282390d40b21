"""The API server's address and our credentials, from a service account or a kubeconfig.

A service account is two files and two variables. Kubeconfigs, exec plugins and OIDC included, are read by the
official ``kubernetes`` package, which is imported only then; nothing else of it is used.
Everything here blocks, so the cluster client calls it in a thread.
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
        environment: Names the server in ``KUBERNETES_SERVICE_HOST`` and ``KUBERNETES_SERVICE_PORT``.
        folder: Holds ``token`` and ``ca.crt``.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> None:
        self._environment = environment
        self._folder = folder
        self._contexts = _Contexts()

    @override
    def load(self) -> Credentials:
        host = self._environment.get("KUBERNETES_SERVICE_HOST")
        if not (self._folder.exists() and host):
            raise SettingsError(
                ["not in a cluster, and no --kubeconfig: one of the two says where the API server is"]
            )
        try:
            return Credentials(
                server=URL.build(scheme="https", host=host, port=_port(self._environment)),
                authorization=_authorization(f"Bearer {(self._folder / 'token').read_text()}"),
                tls=self._contexts.of(ca=self._folder / "ca.crt"),
            )
        except FileNotFoundError as error:
            raise SettingsError([f"service account: {error.filename} does not exist"]) from error
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise SettingsError([f"service account in {self._folder}: {excerpt(str(error))}"]) from error


def _port(environment: Mapping[str, str]) -> int:
    value = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not (value.isdecimal() and int(value) <= 65_535):
        raise ValueError(f"KUBERNETES_SERVICE_PORT={excerpt(value)} is no port")
    return int(value)


class Kubeconfig(CredentialsSource):
    """The credentials in a kubeconfig.

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

    def _refused(self, error: Exception) -> Exception:
        if isinstance(error, ModuleNotFoundError):
            return error  # it is the package that is missing, not the file that is wrong
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
            # The package logs a plugin's failure, with its message, and goes on without a credential.
            raise SettingsError(["its exec plugin gave no credential"])
        return configuration


class _PluginLoop(asyncio.SelectorEventLoop):
    """A loop that keeps its child processes, to end a plugin that took too long: the package leaves it running."""

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
        """Kills child processes that still run, and waits for them."""
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
    """Keeps one TLS context while its files stay the same, so that connections survive a re-reading."""

    def __init__(self) -> None:
        self._made_of: tuple[object, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def of(
        self, *, ca: Path | None, certificate: Path | None = None, key: Path | None = None, verify: bool = True
    ) -> ssl.SSLContext:
        """A context that trusts an authority (None: those of the system) and shows a certificate (None: none)."""
        made_of = (verify, *(None if file is None else file.read_bytes() for file in (ca, certificate, key)))
        if self._context is None or made_of != self._made_of:
            context = ssl.create_default_context(cafile=ca)
            # Python 3.13 demands extensions that the CAs of many clusters lack; Go, and so kubectl, never did.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if certificate is not None:
                context.load_cert_chain(certificate, key)
            if not verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._context, self._made_of = context, made_of
        return self._context


def _credentials(configuration: Any, contexts: _Contexts) -> Credentials:
    """What the package's configuration says."""
    server = URL(configuration.host)
    if server.scheme not in {"http", "https"} or not server.host:
        raise ValueError(f"server {excerpt(configuration.host)!r} is no http or https URL")
    ca, certificate, key = (
        Path(file) if file else None
        for file in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    )
    tls = None
    if server.scheme == "https":
        tls = contexts.of(ca=ca, certificate=certificate, key=key, verify=configuration.verify_ssl)
    return Credentials(
        server=server,
        authorization=_authorization(configuration.api_key.get("BearerToken")),
        tls=tls,
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
