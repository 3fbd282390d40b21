"""Limits on how much a peer's JSON may hold, checked on its bytes before it is parsed.

A limit on bytes alone lets four million empty objects through, which take seconds and a gigabyte to build. Counting
the bytes that begin an object, begin an array or separate two values gives upper limits in a few milliseconds; text
that contains such bytes only counts against its sender.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from devicemanager.errors import ExcessError
from devicemanager.wire.steps import Steps, at_once

_STEP_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper limits for one kind of document.

    Attributes:
        objects: Of ``{``.
        values: Of ``,``, ``[`` and ``{`` together. No text holds more values than one more than that.
        length: Of the text, where nothing else limits that; None for any.
    """

    objects: int
    values: int
    length: int | None = None

    def check(self, body: bytes | str, kind: str) -> None:
        """Passes a body that holds no more than this; ``kind`` names the document in the error.

        Raises:
            ExcessError: It may hold more.
        """
        at_once(self.check_in_steps(body, kind))

    def check_in_steps(self, body: bytes | str, kind: str) -> Steps[None]:
        """The same in steps of a millisecond at most: to count what is in 16 MiB takes up to 40."""
        if self.length is not None and len(body) > self.length:
            raise ExcessError(f"{kind}: longer than {self.length}")
        # An object or value takes two bytes at least. To count a short body would cost as much as to read it.
        steps = range(0, len(body), _STEP_BYTES)
        objects = values = 0
        for begin in steps if len(body) > 2 * self.objects else ():
            objects += _count(body, "{", begin)
            if objects > self.objects:
                raise ExcessError(f"{kind}: more than {self.objects} objects")
            yield
        for begin in steps if len(body) > 2 * self.values else ():
            values += sum(_count(body, character, begin) for character in "{[,")
            if values > self.values:
                raise ExcessError(f"{kind}: more than {self.values} values")
            yield


class Skipped(msgspec.Struct, gc=False):
    """An element of an array, an object of which nothing is read.

    An array is decoded to these to count its elements: it ends at the first that is no object, and one takes 24
    bytes; as ``msgspec.Raw`` a number of two bytes would take 56.
    """


def _count(body: bytes | str, character: str, begin: int) -> int:
    end = begin + _STEP_BYTES
    if isinstance(body, str):
        return body.count(character, begin, end)
    return body.count(character.encode(), begin, end)


SNAPSHOT: Final = Bounds(objects=16_384, values=114_688)
"""Just enough for 1,024 cards with every figure absent, and all slices that the existing operator may send."""

SUMMARY: Final = Bounds(objects=262_144, values=917_504)
"""Just enough for 2,000 pods, four times what a large node runs, of four containers each, with every block that
kubelets write."""

LENIENT_SUMMARY: Final = Bounds(objects=65_536, values=327_680)
"""A summary that only the slower way can read, which builds everything: a quarter."""

POD: Final = Bounds(objects=4_096, values=32_768)
"""One pod of a summary: 64 containers with every block, and a hundred volumes, take a quarter."""

API_OBJECT: Final = Bounds(objects=32_768, values=131_072, length=2 << 20)
"""Any one object of an API server, which stores at most 1.5 MiB of one. A pod has some hundreds of objects, its
managed fields included."""

LIST_PAGE: Final = Bounds(objects=1_048_576, values=4_194_304)
"""One page of a list: its objects are decoded one by one, each held to ``API_OBJECT``."""

ALLOCATION: Final = Bounds(objects=16_384, values=65_536)
"""An annotation that gives 1,024 cards, each with its placements."""
