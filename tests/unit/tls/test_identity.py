import asyncio
import errno
import functools
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from devicemanager.clock import SystemClock
from devicemanager.errors import SettingsError
from devicemanager.tls.certificates import PemPair, not_after
from devicemanager.tls.identity import ClientIdentity, ServerIdentity
from devicemanager.tls.material import PairFiles, client_context, server_context
from tests.timing import until
from tests.tls_peers import (
    SERVER_NAMES,
    Logged,
    authority,
    bundle,
    cas,
    leaf_of,
    parsed,
    rsa_pair,
    server_identity,
    shake,
    write_pair,
)


def shown_by(identity: ServerIdentity) -> bytes:
    """The leaf that a new handshake shows, DER."""
    _, asking = shake(identity.context, client_context(cas(authority())))
    leaf = asking.getpeercert(binary_form=True)
    assert leaf is not None
    return leaf


def ends_about(identity: ServerIdentity, end: datetime) -> bool:
    return abs(identity.not_after - end) < timedelta(days=1)


def replace(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def remove(path: Path) -> None:
    path.unlink()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A ``--cert-dir`` with a pair in it."""
    found = tmp_path / "serving"
    found.mkdir()
    write_pair(found, authority().serving(SERVER_NAMES))
    return found


def in_directory(directory: Path, client_ca: Path | None = None, logged: Logged | None = None) -> ServerIdentity:
    return ServerIdentity(
        PairFiles.in_directory(directory), client_ca, clock=SystemClock(), log=(logged or Logged()).log
    )


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_pair_that_no_peer_would_accept_is_refused(side: str, tmp_path: Path) -> None:
    server, client = authority().serving(SERVER_NAMES), authority().client("worker")
    write_pair(tmp_path, client if side == "server" else server)
    identity = ServerIdentity if side == "server" else partial(ClientIdentity, None)

    with pytest.raises(SettingsError) as raised:
        identity(PairFiles.in_directory(tmp_path), clock=SystemClock(), log=Logged().log)

    (problem,) = raised.value.problems
    assert problem.startswith(f"{tmp_path}/tls.crt and ")
    assert problem.endswith(f": the certificate is not for {side}s: its extended key usage lacks {side}Auth")


class TestServerIdentity:
    def test_every_file_that_cannot_be_used_is_named_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "ca.crt").write_bytes(b"garbage")

        with pytest.raises(SettingsError) as raised:
            in_directory(tmp_path / "absent", tmp_path / "ca.crt")

        assert len(raised.value.problems) == 2
        assert "absent" in raised.value.problems[0]
        assert "ca.crt: no certificate" in raised.value.problems[1]

    @pytest.mark.asyncio
    async def test_a_pair_is_followed_through_a_symbolic_link(self, directory: Path) -> None:
        logged = Logged()
        identity = in_directory(directory, logged=logged)
        newer = authority().serving(SERVER_NAMES, days=100)
        write_pair(directory, newer)
        await identity.refresh()

        assert shown_by(identity) == leaf_of(newer)
        assert identity.not_after == not_after(newer.certificate)
        assert [line["log_level"] for line in logged.events("tls_files_reloaded")] == ["info"]

    @pytest.mark.asyncio
    async def test_files_are_compared_by_content_not_by_time(self, directory: Path) -> None:
        identity = in_directory(directory)
        before = identity.context
        same = (directory / "tls.crt").read_bytes()
        (directory / "tls.crt").write_bytes(same)
        await identity.refresh()

        assert identity.context is before

    @pytest.mark.asyncio
    async def test_another_type_of_key_takes_over(self, directory: Path) -> None:
        identity = in_directory(directory)
        newer = rsa_pair()
        write_pair(directory, newer)
        await identity.refresh()

        assert shown_by(identity) == leaf_of(newer)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("broken", ["garbage", "mismatch", "missing", "half"])
    async def test_the_old_pair_stays_when_the_new_cannot_be_used(self, broken: str, directory: Path) -> None:
        logged = Logged()
        identity = in_directory(directory, logged=logged)
        before = shown_by(identity)
        newer = authority().serving(SERVER_NAMES)
        match broken:
            case "garbage":
                write_pair(directory, PemPair(b"garbage", newer.key))
            case "mismatch":
                write_pair(directory, PemPair(newer.certificate, authority().client("other").key))
            case "half":
                write_pair(directory, PemPair(newer.certificate[:200], newer.key))
            case _:
                (directory / "tls.key").unlink()
        for _ in range(3):
            await identity.refresh()

        assert shown_by(identity) == before
        assert [line["log_level"] for line in logged.events("tls_files_refused")] == ["warning"]
        assert "PRIVATE" not in str(logged.capture.entries)

    @pytest.mark.asyncio
    async def test_a_good_pair_after_a_bad_one_is_used(self, directory: Path) -> None:
        identity = in_directory(directory)
        write_pair(directory, PemPair(b"garbage", b"garbage"))
        await identity.refresh()
        newer = authority().serving(SERVER_NAMES)
        write_pair(directory, newer)
        await identity.refresh()

        assert shown_by(identity) == leaf_of(newer)

    @pytest.mark.asyncio
    async def test_a_ca_file_is_followed_while_the_pair_stays(self, directory: Path, tmp_path: Path) -> None:
        ca_file = tmp_path / "ca.crt"
        ca_file.write_bytes(bundle(authority()))
        identity = in_directory(directory, ca_file)
        dropped: list[frozenset[bytes]] = []
        identity.on_cas_removed(dropped.append)

        ca_file.write_bytes(bundle(authority(), authority("other")))
        await identity.refresh()
        shake(identity.context, client_context(cas(authority()), parsed(authority("other").client("w"))))
        assert dropped == []

        ca_file.write_bytes(bundle(authority("other")))
        await identity.refresh()
        assert dropped == [frozenset({leaf_of(authority().pem)})]
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(identity.context, client_context(cas(authority()), parsed(authority().client("w"))))

    @pytest.mark.asyncio
    async def test_an_emptied_ca_file_changes_nothing(self, directory: Path, tmp_path: Path) -> None:
        ca_file = tmp_path / "ca.crt"
        ca_file.write_bytes(bundle(authority()))
        identity = in_directory(directory, ca_file)
        ca_file.write_bytes(b"")
        await identity.refresh()

        assert identity.client_cas == cas(authority())

    @pytest.mark.asyncio
    async def test_a_bad_pair_does_not_hold_up_a_ca(self, directory: Path, tmp_path: Path) -> None:
        ca_file = tmp_path / "ca.crt"
        ca_file.write_bytes(bundle(authority()))
        identity = in_directory(directory, ca_file)
        write_pair(directory, PemPair(b"garbage", b"garbage"))
        ca_file.write_bytes(bundle(authority("other")))
        await identity.refresh()

        assert identity.client_cas == cas(authority("other"))

    def test_cas_from_memory_are_swapped_at_run_time(self) -> None:
        identity = ServerIdentity(parsed(authority().serving(SERVER_NAMES)), clock=SystemClock(), log=Logged().log)
        dropped: list[frozenset[bytes]] = []
        identity.on_cas_removed(dropped.append)
        identity.trust(cas(authority()))
        assert identity.trusts(cas(authority()))
        identity.trust(None)

        assert dropped == [cas(authority()).members]
        assert not identity.trusts(cas(authority()))
        assert identity.trusts(None)

    def test_a_tls_1_2_session_is_not_resumed(self) -> None:
        identity = ServerIdentity(parsed(authority().serving(SERVER_NAMES)), clock=SystemClock(), log=Logged().log)
        asking = client_context(cas(authority()))
        asking.maximum_version = ssl.TLSVersion.TLSv1_2
        _, first = shake(identity.context, asking)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        serving = identity.context.wrap_bio(incoming, outgoing, server_side=True)
        again = asking.wrap_bio(outgoing, incoming, server_hostname=SERVER_NAMES[0], session=first.session)
        for side in (again, serving, again, serving, again):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

        assert first.session is not None
        assert again.session_reused is False

    def test_a_tls_1_3_handshake_keeps_the_context(self) -> None:
        identity = ServerIdentity(parsed(authority().serving(SERVER_NAMES)), clock=SystemClock(), log=Logged().log)
        context = identity.context
        shake(context, client_context(cas(authority())))

        assert identity.context is context

    @pytest.mark.asyncio
    async def test_following_looks_again_and_again(self, directory: Path) -> None:
        identity = in_directory(directory)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(identity.follow(0.001))
            for days in (50, 60):
                write_pair(directory, authority().serving(SERVER_NAMES, days=days))
                soon = datetime.now(UTC) + timedelta(days=days)
                await until(functools.partial(ends_about, identity, soon))
            following.cancel()


class TestClientIdentity:
    def identity(self, directory: Path, ca_file: Path, logged: Logged | None = None) -> ClientIdentity:
        return ClientIdentity(
            ca_file,
            PairFiles.in_directory(directory),
            clock=SystemClock(),
            log=(logged or Logged()).log,
        )

    @pytest.fixture
    def ca_file(self, tmp_path: Path) -> Path:
        path = tmp_path / "ca.crt"
        path.write_bytes(bundle(authority()))
        return path

    @pytest.mark.asyncio
    async def test_the_pair_and_the_cas_are_followed(self, tmp_path: Path, ca_file: Path) -> None:
        directory = tmp_path / "client"
        directory.mkdir()
        write_pair(directory, authority().client("worker"))
        identity = self.identity(directory, ca_file)
        write_pair(directory, authority("other").client("worker", days=20))
        replace(ca_file, bundle(authority("third")))
        await identity.refresh()

        serving, _ = shake(
            server_context(parsed(authority("third").serving(SERVER_NAMES)), cas(authority("other"))),
            identity.context,
        )
        assert serving.getpeercert()
        assert identity.not_after is not None
        assert identity.not_after < datetime.now(UTC) + timedelta(days=21)

    @pytest.mark.asyncio
    async def test_what_was_in_use_stays_when_the_files_go(self, tmp_path: Path, ca_file: Path) -> None:
        logged, directory = Logged(), tmp_path / "client"
        directory.mkdir()
        write_pair(directory, authority().client("worker"))
        identity = self.identity(directory, ca_file, logged)
        before = identity.context
        remove(ca_file)
        (directory / "tls.crt").unlink()
        await identity.refresh()

        assert identity.context is before
        assert len(logged.events("tls_files_refused")) == 2

    def test_every_file_that_cannot_be_used_is_named_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError) as raised:
            self.identity(tmp_path / "absent", tmp_path / "ca.crt")

        assert len(raised.value.problems) == 2

    def test_nothing_shown_has_no_end(self) -> None:
        identity = ClientIdentity(cas(authority()), clock=SystemClock(), log=Logged().log)

        assert identity.not_after is None


class TestWithoutDescriptors:
    """No context can be made, because making one needs a descriptor and none is free."""

    @pytest.fixture
    def exhausted(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
        def switch(on: bool) -> None:
            monkeypatch.undo()
            if on:

                def fail(*_: object, **__: object) -> ssl.SSLContext:
                    raise OSError(errno.EMFILE, "Too many open files")

                monkeypatch.setattr("devicemanager.tls.identity.server_context", fail)
                monkeypatch.setattr("devicemanager.tls.identity.client_context", fail)

        return switch

    @pytest.mark.asyncio
    @pytest.mark.parametrize("side", ["server", "client"])
    async def test_what_is_in_use_stays_and_it_is_tried_again(
        self, side: str, exhausted: Callable[[bool], None], tmp_path: Path
    ) -> None:
        logged, ca_file = Logged(), tmp_path / "ca.crt"
        ca_file.write_bytes(bundle(authority()))
        write_pair(
            tmp_path, authority().serving(SERVER_NAMES) if side == "server" else authority().client("worker")
        )
        pair = PairFiles.in_directory(tmp_path)
        identity = (
            ServerIdentity(pair, ca_file, clock=SystemClock(), log=logged.log)
            if side == "server"
            else ClientIdentity(ca_file, pair, clock=SystemClock(), log=logged.log)
        )
        before = identity.context
        replace(ca_file, bundle(authority("other")))
        exhausted(True)
        await identity.refresh()

        assert identity.context is before
        assert [line["reason"] for line in logged.events("tls_context_not_made")] == ["Too many open files"]

        exhausted(False)
        await identity.refresh()

        assert identity.context is not before
        assert len(identity.context.get_ca_certs()) == 1
        assert "other" in str(identity.context.get_ca_certs()[0]["subject"])

    def test_a_server_keeps_trusting_its_cas(self, exhausted: Callable[[bool], None]) -> None:
        identity = server_identity(cas(authority()))
        before = identity.context
        exhausted(True)

        with pytest.raises(OSError, match="Too many open files"):
            identity.trust(cas(authority("other")))

        assert identity.context is before
        assert identity.trusts(cas(authority()))
