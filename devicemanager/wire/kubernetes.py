"""Parts of every Kubernetes API: lists in pages, watch events, and errors as a Status.

The objects inside stay bytes, to be parsed by kind. msgspec structs and not the official client's classes:
those cost 25 MiB and half a second to load. Unknown keys are ignored, so newer servers do not matter.
"""

from typing import Final, TypeVar

import msgspec

from devicemanager.errors import DocumentError, ExcessError, excerpt
from devicemanager.wire import bounds
from devicemanager.wire.steps import Steps, at_once

T = TypeVar("T")

PAGE_ITEMS_LIMIT: Final = 50_000
"""Objects of one page: of 16 MiB, the longest that is read, each would have 335 bytes, which is less than any."""


class Document(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the structs below: camel case on the wire, immutable."""


class StatusDetails(Document, frozen=True):
    """What a Status is about.

    Attributes:
        name: Of the object; empty where it is about none in particular.
        retry_after_seconds: When to come back; None where it does not say.
    """

    name: str = ""
    retry_after_seconds: int | None = None


class Status(Document, frozen=True):
    """``v1 Status``: how the API server reports an error, as a body or as a watch event of type ERROR."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ListMeta(Document, frozen=True):
    """Where a list stands."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Document, frozen=True):
    """One page of any list; the items stay bytes, to be parsed by kind."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class _CountedPage(Document, frozen=True):
    """A page of which nothing is looked at but how many items there are, all of them objects."""

    items: list[bounds.Skipped] | None = None


class WatchLine(Document, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class ObjectMeta(Document, frozen=True):
    """Which object it is, and in which version."""

    uid: str = ""
    resource_version: str = ""


class AnyObject(Document, frozen=True):
    """An object of which only the metadata matters."""

    metadata: ObjectMeta = ObjectMeta()


_COUNTED_PAGE: Final = msgspec.json.Decoder(_CountedPage)
_LIST_PAGE: Final = msgspec.json.Decoder(ListPage)
_WATCH_LINE: Final = msgspec.json.Decoder(WatchLine)
_ANY_OBJECT: Final = msgspec.json.Decoder(AnyObject)
_STATUS: Final = msgspec.json.Decoder(Status)


def parse_list_page(body: bytes) -> ListPage:
    """One page of a list. Raises DocumentError."""
    return at_once(parse_list_page_in_steps(body))


def parse_list_page_in_steps(body: bytes) -> Steps[ListPage]:
    """The same in steps."""
    yield from bounds.LIST_PAGE.check_in_steps(body, "list")
    if len(body) > 2 * PAGE_ITEMS_LIMIT:  # a shorter one cannot hold as many
        if len(_decoded(_COUNTED_PAGE, body, "list").items or ()) > PAGE_ITEMS_LIMIT:
            raise ExcessError(f"list: more than {PAGE_ITEMS_LIMIT} items")
        yield
    return _decoded(_LIST_PAGE, body, "list")


def parse_watch_line(body: bytes) -> WatchLine:
    """One line of a watch. Raises DocumentError."""
    return _decoded(_WATCH_LINE, body, "watch event")


def parse_metadata(body: bytes) -> ObjectMeta:
    """The metadata of any object. Raises DocumentError."""
    return _decoded(_ANY_OBJECT, body, "object").metadata


def parse_status(body: bytes) -> Status | None:
    """The Status that an error answer carries, or None when it carries something else."""
    try:
        status = _decoded(_STATUS, body, "Status")
    except DocumentError:
        return None
    return status if status.kind == "Status" else None


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, kind: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"not a Kubernetes {kind}: {excerpt(str(error))}") from error
