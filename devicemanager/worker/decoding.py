"""Decodes bodies of peers in short slices on the event loop (``docs/decisions/decoding.md``)."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from devicemanager.errors import DocumentError
from devicemanager.transport.failures import unreadable
from devicemanager.wire.steps import Steps
from devicemanager.worker.slices import Slices

LONG_BODY_BYTES: Final = 256 * 1024
"""A longer body waits for other long ones only. A summary of 110 pods has 200 KiB, a snapshot of 16 cards 8."""

T = TypeVar("T")


class Decoding:
    """Decodes one long and one short body at a time, in the order in which they came: so few take memory at once.

    Args:
        slices: In which all of it is done.
    """

    def __init__(self, slices: Slices | None = None) -> None:
        self._slices = slices or Slices()
        self._short, self._long = asyncio.Lock(), asyncio.Lock()

    async def __call__(self, decode: Callable[[bytes], Steps[T]], body: bytes) -> T:
        """What ``decode`` makes of a body.

        Raises:
            FetchError: ``invalid``, where it raises a DocumentError; a lasting one where the body holds too much.
        """
        async with self._long if len(body) > LONG_BODY_BYTES else self._short:
            try:
                return await self._slices.run(decode(body))
            except DocumentError as error:
                raise unreadable(error) from error
