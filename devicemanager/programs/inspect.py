"""Programs that print once: what the hardware says, or what a running device manager serves.

They use the same collector process, supervisor and documents as the device manager, so that they show what it would
serve, and a card that hangs costs them no more than it costs there.
"""

import asyncio
import json
import sys
from typing import Final

import structlog
from yarl import URL

from collectors import pci, registry
from collectors.scenario import ScenarioError, read_scenario
from devicemanager import streams
from devicemanager.clock import Clock, SystemClock
from devicemanager.errors import CollectorError, DocumentError, FetchError, excerpt
from devicemanager.model.accelerator import CollectorState, Snapshot
from devicemanager.model.usage import PeerSnapshot, SourceState
from devicemanager.node.server import SNAPSHOT_PATH
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.programs import hardware, present
from devicemanager.rules import freshness
from devicemanager.settings.node import CollectingSettings, DetectSettings, MonitorSettings, SnapshotSettings
from devicemanager.settings.output import Output
from devicemanager.tls.identity import ClientIdentity
from devicemanager.tls.material import PairFiles
from devicemanager.transport.client import HttpClient
from devicemanager.transport.failures import CERTIFICATE_REFUSED, CONNECTION_LOST, within
from devicemanager.transport.messages import Received, Request
from devicemanager.wire import snapshot

DONE: Final = 0
NOTHING_READ: Final = 1

PERIOD_S: Final = 15.0
"""Deadlines follow from a period; there is never a second sample."""

_POLL_S: Final = 0.01

_SAID_LIMIT: Final = 60
"""Characters that are shown of an answer which is no snapshot."""

log = structlog.get_logger()


async def _sampled(settings: CollectingSettings, manufacturer: str) -> Snapshot:
    """The first result for a manufacturer: a sample, or the state that says why there is none."""
    _name_mistakes(settings, manufacturer)
    store = SnapshotStore(manufacturer, PERIOD_S, settings.node_name, SystemClock())
    supervisor = hardware.supervisor(settings, manufacturer, PERIOD_S, store)
    async with asyncio.TaskGroup() as tasks:
        supervising = tasks.create_task(supervisor.run())
        while store.snapshot.collector.state is CollectorState.STARTING:  # noqa: ASYNC110 - once, and in no server
            await asyncio.sleep(_POLL_S)
        supervising.cancel()
    return store.snapshot


def _name_mistakes(settings: CollectingSettings, manufacturer: str) -> None:
    """Print every mistake in a scenario, a line each; the collector's detail is too short for all."""
    if settings.simulated_scenario is None:
        return
    try:
        read_scenario(settings.simulated_scenario, manufacturer)
    except ScenarioError as error:
        for problem in error.problems:
            sys.stderr.write(f"{settings.simulated_scenario}: {problem}\n")
    except CollectorError:
        return  # the collector says so as well, in full


async def monitor(settings: MonitorSettings) -> int:
    """Print one sample. Returns 1 when no card is in it."""
    found = await _sampled(settings, hardware.manufacturer(settings))
    _print_snapshot(snapshot.encode(found), 0, settings.output, name=found.manufacturer, once=True)
    return DONE if found.sample is not None and found.sample.readings else NOTHING_READ


async def detect(settings: DetectSettings) -> int:
    """Print what cards there are. Returns 1 when no library lists any."""
    devices = () if settings.no_pci_check else hardware.functions(settings)
    names = pci.detect(devices) if settings.manufacturer == "auto" else (hardware.manufacturer(settings),)
    bodies: dict[str, bytes | None] = {}
    for name in names:
        known = registry.known(name)
        readable = known is not None and known.built
        bodies[name] = snapshot.encode(await _sampled(settings, name)) if readable else None
    inventory = {name: None if body is None else snapshot.parse(body) for name, body in bodies.items()}
    if settings.output is Output.TABLE:
        searched = pci.nothing_found(settings.sys_root) if settings.manufacturer == hardware.AUTO else None
        streams.print_answer(present.inventory_text(devices, inventory, searched=searched, width=streams.width()))
    else:
        documents = {name: None if body is None else json.loads(body) for name, body in bodies.items()}
        streams.print_answer(present.document(present.inventory_document(devices, documents), settings.output))
    listed = any(found is not None and any(found.cards.values()) for found in inventory.values())
    return DONE if listed else NOTHING_READ


async def served(settings: SnapshotSettings) -> int:
    """Print what a device manager serves. Returns 1 when it cannot be asked, or has no sample yet."""
    clock = SystemClock()
    try:
        answer = await _fetched(settings, clock)
        found = _parsed(answer)
    except (FetchError, DocumentError) as error:
        sys.stderr.write(f"devicemanager snapshot: {settings.url}: {error}{_hint(settings, str(error))}\n")
        return NOTHING_READ
    age_s = freshness.age_s(timestamp=found.timestamp, now=clock.now(), age_header_s=answer.age_s, date=answer.date)
    _print_snapshot(answer.body, None if age_s is None else int(age_s), settings.output)
    return NOTHING_READ if found.timestamp is None else DONE


def _parsed(answer: Received) -> PeerSnapshot:
    """The snapshot in an answer.

    Raises:
        DocumentError: It is none; the message says what it is.
    """
    said = f"begins with {excerpt(answer.body.decode(errors='replace'), _SAID_LIMIT)!r}"
    if not answer.body.lstrip().startswith(b"{"):
        raise DocumentError(f"the answer is not a snapshot: it {said}")
    try:
        return snapshot.parse(answer.body)
    except DocumentError as error:
        raise DocumentError(f"{error}; the answer {said}") from error


def _hint(settings: SnapshotSettings, error: str) -> str:
    """What may help; nothing where that is not known."""
    if error == CONNECTION_LOST:  # in TLS 1.3, a server refuses a client after the client's handshake
        if settings.cert is None:
            return "; the server may want a client certificate: --cert and --key"
        return "; the server may not trust whoever signed the certificate of --cert"
    if error.startswith(CERTIFICATE_REFUSED):
        if "mismatch" in error.lower():
            return "; --server-name gives the name to verify it for, --insecure looks without verifying"
        return "; --ca-file names the authorities to trust, --insecure looks without verifying"
    if URL(settings.url).path not in ("/", SNAPSHOT_PATH):
        return f"; {SNAPSHOT_PATH} is asked for if the address has no path"
    return ""


async def _fetched(settings: SnapshotSettings, clock: Clock) -> Received:
    """The answer of a device manager.

    Raises:
        FetchError: It could not be asked, or its answer is no snapshot.
    """
    url = URL(settings.url)
    pair = PairFiles(settings.cert, settings.key) if settings.cert and settings.key else None
    identity = ClientIdentity(settings.ca_file, pair, verify=not settings.insecure, clock=clock, log=log)
    request = Request(
        "GET",
        url.with_path(SNAPSHOT_PATH) if url.path == "/" else url,
        snapshot.BODY_LIMIT_BYTES,
        headers={"Accept": "application/json"},
        tls=identity.context,
        server_hostname=settings.server_name,
    )
    async with HttpClient(clock) as http, within(settings.timeout):
        answer = await http.exchange(request)
    if answer.status != 200:
        raise FetchError(
            SourceState.INVALID, f"HTTP {answer.status}: {excerpt(answer.body.decode(errors='replace'))}"
        )
    return answer


def _print_snapshot(
    body: bytes, age_s: int | None, output: Output, name: str = "device manager", *, once: bool = False
) -> None:
    if output is Output.TABLE:
        found = snapshot.parse(body)
        streams.print_answer(present.snapshot_text(found, age_s, name=name, once=once, width=streams.width()))
    else:
        streams.print_answer(present.document(json.loads(body), output))
