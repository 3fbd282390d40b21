"""The device manager below its settings, which allow no period under a second.

``python -m tests.bench.composed PERIOD CERT_DIR SAMPLES...`` serves as ``devicemanager serve`` does, and prints a
line whenever that many samples have been published.
"""

import asyncio
import sys
from pathlib import Path

import structlog
import uvloop

from devicemanager.clock import SystemClock
from devicemanager.node import server
from devicemanager.node.exposition import Exposition
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.supervisor import Supervisor
from devicemanager.node.supervisor_options import SupervisorOptions
from devicemanager.serving import probes
from devicemanager.serving.lifecycle import Server, run_until_signal, serving
from devicemanager.serving.listener import Listener
from devicemanager.tls import identity as tls
from devicemanager.tls.material import PairFiles


async def main(period_s: float, cert_dir: Path, milestones: list[int]) -> int:
    """Serve until told to stop."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    log = structlog.get_logger()
    clock = SystemClock()
    identity = tls.ServerIdentity(PairFiles.in_directory(cert_dir), clock=clock, log=log)
    store = SnapshotStore("nvidia", period_s, None, clock)
    command = [sys.executable, "-m", "collectors", "nvidia"]
    supervisor = Supervisor(
        SupervisorOptions(manufacturer="nvidia", period_s=period_s, command=command), store, clock, log
    )
    shutdown = probes.Shutdown()
    app = server.build_app(
        store=store,
        exposition=Exposition(store, lambda: identity.not_after, clock),
        access=server.ClientPolicy(certificate_required=False),
        live=[probes.PING],
        ready=[probes.PING, server.collector_check(store), shutdown.check],
        clock=clock,
        log=log,
    )
    listener = Listener(app, [("127.0.0.1", 0)], identity, log=log)

    async def announce() -> None:
        for milestone in milestones:
            while store.version < milestone:  # noqa: ASYNC110 - the store has no event, and must not get one for this
                await asyncio.sleep(period_s)
            print(milestone, flush=True)  # noqa: T201 - a program; this is its result
        await asyncio.Event().wait()

    parts = {"supervisor": supervisor.run, "certificates": identity.follow, "milestones": announce}
    return await run_until_signal(serving(Server(listener, shutdown), parts, drain_s=1, log=log), log=log)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main(float(sys.argv[1]), Path(sys.argv[2]), [int(one) for one in sys.argv[3:]])))
