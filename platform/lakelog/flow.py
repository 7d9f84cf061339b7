"""Room for bytes on their way: what bounds the memory of a path through the process.

Owns the count and the queue before it; must not know what the bytes are.
"""

from __future__ import annotations

import asyncio
from collections import deque

from lakelog.errors import ErrorCode, LakelogError


class Room:
    """So many bytes at the same time. Who finds no room waits in line, and is refused when that takes too long."""

    def __init__(self, bytes_max: int, wait_ms: int, setting: str) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._wait_ms = wait_ms
        self._setting = setting
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        if not self._queue and self._fits(size):
            self.bytes += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        try:
            await asyncio.wait((turn,), timeout=self._wait_ms / 1000)
        except asyncio.CancelledError:
            self._give_up(size, turn)
            raise
        if not turn.done():
            self._give_up(size, turn)
            raise LakelogError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"no room for {size} bytes within {self._wait_ms} ms: "
                f"{self.bytes} of {self._setting}={self._bytes_max} are taken",
            )

    def claim(self, size: int) -> None:
        """Take room without asking, for bytes that are here already."""
        self.bytes += size

    def leave(self, size: int) -> None:
        self.bytes -= size
        self._let_in()

    def _give_up(self, size: int, turn: asyncio.Future[None]) -> None:
        if turn.done():  # let in at the very moment: the room is not needed any more
            self.leave(size)
        else:
            self._queue = deque(entry for entry in self._queue if entry[1] is not turn)
            self._let_in()  # a large one at the front may have kept smaller ones waiting

    def _fits(self, size: int) -> bool:
        # One that is larger than all the room there is goes alone.
        return self.bytes == 0 or self.bytes + size <= self._bytes_max

    def _let_in(self) -> None:
        while self._queue and self._fits(self._queue[0][0]):
            size, turn = self._queue.popleft()
            self.bytes += size
            turn.set_result(None)
