"""The API server's address and our credentials, from a service account or a kubeconfig.

A service account is two files and two variables. A kubeconfig is read as kubectl reads it; a program or an identity
provider that it names is asked through the official ``kubernetes`` package.
Everything here blocks, so the cluster client calls it in a thread.
"""

import os
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from typing_extensions import override
from yarl import URL

from devicemanager.errors import DocumentError, SettingsError, excerpt
from devicemanager.rules import proxies
from devicemanager.tls.material import Pair, TrustedCAs, client_context
from devicemanager.worker import credential_plugins, kubeconfig

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's token and the cluster's CA."""

PLUGIN_DEADLINE_S: Final = 30.0
"""For an exec plugin or auth provider of a kubeconfig, which may ask a remote identity provider."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach the API server.

    Attributes:
        server: Base URL.
        authorization: Value of the header, or None where a client certificate or nothing is used. Never printed.
        tls: None for a plain-HTTP server.
        server_hostname: The name to verify where the kubeconfig gives one.
        proxy: From the kubeconfig, or from the environment of a command.
        impersonation: Headers that make us act as another user.
    """

    server: URL
    authorization: str | None = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    server_hostname: str | None = None
    proxy: URL | None = None
    impersonation: tuple[tuple[str, str], ...] = ()


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
                tls=self._contexts.of(ca=(self._folder / "ca.crt").read_bytes()),
            )
        except FileNotFoundError as error:
            raise SettingsError([f"service account: {error.filename} does not exist"]) from error
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise SettingsError([f"service account in {self._folder}: {_why(error)}"]) from error


def _why(error: Exception) -> str:
    """The system's message with the file's name, without its number; else what the error says."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return excerpt(f"{error.filename}: {error.strerror}")
    return excerpt(str(error) or type(error).__name__)


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
        environment: Names the proxies to go through, where the kubeconfig names none.
        left_s: Seconds that reading may still take, for a program or an identity provider that it asks.
    """

    def __init__(
        self,
        paths: str,
        context: str | None = None,
        *,
        environment: Mapping[str, str] = MappingProxyType({}),
        left_s: Callable[[], float] = lambda: PLUGIN_DEADLINE_S,
    ) -> None:
        self._paths = paths
        self._context = context
        self._environment = environment
        self._left_s = left_s
        self._contexts = _Contexts()

    @override
    def load(self) -> Credentials:
        try:
            return self._credentials(self._selected())
        except (DocumentError, ValueError, OSError) as error:  # ssl.SSLError is an OSError
            raise self._refused(error) from error

    def namespace(self) -> str:
        """The namespace that the context names; ``default`` where it names none, as kubectl takes it. Blocks.

        Raises:
            SettingsError: The files cannot be read, or have no such context.
        """
        try:
            return self._selected().namespace
        except (DocumentError, ValueError, OSError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> SettingsError:
        return SettingsError([f"kubeconfig {self._paths}: {_why(error)}"])

    def _selected(self) -> kubeconfig.Selected:
        files = [Path(path).expanduser() for path in self._paths.split(os.pathsep) if path]
        return kubeconfig.select(kubeconfig.merge(files), self._context)

    def _credentials(self, selected: kubeconfig.Selected) -> Credentials:
        cluster, user = selected.cluster, selected.user
        server = _url(kubeconfig.text(cluster, "server"), "server")
        if server.user is not None or server.password is not None:
            raise ValueError("server must hold no user name and no password")
        authorization, pair, tls = None, None, None
        if server.scheme == "https":  # what can be read on the way is shown no credential
            authorization, pair = self._identity(user)
            tls = self._contexts.of(
                ca=kubeconfig.bytes_of(cluster, "certificate-authority"),
                pair=pair,
                verify=cluster.get("insecure-skip-tls-verify") is not True,
            )
        return Credentials(
            server=server,
            authorization=authorization,
            tls=tls,
            server_hostname=kubeconfig.text(cluster, "tls-server-name") or None,
            proxy=self._proxy(server, kubeconfig.text(cluster, "proxy-url")),
            impersonation=kubeconfig.impersonation(user),
        )

    def _identity(self, user: kubeconfig.Entry) -> tuple[str | None, tuple[bytes, bytes] | None]:
        """The header and the certificate with its key that say who we are; None each where there is none."""
        certificate, key = (kubeconfig.bytes_of(user, f"client-{part}") for part in ("certificate", "key"))
        if (certificate is None) is not (key is None):
            raise ValueError("client-certificate and client-key need each other")
        pair = None if certificate is None or key is None else (certificate, key)
        authorization = _static(user)
        deadline_s = max(0.0, min(PLUGIN_DEADLINE_S, self._left_s()))
        if authorization is None and isinstance(user.get("exec"), dict):
            status = credential_plugins.exec_credential(user["exec"], deadline_s)  # type: ignore[arg-type]
            if token := kubeconfig.text(status, "token"):
                authorization = f"Bearer {token}"
            if certificate_data := kubeconfig.text(status, "clientCertificateData"):
                pair = certificate_data.encode(), kubeconfig.text(status, "clientKeyData").encode()
        elif authorization is None and user.get("auth-provider"):
            authorization = credential_plugins.provider_authorization(user, deadline_s)
        return _authorization(authorization), pair

    def _proxy(self, server: URL, named: str) -> URL | None:
        what = "proxy-url"
        if not named and server.host is not None and server.port is not None:
            what = f"{server.scheme.upper()}_PROXY"
            named = proxies.proxy_of(server.scheme, server.host, server.port, self._environment) or ""
        return _url(named, what) if named else None


def _static(user: kubeconfig.Entry) -> str | None:
    """The credential that the file itself holds, or a file that it names; None for none."""
    token, token_file = kubeconfig.text(user, "token"), kubeconfig.text(user, "tokenFile")
    if token_file:
        written = Path(token_file).read_text()
        if not written.strip() and not token:
            raise ValueError(f"tokenFile {token_file} is empty")
        token = written if written.strip() else token
    if token:
        return f"Bearer {token}"
    name, password = kubeconfig.text(user, "username"), kubeconfig.text(user, "password")
    return f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}" if name or password else None


def _url(written: str, what: str) -> URL:
    """An http or https URL; the error does not repeat it, because it may hold a password."""
    try:
        url = URL(written)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"{what} is no http or https URL")
    return url


class _Contexts:
    """Keeps one TLS context while what it is made of stays the same, so that connections survive a re-reading."""

    def __init__(self) -> None:
        self._made_of: tuple[object, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def of(
        self, *, ca: bytes | None, pair: tuple[bytes, bytes] | None = None, verify: bool = True
    ) -> ssl.SSLContext:
        """A context that trusts an authority (None: those of the system) and shows a certificate (None: none).

        Raises:
            ValueError: What is given cannot be used.
        """
        made_of = (verify, ca, pair)
        if self._context is None or made_of != self._made_of:
            cas = None if ca is None else TrustedCAs.parse(ca)
            self._context = client_context(cas, None if pair is None else Pair.parse(*pair), verify=verify)
            self._made_of = made_of
        return self._context


def _authorization(value: str | None) -> str | None:
    """``Bearer …`` or ``Basic …`` with the white space that files end in stripped."""
    if value is None:
        return None
    scheme, _, secret = value.strip().partition(" ")
    secret = secret.strip()
    if not secret or not secret.isascii() or any(c.isspace() or not c.isprintable() for c in secret):
        raise ValueError("the token is empty or holds characters that no token has")
    return f"{scheme.capitalize()} {secret}"
