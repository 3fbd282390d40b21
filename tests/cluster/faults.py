"""Faults that a test switches on: wrong, late or broken answers of the stand-in.

A fault belongs to a target: ``kubelet/<node>`` for one kubelet, else the resource as rules spell it (``pods``,
``instances.worker.gpustack.ai``, ``pods.metrics.k8s.io``, ``tokenreviews.authentication.k8s.io``).
"""

import asyncio
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from functools import cache
from typing import Final

from aiohttp import web

_CHUNK: Final = b" " * 65_536


class Trouble(Enum):
    """What goes wrong."""

    SLOW = auto()
    """The right answer after ``delay_s``."""
    HELD = auto()
    """The right answer once ``Fault.released`` is set."""
    ERROR = auto()
    """A Kubernetes Status with ``status``."""
    HTML = auto()
    """200 with a web page, as a captive proxy sends."""
    HUGE = auto()
    """200 with ``size_bytes`` of JSON white space before the document."""
    BODY = auto()
    """200 with ``body``."""
    HALF = auto()
    """The first half of the body, then the connection closes."""
    DRIP = auto()
    """One byte every ``delay_s``."""
    GZIP_BOMB = auto()
    """A few KiB that unpack to ``size_bytes``."""
    RAW = auto()
    """``raw``, whatever it is, and then the connection closes."""
    RESET = auto()
    """The connection closes without an answer."""
    STALE = auto()
    """Kubelet: every pod's blocks are ``behind`` the node's own time."""
    ABSENT_POD = auto()
    """Kubelet and metrics.k8s.io: the pod named by ``pod`` is missing."""
    EARLIER_POD = auto()
    """Kubelet and metrics.k8s.io: the pod named by ``pod`` is an earlier one of that name."""


@dataclass(frozen=True)
class Fault:
    """One kind of trouble with its parameters; which apply, the kind's description says."""

    trouble: Trouble
    delay_s: float = 1.0
    status: int = 500
    size_bytes: int = 32 * 1024 * 1024
    behind: timedelta = timedelta(minutes=10)
    pod: tuple[str, str] = ("", "")
    body: bytes = field(default=b"", repr=False)
    raw: bytes = b""
    released: asyncio.Event = field(default_factory=asyncio.Event)


class Faults:
    """The faults switched on now."""

    def __init__(self) -> None:
        self._faults: dict[str, list[tuple[Fault, list[int | None]]]] = {}

    def switch_on(self, target: str, fault: Fault, times: int | None = None) -> None:
        """Add a fault; it ends by itself after ``times`` requests, or never."""
        self._faults.setdefault(target, []).append((fault, [times]))

    def switch_off(self, target: str) -> None:
        """Remove every fault of a target and let the requests held there go on."""
        for fault, _ in self._faults.pop(target, []):
            fault.released.set()

    def clear(self) -> None:
        """Remove every fault."""
        for target in tuple(self._faults):
            self.switch_off(target)

    @contextmanager
    def on(self, target: str, fault: Fault, times: int | None = None) -> Iterator[Fault]:
        """A fault for the length of a ``with`` block."""
        self.switch_on(target, fault, times)
        try:
            yield fault
        finally:
            self.switch_off(target)

    def take(self, targets: Sequence[str]) -> tuple[Fault, ...]:
        """The faults that a request to any of ``targets`` meets; counts down those that end by themselves."""
        met = []
        for target in targets:
            for fault, left in self._faults.get(target, []):
                if left[0] == 0:
                    continue
                if left[0] is not None:
                    left[0] -= 1
                met.append(fault)
        return tuple(met)


async def deliver(request: web.Request, response: web.Response, faults: Sequence[Fault]) -> web.StreamResponse:
    """Send the right answer with the faults of delivery, in order; the first that replaces the answer wins."""
    for fault in faults:
        match fault.trouble:
            case Trouble.SLOW:
                await asyncio.sleep(fault.delay_s)
            case Trouble.HELD:
                await fault.released.wait()
            case Trouble.HTML | Trouble.BODY | Trouble.GZIP_BOMB:
                return _another(fault)
            case Trouble.HUGE:
                return await _huge(request, response, fault.size_bytes)
            case Trouble.HALF:
                return await _half(request, response)
            case Trouble.DRIP:
                return await _drip(request, response, fault.delay_s)
            case Trouble.RAW:
                return answer_raw(request, fault.raw)
            case Trouble.RESET:
                if request.transport is not None:
                    request.transport.abort()
                return response
            case _:
                continue
    return response


def _another(fault: Fault) -> web.Response:
    """A whole answer in place of the right one."""
    if fault.trouble is Trouble.HTML:
        return web.Response(text="<!doctype html><title>Sign in</title>", content_type="text/html")
    if fault.trouble is Trouble.BODY:
        return web.Response(body=fault.body, content_type="application/json")
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    return web.Response(body=_bomb(fault.size_bytes), headers=headers)


def answer_raw(request: web.Request, raw: bytes) -> web.Response:
    """Send these bytes and close; the response is for aiohttp, which has nobody left to send it to."""
    if request.transport is not None:
        request.transport.write(raw)
        request.transport.close()
    return web.Response()


def _bytes(response: web.Response) -> bytes:
    return response.body if isinstance(response.body, bytes) else b""


async def _huge(request: web.Request, response: web.Response, padding: int) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    for _ in range(padding // len(_CHUNK)):
        await stream.write(_CHUNK)
    await stream.write(_bytes(response))
    await stream.write_eof()
    return stream


async def _half(request: web.Request, response: web.Response) -> web.StreamResponse:
    body = _bytes(response)
    stream = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await stream.prepare(request)
    await stream.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return stream


async def _drip(request: web.Request, response: web.Response, delay_s: float) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    for byte in _bytes(response):
        await stream.write(bytes([byte]))
        await asyncio.sleep(delay_s)
    await stream.write_eof()
    return stream


@cache
def _bomb(size_bytes: int) -> bytes:
    return gzip.compress(b"\0" * size_bytes, compresslevel=1)
