"""The stand-in's half of API aggregation: what kube-apiserver does in front of an API server that is not its own.

Differences from the real aggregator, on purpose: discovery and OpenAPI are fetched when a client asks instead of
every minute, and the availability check runs when someone wants to know.
"""

import json
import ssl
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from devicemanager.demo.cluster.access import User
from devicemanager.demo.cluster.discovery import AGGREGATED_TYPE, GroupVersion
from devicemanager.demo.cluster.objects import VERSION_PRIORITY
from devicemanager.demo.cluster.selectors import JsonObject

AGGREGATOR_USER: Final = User("system:kube-aggregator", groups=("system:masters",))
OPENAPI_USER: Final = User("system:aggregator")
_DISCOVERY_DEADLINE_S: Final = 5.0
_REQUEST_DEADLINE_S: Final = 60.0

_HOP_BY_HOP: Final = frozenset(
    [
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "proxy-connection",
        "content-length",
    ]
)
_UNRESERVED_IN_KEYS: Final = "!#$&'*+-.^_`|~"


@dataclass(frozen=True, slots=True)
class Backend:
    """An API server registered by an APIService.

    Attributes:
        url: Where it listens, without a path.
        trusted: The context that verifies it and presents the front proxy's certificate.
        server_name: The name its certificate must carry (``<service>.<namespace>.svc``).
    """

    group: str
    version: str
    url: str
    trusted: ssl.SSLContext
    server_name: str

    @property
    def prefix(self) -> str:
        """The path below which requests are forwarded."""
        return f"/apis/{self.group}/{self.version}"

    @property
    def service_name(self) -> str:
        """The APIService's name."""
        return f"{self.version}.{self.group}"


def front_proxy_context(ca: bytes, certificate_file: Path, key_file: Path) -> ssl.SSLContext:
    """TLS towards a backend: its CA trusted, the front proxy's own certificate presented."""
    context = ssl.create_default_context(cadata=ca.decode())
    context.load_cert_chain(certificate_file, key_file)
    return context


class Aggregator:
    """Forwards requests to the registered backends; between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self.backends: dict[str, Backend] = {}
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the client session; proxy variables of the environment are ignored."""
        self._session = aiohttp.ClientSession(
            auto_decompress=False, trust_env=False, max_field_size=65_536, max_line_size=65_536
        )

    async def stop(self) -> None:
        """Close every connection to a backend."""
        if self._session is not None:
            await self._session.close()

    def backend_of(self, path: str) -> Backend | None:
        """The backend that answers a path; None for the stand-in's own."""
        for backend in self.backends.values():
            if path == backend.prefix or path.startswith(f"{backend.prefix}/"):
                return backend
            if path == f"/openapi/v3{backend.prefix}":
                return backend
        return None

    async def forward(self, request: web.Request, backend: Backend, user: User) -> web.StreamResponse:
        """Send a client's request on as the real aggregator does, and its answer back unchanged."""
        headers = proxied_headers(request.headers, user)
        headers["X-Forwarded-For"] = request.remote or ""
        headers["X-Forwarded-Host"] = request.host
        headers["X-Forwarded-Proto"] = "https"
        headers["X-Forwarded-Uri"] = request.rel_url.raw_path
        try:
            async with self._ask(
                backend, request.method, request.raw_path, headers, await request.read()
            ) as answer:
                body = await answer.read()
                kept = [(key, value) for key, value in answer.headers.items() if key.lower() not in _HOP_BY_HOP]
                if 300 <= answer.status < 400 and "Location" in answer.headers:
                    text = "the backend attempted to redirect this request, which is not permitted"
                    return web.Response(status=502, text=text)
                return web.Response(status=answer.status, body=body, headers=CIMultiDict(kept))
        except aiohttp.ClientError as error:
            return web.Response(status=503, text=f"error trying to reach service: {error}")
        except TimeoutError:
            return web.json_response(_TIMED_OUT, status=504)

    async def check(self, backend: Backend) -> tuple[bool, str]:
        """Whether a backend counts as available, and the sentence of its APIService's condition."""
        try:
            headers = proxied_headers({}, AGGREGATOR_USER)
            async with self._ask(
                backend, "GET", backend.prefix, headers, deadline_s=_DISCOVERY_DEADLINE_S
            ) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return False, f"failing or missing response from {backend.url}: {str(error) or type(error).__name__}"
        if not 200 <= answer.status < 300:
            problem = f"bad status from {backend.url}: {answer.status}"
            return False, f"failing or missing response from {backend.url}: {problem}"
        return True, "all checks passed"

    async def group_version(self, backend: Backend) -> GroupVersion:
        """The resources a backend serves; stale and empty when it does not answer."""
        accepted = {"Accept": ",".join(AGGREGATED_TYPE.format(version=version) for version in ("v2", "v2beta1"))}
        headers = proxied_headers(accepted, AGGREGATOR_USER)
        document = await self._document(backend, "/apis", headers)
        for group in (document or {}).get("items", []):
            for version in group.get("versions", []):
                if (group["metadata"]["name"], version["version"]) == (backend.group, backend.version):
                    return GroupVersion(backend.group, backend.version, version["resources"], VERSION_PRIORITY)
        return GroupVersion(backend.group, backend.version, (), VERSION_PRIORITY, freshness="Stale")

    async def openapi(self, path: str) -> list[JsonObject]:
        """The backends' ``/openapi/v2`` or ``/openapi/v3``; those that fail are left out."""
        headers = proxied_headers({"Accept": "application/json"}, OPENAPI_USER)
        found = [await self._document(backend, path, headers) for backend in self.backends.values()]
        return [document for document in found if document is not None]

    async def _document(self, backend: Backend, path: str, headers: CIMultiDict[str]) -> JsonObject | None:
        try:
            async with self._ask(backend, "GET", path, headers, deadline_s=_DISCOVERY_DEADLINE_S) as answer:
                body = await answer.read()
            document: Any = json.loads(body) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    def _ask(
        self,
        backend: Backend,
        method: str,
        path: str,
        headers: CIMultiDict[str],
        body: bytes = b"",
        deadline_s: float = _REQUEST_DEADLINE_S,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the aggregator has not been started")
        return self._session.request(
            method,
            URL(f"{backend.url}{path}", encoded=True),
            headers=headers,
            data=body or None,
            ssl=backend.trusted,
            server_hostname=backend.server_name,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=deadline_s),
        )


def proxied_headers(headers: Mapping[str, str], user: User) -> CIMultiDict[str]:
    """The headers a backend sees: the client's without credentials and identities, plus the client's identity."""
    passed: CIMultiDict[str] = CIMultiDict(
        (key, value)
        for key, value in headers.items()
        if key.lower() not in _HOP_BY_HOP | {"authorization", "host"} and not key.lower().startswith("x-remote-")
    )
    passed["X-Remote-User"] = user.name
    if user.uid:
        passed["X-Remote-Uid"] = user.uid
    for group in user.groups:
        passed.add("X-Remote-Group", group)
    for key, values in user.extra.items():
        for value in values:
            passed.add(f"X-Remote-Extra-{quote(key, safe=_UNRESERVED_IN_KEYS)}", value)
    return passed


_TIMED_OUT: Final = {
    "metadata": {},
    "status": "Failure",
    "message": "Timeout: request did not complete within the allotted timeout",
    "reason": "Timeout",
    "details": {},
    "code": 504,
}
