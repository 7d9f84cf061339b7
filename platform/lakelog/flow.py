"""Room for bytes on their way: what bounds the memory of a path through the process.

Owns the count and the lines before it; must not know what the bytes are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from lakelog.errors import ErrorCode, LakelogError


class _Waiting(NamedTuple):
    size: int
    turn: asyncio.Future[None]
    share: Share | None


class Room:
    """So many bytes at the same time. Who finds no room waits in line, and is refused when that takes too long.

    Some learn only by and by how much they are: each has a share that grows. They stand in a line of their own, before
    those who have nothing yet. If every share waited for room, none would ever become whole and be given back: so one
    of them at a time may go beyond the limit, and there is never more than the room and one of them.
    """

    def __init__(self, bytes_max: int, wait_ms: int, setting: str) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._wait_ms = wait_ms
        self._setting = setting
        self._newcomers: deque[_Waiting] = deque()
        self._growing: deque[_Waiting] = deque()
        self._beyond: Share | None = None

    @property
    def free(self) -> int:
        """What whoever comes now would get at once: nothing, as long as others wait."""
        return 0 if self._growing or self._newcomers else max(0, self._bytes_max - self.bytes)

    async def enter(self, size: int) -> None:
        if self._growing or self._newcomers or not self._fits(size):
            await self._wait(self._newcomers, size, None)
        else:
            self.bytes += size

    async def grow(self, share: Share, size: int) -> None:
        """More room for one who has some; asked for by the share itself."""
        if (self._growing and self._beyond is not share) or not self._may_grow(share, size):
            await self._wait(self._growing, size, share)
        else:
            self.bytes += size

    def claim(self, size: int) -> None:
        """Take room without asking, for bytes that are here already."""
        self.bytes += size

    def leave(self, size: int) -> None:
        self.bytes -= size
        self._let_in()

    def end(self, share: Share) -> None:
        """The share has given all of it back."""
        if self._beyond is share:
            self._beyond = None
            self._let_in()

    async def _wait(self, line: deque[_Waiting], size: int, share: Share | None) -> None:
        waiting = _Waiting(size, asyncio.get_running_loop().create_future(), share)
        line.append(waiting)
        try:
            await asyncio.wait((waiting.turn,), timeout=self._wait_ms / 1000)
        except asyncio.CancelledError:
            self._give_up(line, waiting)
            raise
        if not waiting.turn.done():
            self._give_up(line, waiting)
            raise LakelogError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"no room for {size} bytes within {self._wait_ms} ms: "
                f"{self.bytes} of {self._setting}={self._bytes_max} are taken",
            )

    def _give_up(self, line: deque[_Waiting], waiting: _Waiting) -> None:
        if waiting.turn.done():  # let in at the very moment: the room is not needed any more
            self.leave(waiting.size)
        else:
            line.remove(waiting)
            self._let_in()  # a large one at the front may have kept smaller ones waiting
        if waiting.share is not None and not waiting.share.bytes:
            self.end(waiting.share)  # it gave all back while it still stood in line

    def _fits(self, size: int) -> bool:
        # One that is larger than all the room there is goes alone.
        return self.bytes == 0 or self.bytes + size <= self._bytes_max

    def _may_grow(self, share: Share | None, size: int) -> bool:
        if self._fits(size):
            return True
        if self._beyond is None:
            self._beyond = share
        return self._beyond is share

    def _let_in(self) -> None:
        while self._growing and self._may_grow(self._growing[0].share, self._growing[0].size):
            self._admit(self._growing.popleft())
        while not self._growing and self._newcomers and self._fits(self._newcomers[0].size):
            self._admit(self._newcomers.popleft())

    def _admit(self, waiting: _Waiting) -> None:
        self.bytes += waiting.size
        waiting.turn.set_result(None)


class Share:
    """What one has of a room. Whoever took any gives it back with `keep(0)`."""

    __slots__ = ("_room", "bytes")

    def __init__(self, room: Room) -> None:
        self.bytes = 0
        self._room = room

    async def take(self, size: int) -> None:
        """So much more. Raises what `Room.enter` raises, and has then what it had before."""
        if not size:
            return
        if self.bytes:
            await self._room.grow(self, size)
        else:
            await self._room.enter(size)
        self.bytes += size

    def claim(self, size: int) -> None:
        """Take more without asking, for bytes that are here already."""
        self._room.claim(size)
        self.bytes += size

    def keep(self, size: int) -> None:
        """Give back all but so much."""
        spare = self.bytes - size
        if spare > 0:
            self.bytes = size
            self._room.leave(spare)
        if not size:
            self._room.end(self)
