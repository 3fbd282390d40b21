"""The other side of our TLS: authorities, identities, a logger that remembers, a peer that speaks HTTP by hand."""

import asyncio
import contextlib
import functools
import inspect
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import SystemClock
from devicemanager.serving.listener import Listener
from devicemanager.tls.certificates import Authority, PemPair
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import Pair, TrustedCAs, client_context

SERVER_NAMES = ("device-manager.test", "127.0.0.1", "::1")
DEADLINE_S = 10.0
"""Longer than anything here takes on a busy machine; reached only when something is broken."""


@contextlib.asynccontextmanager
async def running(listener: Listener, drain_s: float = 1.0) -> AsyncIterator[Listener]:
    """Listen and serve for as long as the block runs, then drain."""
    await listener.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.serve())
        try:
            yield listener
        finally:
            await listener.drain(drain_s)


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test twice: on asyncio's own event loop, and on the one that the programs use."""

    @functools.wraps(test)
    def run(*args: object, loop_factory: Callable[[], asyncio.AbstractEventLoop], **kwargs: object) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(*args, **kwargs))

    signature = inspect.signature(test)
    of_the_loop = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    setattr(run, "__signature__", signature.replace(parameters=[*signature.parameters.values(), of_the_loop]))  # noqa: B010 - mypy knows no such attribute
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    twice: Callable[..., None] = pytest.mark.parametrize("loop_factory", loops.values(), ids=loops.keys())(run)
    return twice


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory: the server's and the client's side of it.

    Raises:
        ssl.SSLError: Either refuses.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server, server_hostname=SERVER_NAMES[0])
    pending = [asking, serving]
    while pending:
        for side in list(pending):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(side)
    return serving, asking


def leaf_of(pem: PemPair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.certificate.decode())


@dataclass
class Logged:
    """A logger and what was written to it."""

    capture: LogCapture = field(default_factory=LogCapture)

    @property
    def log(self) -> FilteringBoundLogger:
        logger: FilteringBoundLogger = structlog.wrap_logger(
            None, processors=[self.capture], wrapper_class=structlog.make_filtering_bound_logger(0)
        )
        return logger

    def events(self, name: str) -> list[dict[str, object]]:
        return [
            {k: v for k, v in one.items() if k != "event"} for one in self.capture.entries if one["event"] == name
        ]


@functools.cache
def authority(name: str = "authority") -> Authority:
    """One authority per name for the whole run: making keys takes time."""
    return Authority.create(name)


def cas(*authorities: Authority) -> TrustedCAs:
    return TrustedCAs.parse(bundle(*authorities))


def bundle(*authorities: Authority) -> bytes:
    return b"".join(one.pem.certificate for one in authorities)


def parsed(pem: PemPair) -> Pair:
    return Pair.parse(pem.certificate, pem.key)


def rsa_pair() -> PemPair:
    """A serving pair of :func:`authority` with an RSA key."""
    key = rsa.generate_private_key(65537, 2048)
    issuer = x509.load_pem_x509_certificate(authority().pem.certificate)
    signing = serialization.load_pem_private_key(authority().pem.key, None)
    made = (
        x509.CertificateBuilder()
        .subject_name(issuer.subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAMES[0])]), critical=False)
        .sign(signing, hashes.SHA256())  # type: ignore[arg-type]  # the authority's key can sign
    )
    return PemPair(
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ),
    )


def server_identity(client_cas: TrustedCAs | None = None, logged: Logged | None = None) -> ServerIdentity:
    identity = ServerIdentity(
        parsed(authority().serving(SERVER_NAMES)), clock=SystemClock(), log=(logged or Logged()).log
    )
    if client_cas is not None:
        identity.trust(client_cas)
    return identity


def client(pem: PemPair | None = None, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A client's context that believes the serving pairs of :func:`authority`."""
    context = client_context(cas(authority()), None if pem is None else parsed(pem))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def write_pair(directory: Path, pem: PemPair) -> None:
    """Write a pair as a Kubernetes volume does: a new directory, then one symbolic link swapped."""
    generation = directory / f"..{len(list(directory.iterdir()))}"
    pem.write(generation)
    link = directory / "..data.new"
    link.symlink_to(generation.name)
    link.rename(directory / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Peer:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def tls(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    async def get(self, path: str = "/", headers: Sequence[str] = ()) -> Answer:
        self.send(path, headers)
        return await self.answer()

    def send(self, path: str = "/", headers: Sequence[str] = ()) -> None:
        lines = [f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode())

    async def answer(self) -> Answer:
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name: value for name, _, value in (line.partition(": ") for line in head[1:-2])}
            body = await self.reader.readexactly(int(headers.get("Content-Length", "0")))
        return Answer(int(head[0].split()[1]), headers, body)

    async def closed(self) -> bytes:
        """Wait until the server has closed; what came before."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read()
            except (ConnectionError, ssl.SSLError):
                return b""


@contextlib.asynccontextmanager
async def connected(address: tuple[str, int], context: ssl.SSLContext | None) -> AsyncIterator[Peer]:
    """A connection, over TLS unless ``context`` is None."""
    name = None if context is None else SERVER_NAMES[0]
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=name)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


async def refused(address: tuple[str, int], context: ssl.SSLContext) -> bool:
    """Whether a handshake, or the first answer after it, fails. In TLS 1.3 the client is told only afterwards."""
    try:
        async with connected(address, context) as peer:
            await peer.get()
    except (OSError, asyncio.IncompleteReadError):
        return True
    return False


def blocking_get(
    address: tuple[str, int], context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[bool, ssl.SSLSession | None]:
    """One request on a new connection that offers ``session``: whether that was resumed, and the session after it.

    Raises:
        OSError: The server refused.
    """
    with (
        socket.create_connection(address, timeout=DEADLINE_S) as raw,
        context.wrap_socket(raw, server_hostname=SERVER_NAMES[0], session=session) as wrapped,
    ):
        wrapped.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        if not wrapped.recv(1024):
            raise ConnectionError("closed without an answer")
        return bool(wrapped.session_reused), wrapped.session
