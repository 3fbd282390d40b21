"""Decodes large bodies in a thread, outside of the event loop.

A thread does not make it quicker, and code that holds the interpreter's lock stops the loop from any thread: what
may come here is bounded by ``wire.bounds`` first, and is Python code for the most part, which gives way every 5 ms.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from devicemanager.errors import DocumentError, ExcessError, FetchError
from devicemanager.model.usage import SourceState

LONG_BODY_BYTES: Final = 64 * 1024
"""A longer body is decoded in a thread. A snapshot of 16 cards takes 8 KiB, and half a millisecond."""

AT_ONCE: Final = 2

T = TypeVar("T")


class Decoding:
    """Decodes a few bodies at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, decode: Callable[[bytes], T], body: bytes) -> T:
        """What ``decode`` makes of a body.

        Raises:
            FetchError: ``invalid``, where it raises a DocumentError; a lasting one where the body holds too much.
        """
        try:
            if len(body) <= LONG_BODY_BYTES:
                return decode(body)
            async with self._turns:
                return await asyncio.to_thread(decode, body)
        except DocumentError as error:
            raise refused(error) from error


def refused(error: DocumentError) -> FetchError:
    """The failure of a source whose document cannot be used."""
    return FetchError(SourceState.INVALID, str(error), lasting=isinstance(error, ExcessError))
