"""What a connection reports to its owner."""

from typing import Protocol, TypeVar

from devicemanager.serving.limits import Limits

_Connection = TypeVar("_Connection", contravariant=True)


class ConnectionOwner(Protocol[_Connection]):
    """What a connection reports to its owner; :mod:`devicemanager.serving.connection_table` is one."""

    limits: Limits

    def handshake_done(self, connection: _Connection) -> None:
        """The TLS handshake succeeded."""
        ...

    def remove(self, connection: _Connection) -> None:
        """The connection is closed."""
        ...

    def head_limits(self, connection: _Connection) -> tuple[int, int]:
        """Bytes and lines that a request head may have on this connection."""
        ...

    def head_grew(self, connection: _Connection) -> None:
        """A request head has become longer, or complete."""
        ...

    def answer_ready(self, connection: _Connection, size: int) -> None:
        """A response of about ``size`` bytes is about to be sent."""
        ...

    def request_refused(self, peer: str, reason: str) -> None:
        """A peer sent no valid request, or one beyond the limits."""
        ...

    def request_failed(self, message: str, error: BaseException | None) -> None:
        """Answering a request failed, through a fault of this program."""
        ...
