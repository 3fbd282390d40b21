"""Every error this project raises on purpose.

A class exists only where a caller acts differently. Foreign errors are translated once, at the border where
they appear (``raise … from``); none of ours derives from a foreign class.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Self, TypeVar

from devicemanager.model.accelerator import CollectorState

if TYPE_CHECKING:  # the collector process must not pay for the worker's models
    from devicemanager.model.usage import SourceState

E = TypeVar("E", bound=Exception)

FOREIGN_TEXT_LIMIT: Final = 256
"""Characters of a foreign body that may enter a message: enough to recognise it, too few to carry a secret far."""


def excerpt(text: str, limit: int = FOREIGN_TEXT_LIMIT) -> str:
    """Foreign text as one printable line of at most ``limit`` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable(text: str) -> str:
    """Foreign text with a mark for each character that could move the cursor of a terminal, or colour it."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def leaves(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """The errors in a group and in the groups within it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


class DeviceManagerError(Exception):
    """Base of all errors raised on purpose."""


class SettingsError(DeviceManagerError):
    """The settings cannot be used.

    Attributes:
        problems: One sentence each, every problem found, in the order of the settings.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class CollectorError(DeviceManagerError):
    """A vendor library, driver or collector as a whole is unusable.

    Attributes:
        state: The collector's state in the snapshot; never ``ok`` or ``starting``.
        detail: One line for a person.
    """

    def __init__(self, state: CollectorState, detail: str) -> None:
        super().__init__(f"{state}: {detail}")
        self.state = state
        self.detail = detail


class DocumentError(DeviceManagerError):
    """Bytes that should be a known document are not. The message names the place and the fault."""


class ExcessError(DocumentError):
    """A document that holds more than any proper peer sends."""


class ContainerOutdatedError(DeviceManagerError):
    """This container was created before what the program needs was there. The message says what, and what helps."""


class FetchError(DeviceManagerError):
    """A peer (API server, kubelet, device manager) could not be asked, or refused.

    Attributes:
        state: What ``sources`` will say of that peer.
        message: In our own words alone: callers see it, who must not learn what a peer says of others.
        detail: What the peer said, for the log and for who asked the peer itself: ``str`` has both.
        status: The HTTP status, where there was an answer.
        reason: The machine-readable reason of a Kubernetes Status, where the answer was one (``NotFound``).
        object_name: The object that the Status names in its details, where it names one.
        retry_after_s: For how long the peer wants to be left alone, where it says so.
        lasting: Whether the failure counts for as long as a good answer would be kept: reading the same again
            costs much and would show the same.
        by_peer: Whether the peer is at fault, because it sent what cannot be used or took too long; False where
            that is not known, as when it was us who were late, or somebody in between.
    """

    def __init__(
        self,
        state: "SourceState",
        message: str,
        *,
        detail: str | None = None,
        status: int | None = None,
        reason: str | None = None,
        object_name: str | None = None,
        retry_after_s: int | None = None,
        lasting: bool = False,
        by_peer: bool = False,
    ) -> None:
        super().__init__(f"{message}: {detail}" if detail else message)
        self.state = state
        self.message = message
        self.detail = detail
        self.status = status
        self.reason = reason
        self.object_name = object_name
        self.retry_after_s = retry_after_s
        self.lasting = lasting
        self.by_peer = by_peer

    def again(self, note: str = "", *, by_peer: bool | None = None) -> Self:
        """A copy for another task to raise: one object raised in many would collect all their tracebacks.

        Args:
            note: What the message of the copy also says.
            by_peer: Of the copy; None for what it is of this one.
        """
        return type(self)(
            self.state,
            self.message + note,
            detail=self.detail,
            status=self.status,
            reason=self.reason,
            object_name=self.object_name,
            retry_after_s=self.retry_after_s,
            lasting=self.lasting,
            by_peer=self.by_peer if by_peer is None else by_peer,
        )

    def says_missing(self, name: str) -> bool:
        """Whether the API server answered that the object of this name does not exist.

        A 404 alone does not say so: it also stands for a kind that is not served (yet, or any longer), and for
        whatever a proxy in between makes of a path.
        """
        return self.status == 404 and self.reason == "NotFound" and self.object_name == name


class OutputError(DeviceManagerError):
    """Standard output cannot be written.

    Attributes:
        reader_left: Whether that is because the reader has seen enough, as ``head`` does.
    """

    def __init__(self, message: str, *, reader_left: bool) -> None:
        super().__init__(message)
        self.reader_left = reader_left
