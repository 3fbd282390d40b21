"""Who keeps the connections, as one of them sees it."""

from typing import TYPE_CHECKING, Protocol

from devicemanager.serving.limits import Limits

if TYPE_CHECKING:
    from devicemanager.serving.connection import Connection


class Keeper(Protocol):
    """Who keeps the connections, as one of them sees it."""

    limits: Limits

    def opened(self, connection: "Connection") -> None:
        """The handshake succeeded."""
        ...

    def forget(self, connection: "Connection") -> None:
        """The connection is gone."""
        ...

    def head_limits(self, connection: "Connection") -> tuple[int, int]:
        """Bytes and lines that a request head may have on this connection."""
        ...

    def head_grew(self, connection: "Connection") -> None:
        """A request head has become longer, or complete."""
        ...

    def answer_ready(self, connection: "Connection", size: int) -> None:
        """An answer of about ``size`` bytes is about to be sent."""
        ...

    def request_refused(self, peer: str, reason: str) -> None:
        """A peer sent what is not a request, or one beyond the limits."""
        ...

    def request_failed(self, message: str, error: BaseException | None) -> None:
        """Answering a request failed, through our own fault."""
        ...
