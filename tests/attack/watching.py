"""Probes and an honest reader beside an attack, in a process of their own: ``watching.py '{"port": …}'``.

It asks until its standard input ends, and then prints what it has seen as JSON.
"""

import http.client
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

PROBES: Final = ("/livez", "/readyz")
PROBE_SOURCE: Final = "127.0.9.1"
READER_SOURCE: Final = "127.0.9.2"
_BETWEEN_PROBES_S: Final = 0.2
_BETWEEN_READS_S: Final = 1.0
_GIVEN_UP_S: Final = 10.0
"""Far beyond what is asserted, so that an answer that is late shows how late."""


@dataclass(frozen=True)
class Honest:
    """Who reads, and what a right answer holds.

    Attributes:
        folder: With ``tls.crt`` and ``tls.key``, the reader's.
        expected: Parts of the body.
    """

    folder: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    expected: Sequence[str] = ()


@dataclass
class Seen:
    """What came of one kind of request.

    Attributes:
        count: How many were sent.
        failed: Those that were refused, or wrongly answered.
        slowest_s: Without the time for which others had the cores of the program and of the reader.
    """

    count: int = 0
    failed: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


class WaitForCore:
    """How long threads were ready to run while others had their core: no attack is to blame for that."""

    def __init__(self, *threads: Path) -> None:
        self._files = [one / "schedstat" for one in threads]
        self._before_s = self._total_s()

    def passed_s(self) -> float:
        """Since this object was made."""
        return self._total_s() - self._before_s

    def _total_s(self) -> float:
        try:
            return sum(int(one.read_text().split()[1]) for one in self._files) / 1e9
        except FileNotFoundError:  # a kernel without this figure, or a program that has ended
            return 0.0


class _Asking:
    """Asks the program, and keeps count."""

    def __init__(self, port: int, pid: int, stop: threading.Event) -> None:
        self._port = port
        self._program = Path(f"/proc/{pid}/task/{pid}")
        self._stop = stop

    def probes(self, seen: Seen) -> None:
        """As the kubelet does: each on a new connection, with no certificate, and none verified."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"User-Agent": "kube-probe/1.34", "Connection": "close"}
        for path in cycle(PROBES):
            if self._stop.wait(_BETWEEN_PROBES_S):
                return
            connection = self._connection(context, PROBE_SOURCE)
            self._timed(seen, path, partial(_once, connection, path, headers))

    def reads(self, seen: Seen, honest: Honest) -> None:
        """By turns on a kept connection, as clients do, and on a new one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(Path(honest.folder) / "tls.crt", Path(honest.folder) / "tls.key")
        kept = self._connection(context, READER_SOURCE)
        while True:
            self._timed(seen, "kept connection", lambda: _read(kept, honest))
            if self._stop.wait(_BETWEEN_READS_S / 2):
                break
            self._timed(seen, "new connection", lambda: _read(self._connection(context, READER_SOURCE), honest))
            if self._stop.wait(_BETWEEN_READS_S / 2):
                break
        kept.close()

    def _connection(self, context: ssl.SSLContext, source: str) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=_GIVEN_UP_S, context=context, source_address=(source, 0)
        )

    def _timed(self, seen: Seen, what: str, ask: Callable[[], str | None]) -> None:
        waiting = WaitForCore(self._program, Path(f"/proc/self/task/{threading.get_native_id()}"))
        began_s = time.monotonic()
        try:
            wrong = ask()
        except (OSError, http.client.HTTPException) as error:
            wrong = repr(error)
        took_s = time.monotonic() - began_s
        seen.count += 1
        seen.slowest_s = max(seen.slowest_s, took_s - waiting.passed_s())
        if wrong is not None:
            seen.failed.append(f"{what}, after {took_s:.2f} s: {wrong}")


def _once(connection: http.client.HTTPSConnection, path: str, headers: Mapping[str, str]) -> str | None:
    """What was wrong with an answer to a probe."""
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    return None if answer.status == 200 else f"{answer.status} {body[:200]!r}"


def _read(connection: http.client.HTTPSConnection, honest: Honest) -> str | None:
    """What was wrong with an answer to a reader."""
    try:
        connection.request("GET", honest.path, headers=dict(honest.headers))
        answer = connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionError):
        # A kept connection may end between two requests, and every client asks again then: once.
        connection.close()
        connection.request("GET", honest.path, headers=dict(honest.headers))
        answer = connection.getresponse()
    body = answer.read().decode()
    missing = [part for part in honest.expected if part not in body]
    return None if answer.status == 200 and not missing else f"{answer.status}, without {missing}: {body[:2000]}"


def _main(port: int, pid: int, honest: Mapping[str, Any]) -> None:
    stop, probes, reads = threading.Event(), Seen(), Seen()
    asking = _Asking(port, pid, stop)
    threads = [
        threading.Thread(target=asking.probes, args=(probes,)),
        threading.Thread(target=asking.reads, args=(reads, Honest(**honest))),
    ]
    for one in threads:
        one.start()
    sys.stdin.read()
    stop.set()
    for one in threads:
        one.join()
    json.dump({"probes": asdict(probes), "reads": asdict(reads)}, sys.stdout)


@dataclass
class Watch:
    """What was seen while a ``with`` block ran."""

    probes: Seen = field(default_factory=Seen)
    reads: Seen = field(default_factory=Seen)


@contextmanager
def watching(port: int, pid: int, honest: Honest) -> Iterator[Watch]:
    """Probes and an honest reader for as long as the block runs; what they saw is there after it."""
    arguments = json.dumps({"port": port, "pid": pid, "honest": asdict(honest)})
    watch = Watch()
    command = [sys.executable, "-P", __file__, arguments]
    with Popen(command, stdin=PIPE, stdout=PIPE, env=dict(os.environ)) as process:
        try:
            yield watch
        finally:
            out, _ = process.communicate()
        found = json.loads(out)
        watch.probes, watch.reads = Seen(**found["probes"]), Seen(**found["reads"])


if __name__ == "__main__":
    _main(**json.loads(sys.argv[1]))
