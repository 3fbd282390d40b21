"""Listening sockets with fixed buffers, and the kernel's view of accepted ones."""

import asyncio
import errno
import fcntl
import os
import select
import socket
import sys
import termios
from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.errors import excerpt
from devicemanager.serving.limits import Limits

_ANY_IPV6: Final = "::"
_ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - what the first means where the kernel has no IPv6

_INT: Final = bytes(4)

OUT_OF_SOCKETS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of ``accept`` when it needs resources that only closing a connection frees."""


def listen(address: str, port: int, limits: Limits, log: FilteringBoundLogger) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: It cannot be had; the text says where, and what can be done.
    """
    try:
        listening = _bound(address, port, limits.backlog)
    except OSError as error:
        if address != _ANY_IPV6 or error.errno != errno.EAFNOSUPPORT:
            raise OSError(error.errno, _why_not(error, address, port)) from error
        log.info("kernel_without_ipv6", address=_ANY_IPV4)
        return listen(_ANY_IPV4, port, limits, log)
    # What is accepted has the buffers of the socket that listens. Fixed, they do not grow with what a peer sends.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer)
    listening.setblocking(False)
    return listening


def _bound(address: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    dual_stack = address == _ANY_IPV6 and socket.has_dualstack_ipv6()
    return socket.create_server((address, port), family=family, backlog=backlog, dualstack_ipv6=dual_stack)


def _why_not(error: OSError, address: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            what = "address in use: another program listens there; choose another --secure-port"
        case errno.EACCES:
            what = "not permitted; ports below 1024 need a right of their own, choose a higher --secure-port"
        case errno.EADDRNOTAVAIL:
            what = "no address of this machine; choose another --bind-address"
        case _:
            what = os.strerror(error.errno) if error.errno else excerpt(str(error))
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return f"{where}: {what}"


def unacknowledged(transport: asyncio.Transport) -> int:
    """Bytes in the kernel that the peer's has not acknowledged; 0 where it never will, or there is no socket."""
    found = transport.get_extra_info("socket")
    try:
        waiting = int.from_bytes(fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, _INT), sys.byteorder)
        return 0 if waiting and _reset(found.fileno()) else waiting
    except (AttributeError, OSError, ValueError):
        return 0


def _reset(descriptor: int) -> bool:
    """Whether the connection is over. The kernel then still counts what was never acknowledged."""
    look = select.poll()
    look.register(descriptor, 0)
    return any(happened & (select.POLLHUP | select.POLLERR) for _, happened in look.poll(0))
