"""The device manager, put together: `devicemanager serve`."""

from pathlib import Path
from typing import Final

import structlog

from devicemanager.clock import SystemClock
from devicemanager.node import server
from devicemanager.node.exposition import Exposition
from devicemanager.programs import hardware
from devicemanager.serving import descriptors, probes
from devicemanager.serving.lifecycle import serve_until_told
from devicemanager.serving.limits import KIB, MIB, Limits, VerifiedLimits
from devicemanager.serving.listener import Listener
from devicemanager.settings.node import ServerSettings, ServeSettings
from devicemanager.tls import identity as tls
from devicemanager.tls.material import Pair, PairFiles

STUCK_AFTER_S: Final = 10.0
STUCK_AFTER_PERIODS: Final = 1.5
"""How far behind its own deadlines the supervisor may be before liveness fails; the longer of the two counts."""

LIMITS: Final = Limits(
    verified=VerifiedLimits(connections=64, head_bytes=16 * KIB, headers=128, heads_cost=1 * MIB)
)
"""Strangers ask for no more than a probe; readers with a certificate are few, and send little."""

DESCRIPTORS_RESERVED: Final = 128
"""For collector processes and their pipes, files that are read, and what listens."""

log = structlog.get_logger()


async def serve(settings: ServeSettings) -> int:
    """Serve until told to stop. Returns the exit code."""
    clock = SystemClock()
    identity = await _identity(settings, settings.client_ca_file)
    holder, supervisor = hardware.supervised(settings, settings.monitor_period)
    shutdown = probes.Shutdown()
    stuck_after_s = max(STUCK_AFTER_S, STUCK_AFTER_PERIODS * settings.monitor_period)
    access = server.ClientPolicy(
        certificate_required=settings.client_ca_file is not None,
        allowed_names=frozenset(settings.client_allowed_names),
    )
    app = server.build_app(
        store=holder,
        exposition=Exposition(holder, lambda: identity.not_after, clock),
        access=access,
        live=[
            probes.PING,
            server.progress_check(lambda: supervisor.last_progress_monotonic_s, stuck_after_s, clock),
        ],
        ready=[probes.PING, server.collector_check(holder), shutdown.check],
        clock=clock,
        log=log,
    )
    listener = Listener(
        app,
        [(settings.address, settings.secure_port)],
        identity,
        limits=descriptors.fitted(LIMITS, DESCRIPTORS_RESERVED, log),
        verified=lambda certificate: access.refusal(certificate, clock.now()) is None,
        log=log,
    )
    if settings.allow_anonymous:
        log.warning("anonymous_access_allowed", address=settings.address)
    return await serve_until_told(
        listener,
        {
            "supervisor": supervisor.run,
            "certificates": identity.follow,
            "container": hardware.container_watch(settings, holder).run,
        },
        shutdown,
        drain_s=settings.shutdown_timeout,
        log=log,
    )


async def _identity(settings: ServerSettings, client_cas: Path | None) -> tls.ServerIdentity:
    """Who a server is: the pair in its directory, or one made now; and whose clients it believes."""
    pair: Pair | PairFiles
    if settings.cert_dir is not None:
        pair = PairFiles.in_directory(settings.cert_dir)
    else:
        pair = await tls.self_signed_pair(settings.san)
        log.info("self_signed_certificate_made", not_after=pair.not_after.isoformat())
    return tls.ServerIdentity(pair, client_cas, clock=SystemClock(), log=log)
