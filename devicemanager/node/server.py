"""The device manager's HTTPS application. It answers from memory and never touches hardware.

``/monitor/snapshot`` is read by every worker for every request it answers, so it has no middleware and its headers
are made once per snapshot. Probes are open to anyone. Everything else, unknown paths included, is for the clients
that the :class:`ClientPolicy` lets in. Successful requests leave no line in the log.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from multidict import CIMultiDict, CIMultiDictProxy
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.model.accelerator import CollectorState
from devicemanager.node import exposition as prometheus
from devicemanager.node.exposition import Exposition
from devicemanager.node.snapshot_store import Document, SnapshotStore
from devicemanager.serving import probes
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.serving.probes import Check, Probe
from devicemanager.tls.validity import has_ended

SNAPSHOT_PATH: Final = "/monitor/snapshot"

_READING_METHODS: Final = ("GET", "HEAD")
_BODY_BYTES: Final = 4096
"""Nothing here takes a body."""

_CN: Final = "commonName"
_ALTERNATIVES: Final = frozenset({"DNS", "URI", "IP Address", "email"})

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_PeerCertificate: TypeAlias = Mapping[str, Any]
"""As :meth:`ssl.SSLSocket.getpeercert` gives it."""


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """Who may read more than the probes.

    Attributes:
        certificate_required: Whether only peers with a certificate of the client CA are allowed.
        allowed_names: Names of which such a certificate must carry one, as its common name or as an alternative
            name; empty takes every certificate of that CA.
    """

    certificate_required: bool
    allowed_names: frozenset[str] = field(default=frozenset())

    def refusal(self, certificate: _PeerCertificate | None, now: datetime) -> tuple[int, str] | None:
        """Status and message for a peer that may not read; None for one that may.

        Args:
            certificate: What the peer has shown and the TLS handshake has verified; None or empty without any.
            now: Aware UTC; connections outlive certificates.
        """
        if not self.certificate_required:
            return None
        if not certificate:
            return 401, "a client certificate is required"
        if has_ended(certificate, now):
            return 401, "the client certificate has ended"
        if self.allowed_names and self.allowed_names.isdisjoint(_names(certificate)):
            return 403, "the client certificate carries none of the allowed names"
        return None


def progress_check(last_progress_monotonic_s: Callable[[], float], limit_s: float, clock: Clock) -> Check:
    """Fails when the sampling loop made no progress for ``limit_s`` seconds, whatever the state of the hardware."""

    def problem() -> str | None:
        stalled_s = clock.monotonic() - last_progress_monotonic_s()
        return f"no progress for {stalled_s:.1f}s" if stalled_s > limit_s else None

    return Check("sampling", problem)


def collector_check(store: SnapshotStore) -> Check:
    """Fails while the collector is starting; any other state is ready, also a bad one."""

    def problem() -> str | None:
        starting = store.snapshot.collector.state is CollectorState.STARTING
        return "nothing is known of the hardware yet" if starting else None

    return Check("collector", problem, state=lambda: f"its state is {store.snapshot.collector.state}")


def build_app(
    *,
    store: SnapshotStore,
    exposition: Exposition,
    access: ClientPolicy,
    live: Sequence[Check],
    ready: Sequence[Check],
    clock: Clock,
    log: FilteringBoundLogger,
) -> web.Application:
    """The application to be served.

    Args:
        store: Holds the snapshot.
        exposition: Renders ``/metrics``.
        access: Who may read what is not a probe.
        live: Checks of ``/livez`` and its alias ``/healthz``.
        ready: Checks of ``/readyz``.
        clock: Ages the snapshot.
        log: For changes of a probe, and refused clients.
    """
    guard = _Guard(access, RateLimitedLog(log, clock.monotonic), clock)
    app = web.Application(client_max_size=_BODY_BYTES, middlewares=[_unrouted(guard(_not_found))])
    liveness = probes.handler(Probe("livez", live, log))
    open_paths = {
        "/livez": liveness,
        "/healthz": liveness,
        "/readyz": probes.handler(Probe("readyz", ready, log)),
    }
    guarded_paths = {
        SNAPSHOT_PATH: _snapshot_handler(store, clock),
        "/metrics": _metrics_handler(exposition),
    }
    for path, handler in open_paths.items():
        _add(app, path, handler, _method_not_allowed)
    for path, handler in guarded_paths.items():
        _add(app, path, guard(handler), guard(_method_not_allowed))
    app.router.add_route(hdrs.METH_ANY, "/{path:.*}", guard(_not_found))
    return app


def _unrouted(otherwise: _Handler) -> Middleware:
    """Answers requests without a path to route, such as ``CONNECT`` and ``OPTIONS *``."""

    @web.middleware
    async def middleware(request: web.Request, handler: _Handler) -> web.StreamResponse:
        return await (handler if request.match_info.http_exception is None else otherwise)(request)

    return middleware


def _add(app: web.Application, path: str, handler: _Handler, otherwise: _Handler) -> None:
    for method in _READING_METHODS:
        app.router.add_route(method, path, handler)
    app.router.add_route(hdrs.METH_ANY, path, otherwise)


class _Guard:
    """Applies a client policy to handlers, and logs refused clients."""

    def __init__(self, access: ClientPolicy, rated: RateLimitedLog, clock: Clock) -> None:
        self._access = access
        self._rated = rated
        self._clock = clock

    def __call__(self, handler: _Handler) -> _Handler:
        """The same handler behind the policy."""
        if not self._access.certificate_required:
            return handler

        async def guarded(request: web.Request) -> web.StreamResponse:
            transport = request.transport
            certificate = None if transport is None else transport.get_extra_info("peercert")
            refusal = self._access.refusal(certificate, self._clock.now())
            if refusal is None:
                return await handler(request)
            status, reason = refusal
            shown = sorted(set(_names(certificate))) if certificate else []
            self._rated.write(logging.WARNING, "client_refused", cause=reason, peer=request.remote, names=shown)
            return _problem(status, reason)

        return guarded


def _snapshot_handler(store: SnapshotStore, clock: Clock) -> _Handler:
    made_for: Document | None = None
    full: CIMultiDictProxy[str]
    unchanged: CIMultiDictProxy[str]

    async def snapshot(request: web.Request) -> web.StreamResponse:
        nonlocal made_for, full, unchanged
        document = store.document
        if document is not made_for:
            made_for = document
            full, unchanged = _snapshot_headers(document)
        wanted = request.headers.getall(hdrs.IF_NONE_MATCH, ())
        if wanted and _matches(",".join(wanted), document.etag):
            response = web.Response(status=304, headers=unchanged)
        else:
            response = web.Response(body=document.body, headers=full)
        age_s = store.age_s(clock.monotonic())
        if age_s is not None:
            response.headers[hdrs.AGE] = str(age_s)
        return response

    return snapshot


def _snapshot_headers(document: Document) -> tuple[CIMultiDictProxy[str], CIMultiDictProxy[str]]:
    """Headers of a full answer, and of a 304."""
    unchanged = CIMultiDict({hdrs.ETAG: document.etag, hdrs.CACHE_CONTROL: "no-cache"})
    full = CIMultiDict(
        {**unchanged, hdrs.CONTENT_TYPE: "application/json", hdrs.CONTENT_LENGTH: str(len(document.body))}
    )
    return CIMultiDictProxy(full), CIMultiDictProxy(unchanged)


def _matches(if_none_match: str, etag: str) -> bool:
    """Whether the header names the tag. Weak comparison, RFC 9110, section 13.1.2; our tags contain no comma."""
    return any(
        candidate == "*" or candidate.removeprefix("W/") == etag
        for candidate in (part.strip() for part in if_none_match.split(","))
    )


def _metrics_handler(exposition: Exposition) -> _Handler:
    async def metrics(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=exposition.render(), headers={hdrs.CONTENT_TYPE: prometheus.CONTENT_TYPE})

    return metrics


async def _method_not_allowed(request: web.Request) -> web.StreamResponse:
    response = _problem(405, f"only GET and HEAD are served at {request.path}")
    response.headers[hdrs.ALLOW] = ", ".join(_READING_METHODS)
    return response


async def _not_found(_request: web.Request) -> web.StreamResponse:
    return _problem(404, f"nothing is served here; the snapshot is at {SNAPSHOT_PATH}")


def _problem(status: int, message: str) -> web.Response:
    body = json.dumps({"message": message}).encode() + b"\n"
    return web.Response(status=status, body=body, headers={hdrs.CONTENT_TYPE: "application/json"})


def _names(certificate: _PeerCertificate) -> list[str]:
    """The common name, and the DNS names, URIs, addresses and mailboxes among the alternative names."""
    subject = [value for attributes in certificate.get("subject", ()) for kind, value in attributes if kind == _CN]
    return subject + [value for kind, value in certificate.get("subjectAltName", ()) if kind in _ALTERNATIVES]
