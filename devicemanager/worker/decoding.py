"""Decodes bodies: short ones in slices on the event loop, long ones in a thread.

A thread does not make it quicker, and code that holds the interpreter's lock stops the loop from any thread: what
may come here is bounded by ``wire.bounds`` first, and is Python code for the most part, which gives way every 5 ms.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from devicemanager.errors import DocumentError
from devicemanager.transport.failures import unreadable
from devicemanager.worker.slices import Slices

LONG_BODY_BYTES: Final = 64 * 1024
"""A longer body is decoded in a thread. A snapshot of 16 cards takes 8 KiB, and half a millisecond."""

AT_ONCE: Final = 2

T = TypeVar("T")


class Decoding:
    """Decodes a few bodies at a time, in the order in which they came: the answers of a list come all at once."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._slices = Slices()

    async def __call__(self, decode: Callable[[bytes], T], body: bytes) -> T:
        """What ``decode`` makes of a body.

        Raises:
            FetchError: ``invalid``, where it raises a DocumentError; a lasting one where the body holds too much.
        """
        if len(body) <= LONG_BODY_BYTES:
            return await self.on_the_loop(decode, body)
        async with self._turns:
            with _refusing():
                return await asyncio.to_thread(decode, body)

    async def on_the_loop(self, decode: Callable[[bytes], T], body: bytes) -> T:
        """The same of a body of any length, for what is quick: it never waits for what is decoded in threads.

        Raises:
            FetchError: As above.
        """
        with _refusing():
            [decoded] = await self._slices.map(decode, [body])
        return decoded


@contextmanager
def _refusing() -> Iterator[None]:
    """Makes the failure of a source of a document that cannot be used."""
    try:
        yield
    except DocumentError as error:
        raise unreadable(error) from error
