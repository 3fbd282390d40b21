"""Certificates and authorities change under load: nobody who may read notices, and nobody else gets in."""

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from devicemanager.clock import SystemClock
from devicemanager.node.server import ClientPolicy
from devicemanager.serving.listener import Listener
from devicemanager.tls.certificates import Authority, PemPair
from devicemanager.tls.identity import ClientIdentity, ServerIdentity
from devicemanager.tls.material import PairFiles
from tests.timing import until
from tests.tls_peers import (
    SERVER_NAMES,
    Logged,
    authority,
    blocking_get,
    bundle,
    cas,
    client,
    connected,
    on_both_loops,
    refused,
    rsa_pair,
    running,
    server_identity,
    write_pair,
)

FOLLOW_S = 0.01
OLD, NEW = authority("old clients"), authority("new clients")
POLICY = ClientPolicy(certificate_required=True)


@dataclass
class Site:
    """A server whose files a test replaces."""

    directory: Path
    logged: Logged = field(default_factory=Logged)

    def __post_init__(self) -> None:
        self.serving = self.directory / "serving"
        self.serving.mkdir()
        self.client_ca = self.directory / "client-ca.crt"
        self.show(authority().serving(SERVER_NAMES))
        self.believe(OLD)

    def show(self, pem: PemPair) -> None:
        write_pair(self.serving, pem)

    def believe(self, *authorities: Authority) -> None:
        beside = self.client_ca.with_suffix(".new")
        beside.write_bytes(bundle(*authorities))
        beside.rename(self.client_ca)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Listener, ServerIdentity]]:
        identity = ServerIdentity(
            PairFiles.in_directory(self.serving), self.client_ca, clock=SystemClock(), log=self.logged.log
        )
        listener = Listener(guarded(), [("127.0.0.1", 0)], identity, log=self.logged.log)
        async with running(listener), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(identity.follow(FOLLOW_S))
            yield listener, identity
            following.cancel()


def guarded() -> web.Application:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        refusal = POLICY.refusal(request.transport.get_extra_info("peercert"), datetime.now(UTC))
        return web.Response(status=200 if refusal is None else refusal[0])

    app = web.Application()
    app.router.add_get("/", answer)
    return app


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


class Load:
    """Clients that ask again and again, on connections kept alive and on new ones."""

    def __init__(self, address: tuple[str, int], context: Callable[[], ssl.SSLContext]) -> None:
        self.statuses: list[int] = []
        self.failures: list[Exception] = []
        self._url = f"https://{address[0]}:{address[1]}/"
        self._context = context
        self._stop = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        async with asyncio.TaskGroup() as tasks:
            for force_close in (False, False, True):
                tasks.create_task(self._ask(force_close))
            yield self
            await self.more()
            self._stop.set()

    async def more(self, count: int = 30) -> None:
        """Wait until so many more requests have ended."""
        wanted = len(self.statuses) + len(self.failures) + count
        await until(lambda: len(self.statuses) + len(self.failures) >= wanted)

    async def _ask(self, force_close: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=force_close)
        async with aiohttp.ClientSession(connector=connector) as session:
            while not self._stop.is_set():
                try:
                    async with session.get(
                        self._url, ssl=self._context(), server_hostname=SERVER_NAMES[0]
                    ) as response:
                        self.statuses.append(response.status)
                except (aiohttp.ClientError, OSError) as error:
                    self.failures.append(error)


def shows(identity: ServerIdentity, pem: PemPair) -> bool:
    return identity.pair.certificate == pem.certificate


async def leaf(address: tuple[str, int], context: ssl.SSLContext) -> bytes | None:
    async with connected(address, context) as peer:
        await peer.get()
        return peer.tls.getpeercert(binary_form=True)


def der(pem: PemPair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.certificate.decode())


@on_both_loops
async def test_pairs_are_replaced_under_load_with_no_failed_request(site: Site) -> None:
    context = client(OLD.client("worker"))
    pairs = [
        authority().serving(SERVER_NAMES),
        rsa_pair(),
        PemPair(b"garbage", b"garbage"),
        authority().serving(SERVER_NAMES),
        rsa_pair(),
    ]
    async with site.running() as (listener, identity):
        address = listener.addresses[0]
        async with Load(address, lambda: context).running() as load:
            await load.more()
            for pem in pairs:
                site.show(pem)
                if pem.key == b"garbage":
                    await until(lambda: site.logged.events("tls_files_refused"))
                else:
                    await until(functools.partial(shows, identity, pem))
                    assert await leaf(address, context) == der(pem)
                await load.more()

    assert load.failures == []
    assert set(load.statuses) == {200}


@on_both_loops
async def test_the_client_ca_is_replaced_under_load_with_no_failed_request(site: Site, tmp_path: Path) -> None:
    """Old, then both, then the client's own pair, then new only: the order in which an operator does it."""
    mine = tmp_path / "client"
    mine.mkdir()
    write_pair(mine, OLD.client("worker"))
    worker = ClientIdentity(cas(authority()), PairFiles.in_directory(mine), clock=SystemClock(), log=Logged().log)
    async with (
        site.running() as (listener, identity),
        Load(listener.addresses[0], lambda: worker.context).running() as load,
    ):
        await load.more()
        site.believe(OLD, NEW)
        await until(lambda: identity.client_cas == cas(OLD, NEW))
        await load.more()
        write_pair(mine, NEW.client("worker"))
        await worker.refresh()
        await load.more()
        site.believe(NEW)
        await until(lambda: identity.client_cas == cas(NEW))
        await load.more()

    assert load.failures == []
    assert set(load.statuses) == {200}


@on_both_loops
async def test_an_added_ca_closes_no_connection(site: Site) -> None:
    async with (
        site.running() as (listener, identity),
        connected(listener.addresses[0], client(OLD.client("worker"))) as kept,
    ):
        await kept.get()
        site.believe(OLD, NEW)
        await until(lambda: identity.client_cas == cas(OLD, NEW))

        assert (await kept.get()).status == 200


@on_both_loops
async def test_a_removed_ca_closes_the_connections_it_signed_for_and_no_other(site: Site) -> None:
    async with (
        site.running() as (listener, _),
        connected(listener.addresses[0], client(OLD.client("worker"))) as idle,
        connected(listener.addresses[0], client(OLD.client("worker"))) as speaking,
        connected(listener.addresses[0], client()) as anonymous,
    ):
        assert [(await one.get()).status for one in (idle, speaking, anonymous)] == [200, 200, 401]
        speaking.writer.write(b"GET / HTTP/1.1\r\n")  # not a request yet
        site.believe(NEW)

        assert await idle.closed() == b""
        assert await speaking.closed() == b""
        assert (await anonymous.get()).status == 401

    assert [line["connections"] for line in site.logged.events("client_ca_dropped")] == [2]


@contextlib.asynccontextmanager
async def without_cas() -> AsyncIterator[tuple[Listener, ServerIdentity]]:
    """A server that learns only later whose certificates to ask for, as the worker does."""
    identity = server_identity(None)
    async with running(Listener(guarded(), [("127.0.0.1", 0)], identity, log=Logged().log)) as listener:
        yield listener, identity


@on_both_loops
async def test_the_first_ca_closes_connections_that_were_not_asked_for_a_certificate() -> None:
    worker = client(OLD.client("worker"))
    async with without_cas() as (listener, identity), connected(listener.addresses[0], worker) as early:
        assert (await early.get()).status == 401  # nobody asked for its certificate
        identity.trust(cas(OLD))

        assert await early.closed() == b""
        async with (
            connected(listener.addresses[0], worker) as late,
            connected(listener.addresses[0], client()) as anonymous,
        ):
            assert [(await one.get()).status for one in (late, anonymous)] == [200, 401]
            identity.trust(cas(OLD, NEW))

            assert [(await one.get()).status for one in (late, anonymous)] == [200, 401]


@on_both_loops
async def test_a_new_connection_from_before_the_first_ca_gets_one_answer_and_no_more() -> None:
    worker = client(OLD.client("worker"))
    async with (
        without_cas() as (listener, identity),
        connected(listener.addresses[0], None) as shaking,
        connected(listener.addresses[0], worker) as idle,
    ):
        await until(
            lambda: len(listener.connections) == 2
        )  # accepted with the context that asks for no certificate
        identity.trust(cas(OLD))
        await shaking.writer.start_tls(worker, server_hostname=SERVER_NAMES[0])
        for new_peer in (shaking, idle):
            assert (await new_peer.get()).status == 401
            assert await new_peer.closed() == b""


@on_both_loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_dropped_ca_is_out_also_with_a_session_made_before(site: Site, version: ssl.TLSVersion) -> None:
    context = client(OLD.client("worker"), version=version)
    async with site.running() as (listener, identity):
        _, session = await asyncio.to_thread(blocking_get, listener.addresses[0], context, None)
        site.believe(NEW)
        await until(lambda: identity.client_cas == cas(NEW))

        with pytest.raises(OSError, match=r"."):
            await asyncio.to_thread(blocking_get, listener.addresses[0], context, session)
        assert await refused(listener.addresses[0], context)


@on_both_loops
async def test_a_handshake_begun_before_the_ca_was_dropped_does_not_get_in(site: Site) -> None:
    async with site.running() as (listener, identity), connected(listener.addresses[0], None) as slow:
        await until(lambda: listener.connections)  # accepted with the context of the old CA
        site.believe(NEW)
        await until(lambda: identity.client_cas == cas(NEW))
        with contextlib.suppress(OSError):  # in TLS 1.3 the handshake may succeed for all the client can see
            await slow.writer.start_tls(client(OLD.client("worker")), server_hostname=SERVER_NAMES[0])
            slow.send()
        assert await slow.closed() == b""


@on_both_loops
async def test_a_connection_stays_open_when_its_pair_is_replaced(site: Site) -> None:
    context = client(OLD.client("worker"))
    async with site.running() as (listener, identity), connected(listener.addresses[0], context) as kept:
        await kept.get()
        newer = authority().serving(SERVER_NAMES)
        site.show(newer)
        await until(lambda: identity.pair.certificate == newer.certificate)

        assert (await kept.get()).status == 200
        assert kept.tls.getpeercert(binary_form=True) != der(newer)


@on_both_loops
async def test_a_server_of_a_ca_no_longer_trusted_is_refused_by_our_client(site: Site, tmp_path: Path) -> None:
    ca_file = tmp_path / "server-ca.crt"
    ca_file.write_bytes(bundle(authority()))
    identity = ClientIdentity(ca_file, clock=SystemClock(), log=Logged().log)
    async with site.running() as (listener, _):
        assert not await refused(listener.addresses[0], identity.context)
        ca_file.write_bytes(bundle(NEW))
        await identity.refresh()

        assert await refused(listener.addresses[0], identity.context)
