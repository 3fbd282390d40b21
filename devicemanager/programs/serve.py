"""The device manager, put together: `devicemanager serve`."""

from typing import Final

import structlog

from devicemanager import logs
from devicemanager.clock import SystemClock
from devicemanager.node import server
from devicemanager.node.exposition import Exposition
from devicemanager.node.launcher import most_bytes
from devicemanager.node.own_process import keep_memory_private
from devicemanager.programs import hardware
from devicemanager.programs.memory import budget
from devicemanager.programs.server_identity import server_identity
from devicemanager.serving import descriptors, probes
from devicemanager.serving.budget import DEVICE_MANAGER
from devicemanager.serving.lifecycle import Part, Server, run_until_signal, serving
from devicemanager.serving.listener import Listener
from devicemanager.serving.process_metrics import ProcessMetrics
from devicemanager.settings.node import ServeSettings

STUCK_AFTER_S: Final = 10.0
STUCK_AFTER_PERIODS: Final = 1.5
"""How far behind its own deadlines the supervisor may be before liveness fails; the longer of the two counts."""

DESCRIPTORS_RESERVED: Final = 128
"""For collector processes and their pipes, files that are read, and what listens."""

log = structlog.get_logger()


async def serve(settings: ServeSettings) -> int:
    """Serve until a signal. Returns the exit code.

    Raises:
        SettingsError: What the person running us must change.
    """
    if not keep_memory_private():
        log.warning("process_memory_readable")
    admitted = budget(DEVICE_MANAGER, settings, most_bytes(settings.collector_memory_limit))
    clock = SystemClock()
    identity = await server_identity(settings, settings.client_ca_file, clock, log)
    store, supervisor = hardware.supervised(settings, settings.monitor_period)
    shutdown = probes.Shutdown()
    stuck_after_s = max(STUCK_AFTER_S, STUCK_AFTER_PERIODS * settings.monitor_period)
    access = server.ClientPolicy(
        certificate_required=settings.client_ca_file is not None,
        allowed_names=frozenset(settings.client_allowed_names),
    )
    app = server.build_app(
        store=store,
        exposition=Exposition(store, lambda: identity.not_after, clock, ProcessMetrics(logs.lines_dropped)),
        access=access,
        live=[
            probes.PING,
            server.progress_check(lambda: supervisor.last_progress_monotonic_s, stuck_after_s, clock),
        ],
        ready=[probes.PING, server.collector_check(store), shutdown.check],
        clock=clock,
        log=log,
    )
    listener = Listener(
        app,
        [(settings.address, settings.secure_port)],
        identity,
        limits=descriptors.fit_limits(admitted.limits, DESCRIPTORS_RESERVED, log),
        verified=lambda certificate: access.refusal(certificate, clock.now()) is None,
        log=log,
    )
    if settings.allow_anonymous:
        log.warning("anonymous_access_allowed", address=settings.address)
    parts: dict[str, Part] = {
        "supervisor": supervisor.run,
        "certificates": identity.follow,
        "container": hardware.container_watch(settings, store).run,
    }

    async def log_command() -> None:
        log.info("snapshot_served", command=snapshot_command(settings, *listener.addresses[0]))

    running = serving(
        Server(listener, shutdown),
        parts,
        startup=[log_command],
        drain_s=settings.shutdown_timeout,
        log=log,
    )
    return await run_until_signal(running, log=log)


def snapshot_command(settings: ServeSettings, address: str, port: int) -> str:
    """The command that shows, on this machine, what is served there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - nothing is bound to it
    shown = f"[{host}]" if ":" in host else host
    pair = " --cert CLIENT.crt --key CLIENT.key" if settings.client_ca_file is not None else ""
    return f"devicemanager snapshot {shown}:{port} --insecure{pair}"
