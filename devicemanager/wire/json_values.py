"""Reads untyped JSON: a value, or None for one of another type, never an exception for one bad field.

Used where one malformed field must cost only itself. A number that is no 64-bit integer stays recognisable as
written (:class:`NumberText`), so that it is neither lost nor rounded through a float.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.pod_stats import UNREADABLE
from devicemanager.wire.bounds import API_OBJECT, Bounds

_INTEGER_DIGITS: Final = 20
"""A longer integer is beyond 2^64; it stays text, because making a number of it costs quadratic time."""


_SPACE: Final = re.compile(r"[ \t\n\r]*")


class NumberText(str):
    """A JSON number as it was written: a fraction, an exponent, ``NaN`` or a very long integer."""

    __slots__ = ()


def load(body: bytes | str, kind: str, bounds: Bounds = API_OBJECT) -> object:
    """The JSON value in ``body``; ``kind`` names the document in the error.

    Raises:
        DocumentError: Not JSON, or nested beyond reason.
        ExcessError: It may hold more than ``bounds`` allow; nothing was built then.
    """
    bounds.check(body, kind)
    try:
        value: object = json.loads(body, parse_int=_integer, parse_float=NumberText, parse_constant=NumberText)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{kind} is not JSON: {excerpt(str(error))}") from error
    return value


def load_object(body: bytes | str, kind: str, bounds: Bounds = API_OBJECT) -> Mapping[str, object]:
    """The JSON object in ``body``.

    Raises:
        DocumentError: Not JSON, or another value than an object.
        ExcessError: It may hold more than ``bounds`` allow.
    """
    value = load(body, kind, bounds)
    if not isinstance(value, dict):
        raise DocumentError(f"{kind} is not an object")
    return value


def members(body: bytes, kind: str, array: str) -> Iterator[tuple[str, object]]:
    """The members of the JSON object in ``body``, one by one, and the array of one of them element by element.

    For a body whose :mod:`~devicemanager.wire.bounds` were checked.

    So a large document is never held as a tree of values: freeing one takes a tenth of a second, in which no other
    thread runs.

    Args:
        body: JSON, in an encoding of Unicode.
        kind: Names the document in errors.
        array: The member whose elements are given, each under its name. It may come once.

    Raises:
        DocumentError: Not JSON, no object, or nested beyond reason. What was given then counts no more.
    """
    try:
        cursor = _Cursor(body.decode(json.detect_encoding(body), "surrogatepass"))
        if not cursor.takes("{"):
            raise DocumentError(f"{kind} is not an object")
        given = False
        for key in cursor.each_key():
            if key != array:
                yield key, cursor.value()
                continue
            if given:
                raise DocumentError(f"{kind} has {array} twice")
            given = True
            if cursor.takes("["):
                for element in cursor.each_element():
                    yield array, element
            else:
                cursor.value()
        cursor.end()
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{kind} is not JSON: {excerpt(str(error))}") from error


class _Cursor:
    """A place in a JSON text. Every method raises ValueError where the text is none there."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decoder = json.JSONDecoder(parse_int=_integer, parse_float=NumberText, parse_constant=NumberText)

    def takes(self, character: str) -> bool:
        """Whether this character comes next; it is passed then."""
        space = _SPACE.match(self._text, self._at)
        self._at = self._at if space is None else space.end()
        found = self._text.startswith(character, self._at)
        self._at += len(character) if found else 0
        return found

    def value(self) -> object:
        """The value that comes next."""
        self.takes("")
        value, self._at = self._decoder.raw_decode(self._text, self._at)
        return value

    def each_key(self) -> Iterator[str]:
        """Each key of the object that has begun; its value is to be taken before the next."""
        more = not self.takes("}")
        while more:
            key = self.value()
            if not isinstance(key, str) or not self.takes(":"):
                raise ValueError(f"no key of an object at character {self._at}")
            yield key
            more = self._goes_on("}")

    def each_element(self) -> Iterator[object]:
        """Each element of the array that has begun."""
        more = not self.takes("]")
        while more:
            yield self.value()
            more = self._goes_on("]")

    def end(self) -> None:
        """Passes the end of the text."""
        self.takes("")
        if self._at < len(self._text):
            raise ValueError(f"more text at character {self._at}")

    def _goes_on(self, closing: str) -> bool:
        if self.takes(","):
            return True
        if not self.takes(closing):
            raise ValueError(f"neither a comma nor {closing} at character {self._at}")
        return False


def member(value: object, *path: str) -> object:
    """The value at a path of keys; None where any step is missing or no object."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def mapping(value: object) -> Mapping[str, object]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> Iterator[object]:
    """The elements of an array, or none."""
    return iter(value if isinstance(value, list) else ())


def text(value: object) -> str | None:
    """The string, or None; an empty one is None too."""
    return value if isinstance(value, str) and value and _is_text(value) else None


def texts(value: object) -> dict[str, str]:
    """The entries of an object whose values are strings."""
    entries = mapping(value).items()
    return {key: entry for key, entry in entries if isinstance(entry, str) and _is_text(key) and _is_text(entry)}


def _is_text(value: str) -> bool:
    """Whether it was a string in JSON, and one that can be written again: half a surrogate pair cannot."""
    if isinstance(value, NumberText):
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def integer(value: object) -> int | None:
    """The integer; None for a missing or null one, ``UNREADABLE`` for anything else."""
    if value is None:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else UNREADABLE


def quantity(value: object) -> str | None:
    """The text of a Kubernetes quantity, which may be written as a bare number; None for anything else."""
    if isinstance(value, str):
        return str(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _integer(digits: str) -> int | NumberText:
    return int(digits) if len(digits) <= _INTEGER_DIGITS else NumberText(digits)
