"""Replies with records in them: how many bytes of them there are at the same time, and how they leave.

A reader that takes its reply slowly keeps it in memory. So a reply takes room before its records are read, keeps as
much as it turns out to need, and gives it back when it has been handed to the connection. It is handed over in pieces,
because a connection would take all of it at once and keep it where nobody counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ingest_api.settings import GatewaySettings
from lakelog.flow import Room, Share

PIECE_BYTES = 256 * 1024

T = TypeVar("T")


class Replies:
    """What the replies of all requests share."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.room = Room(settings.replies_bytes_max, settings.replies_wait_ms, "replies_bytes_max")

    def hold(self, size: int) -> Held:
        return Held(self.room, size)


class Held:
    """The room of one reply, as a context. A response that is made inside of it takes it over."""

    def __init__(self, room: Room, size: int) -> None:
        self._share = Share(room)
        self._size = size
        self._handed_over = False

    async def take(self, size: int) -> None:
        """So much more, for what is still to be read."""
        await self._share.take(size)

    def resize(self, size: int) -> None:
        """The reply is so large by now: it is here already, so it does not ask."""
        if size > self._share.bytes:
            self._share.claim(size - self._share.bytes)
        else:
            self._share.keep(size)

    async def while_idle(self, waiting: Awaitable[T | None]) -> T | None:
        """The outcome of something that may wait long, without room meanwhile. If there is one, the room is back."""
        self.resize(0)
        outcome = await waiting
        if outcome is not None:
            await self._share.take(self._size)
        return outcome

    def response(self, body: bytes | memoryview, media_type: str, headers: Mapping[str, str]) -> Response:
        self.resize(len(body))
        self.hand_over()
        return HeldResponse(self, body, media_type, headers)

    def hand_over(self) -> None:
        """From now on somebody else gives it back, by `release`."""
        self._handed_over = True

    def release(self) -> None:
        self.resize(0)

    async def __aenter__(self) -> Self:
        await self._share.take(self._size)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._handed_over:
            self.release()


class HeldResponse(Response):
    """A body that leaves in pieces, and whose room is given back with the last of them."""

    def __init__(self, held: Held, body: bytes | memoryview, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for piece in pieces_of(self.body):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            # Nothing is left to send, but this waits until the connection has let go of what came before.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._held.release()


def pieces_of(body: bytes | memoryview) -> Iterator[bytes | memoryview]:
    if len(body) <= PIECE_BYTES:
        yield body
        return
    whole = memoryview(body)
    for start in range(0, len(whole), PIECE_BYTES):
        yield whole[start : start + PIECE_BYTES]
