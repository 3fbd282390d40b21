"""The pace at which connections are begun: the handshakes of a hundred that begin together hold up the loop."""

import asyncio
from typing import Final

INTERVAL_S: Final = 0.001
"""Between two connections, of which each takes about as much processor time for its handshake."""

AT_ONCE: Final = 8
"""Connections that need not wait when there were none for a while."""


class Pace:
    """Lets callers through one by one, the first few at once. None waits for another to come to its end."""

    def __init__(self) -> None:
        self._next_s = float("-inf")

    async def turn(self) -> None:
        """Wait for a turn."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s + INTERVAL_S, now_s - AT_ONCE * INTERVAL_S)
        if self._next_s > now_s:
            await asyncio.sleep(self._next_s - now_s)
