"""``limit`` and ``continue``: a list in pages, without keeping anything between them. Pure.

A page ends at a name, and the next begins after it, so objects that come and go between two pages are neither
repeated nor do they shift others out of sight.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

_TOKEN_LIMIT: Final = 2048
_LIMIT_DIGITS: Final = 18


class PageError(ValueError):
    """A page parameter cannot be used; the text is for the caller."""


class Named(Protocol):
    """What pages are made of."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)


@dataclass(frozen=True, slots=True)
class Position:
    """The last object of a page."""

    namespace: str
    name: str

    def encode(self) -> str:
        """The opaque text that the caller sends back."""
        text = json.dumps({"v": 1, "after": [self.namespace, self.name]}, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for.

    Attributes:
        limit: At most so many objects; 0 for all.
        after: Begin behind this one; None for the beginning.
    """

    limit: int = 0
    after: Position | None = None

    def cut(self, items: Sequence[Item]) -> tuple[list[Item], Position | None, int]:
        """The objects of this page, where the next one begins (None at the end), and how many remain behind it."""
        ordered = sorted(items, key=lambda item: (item.namespace, item.name))
        if self.after is not None:
            after = (self.after.namespace, self.after.name)
            ordered = [item for item in ordered if (item.namespace, item.name) > after]
        if not self.limit or len(ordered) <= self.limit:
            return ordered, None, 0
        page = ordered[: self.limit]
        return page, Position(page[-1].namespace, page[-1].name), len(ordered) - self.limit


def parse_page(limit: str, token: str) -> Page:
    """Parse both parameters; empty text is none given.

    Raises:
        PageError: The limit is no count, or the token is none of ours.
    """
    return Page(_limit(limit), _position(token) if token else None)


def _limit(text: str) -> int:
    if not text:
        return 0
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _LIMIT_DIGITS:
        shown = json.dumps(text[:64], ensure_ascii=True)
        raise PageError(f"strconv.ParseInt: parsing {shown}: invalid syntax")
    return max(0, int(text))


def _position(token: str) -> Position:
    if len(token) > _TOKEN_LIMIT:
        raise PageError("continue key is not valid: it is too long")
    padded = token + "=" * (-len(token) % 4)
    try:
        document = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as error:
        raise PageError("continue key is not valid: it was not made by this server") from error
    match document:
        case {"v": 1, "after": [str(namespace), str(name)]}:
            return Position(namespace, name)
        case _:
            raise PageError("continue key is not valid: it was not made by this server")
