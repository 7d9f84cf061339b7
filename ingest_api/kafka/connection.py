"""One connection: requests in, replies out in the same order, within limits.

Requests are answered one at a time, as Kafka does, with one exception: a request that has its place in line (a produce
request, once its records wait for their commit) lets the next one be taken up, or a producer with five requests under
way would wait for five commits instead of one.

What connections hold is bounded. A request takes room for its bytes as they arrive, of the room that all requests
share, and gives it back when it has been answered or has its place in line; where there is none, the connection is not
read from. Beside that a connection may have one small request, what came in the same read, and replies that wait for
their commits. A reply goes out in portions, one at a time. And bounded is the time that a request may take to arrive,
and a portion to leave.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

from ingest_api.gateway import Gateway
from ingest_api.kafka.apis import API_VERSIONS, APIS, Api, unsupported_version_reply
from ingest_api.kafka.calls import Call, Hangup, Later, Node
from ingest_api.kafka.frames import FrameBuffer, FrameTooLarge
from ingest_api.kafka.schemas import Reply, is_flexible, request_schema, response_schema
from ingest_api.kafka.wire import LEGACY_TEXT, Cursor, Malformed, read_int16, read_int32
from ingest_api.replies import PIECE_BYTES, pieces_of
from lakelog.errors import LakelogError
from lakelog.flow import Share

log = logging.getLogger(__name__)

# A connection that has no more than this does not ask for room: where there is none it can still do a small request.
SMALL_BYTES = 64 * 1024
# Reading stops while so much is waiting to be taken up.
WAITING_FRAMES_MAX = 16
WAITING_BYTES_MAX = 64 * 1024
# Produce requests that wait for their commits at the same time. Clients send 5 unless told otherwise.
REPLIES_WAITING_MAX = 64

Pieces: TypeAlias = list[bytes | memoryview]

_read_client_id = LEGACY_TEXT[0]


@dataclass(frozen=True, slots=True)
class _Due:
    """A reply that is still to come: to which request, and since when. Of the request itself nothing is kept."""

    api: Api
    version: int
    correlation_id: int
    later: Later
    started: float


class Connection(asyncio.Protocol):
    def __init__(
        self,
        gateway: Gateway,
        node: Node,
        on_open: Callable[[Connection], bool],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._gateway = gateway
        self._node = node
        self._on_open, self._on_close = on_open, on_close
        self._frames = FrameBuffer(gateway.settings.body_bytes_max)
        self._begun: float | None = None  # when the frame began that has not ended
        self._share = Share(gateway.bodies.room)  # what that frame has of the gateway's room
        self._waiting: deque[tuple[bytes, Share]] = deque()
        self._waiting_bytes = 0
        self._handled_bytes = 0  # of the frame that is being answered
        self._asking_for_room: asyncio.Task[None] | None = None
        self._paused_since: float | None = None
        self._arrived, self._idle, self._can_write = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._can_write.set()
        self._due: deque[_Due] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._server: asyncio.Task[None] | None = None
        self._stopping = False
        self.last_heard = time.monotonic()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its ancestors
        self._transport.set_write_buffer_limits(high=PIECE_BYTES)
        peer, reached_at = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.client_host = str(peer[0]) if peer else "unknown"
        self._reached_at = (str(reached_at[0]), int(reached_at[1]))
        if not self._on_open(self):
            self._transport.abort()
            return
        self._server = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self.last_heard = time.monotonic()
        try:
            frames = self._frames.feed(data)
        except FrameTooLarge as error:
            self._refuse(str(error), "body_bytes_max")
            return
        if not self._frames.under_way_bytes:
            self._begun = None
        elif frames or self._begun is None:
            self._begun = self.last_heard
        for frame in frames:
            self._wait_its_turn(frame)
        self._make_room()
        if self._waiting:
            self._arrived.set()
            if self._too_much_waits:
                self._pause_reading()

    def _wait_its_turn(self, frame: bytes) -> None:
        share, self._share = self._share, Share(self._gateway.bodies.room)
        if len(frame) > share.bytes:
            share.claim(len(frame) - share.bytes)
        share.keep(len(frame))
        self._waiting.append((frame, share))
        self._waiting_bytes += len(frame)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        for task in (self._asking_for_room, self._sender, self._server):
            if task is not None:
                task.cancel()
        self._share.keep(0)
        self._drop_waiting()
        while self._due:
            self._due.popleft().later.abandon()
        self._on_close(self)

    # Limits.

    @property
    def busy(self) -> bool:
        return not self._idle.is_set() or self._sender is not None

    def frame_age(self, now: float) -> float:
        """For how long the rest of a request has been waited for, in seconds; what we did not read is not counted."""
        if self._begun is None:
            return 0.0
        return (self._paused_since or now) - self._begun

    @property
    def _too_much_waits(self) -> bool:
        return len(self._waiting) >= WAITING_FRAMES_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    def _make_room(self) -> None:
        """Room for what has arrived of a frame, and as much again: whoever announces much gets no more for that."""
        arrived, missing = self._frames.arrived_bytes, 0
        if arrived > self._share.bytes:
            missing = min(2 * arrived, max(arrived, self._frames.under_way_bytes)) - self._share.bytes
        if not missing:
            return
        held = self._waiting_bytes + self._handled_bytes + arrived
        if held + missing <= SMALL_BYTES or missing < self._gateway.bodies.room.free:
            self._share.claim(missing)
        else:
            self._pause_reading()
            self._asking_for_room = asyncio.get_running_loop().create_task(self._ask_for_room(missing))

    async def _ask_for_room(self, size: int) -> None:
        try:
            await self._share.take(size)
        except LakelogError as error:
            self._refuse(error.message, "bodies_bytes_max")
            return
        self._asking_for_room = None
        self._go_on_reading()

    def _pause_reading(self) -> None:
        if self._paused_since is None:
            self._paused_since = time.monotonic()
            self._transport.pause_reading()

    def _go_on_reading(self) -> None:
        held_up = self._stopping or self._asking_for_room is not None or self._too_much_waits
        if self._paused_since is None or held_up or self._transport.is_closing():
            return
        if self._begun is not None:
            self._begun += time.monotonic() - self._paused_since
        self._paused_since = None
        self._transport.resume_reading()

    def _drop_waiting(self) -> None:
        while self._waiting:
            _, share = self._waiting.popleft()
            share.keep(0)
        self._waiting_bytes = 0

    def _refuse(self, reason: str, limit: str) -> None:
        self._gateway.metrics.refused.labels(limit).inc()
        self.close(reason, logging.WARNING)

    def close(self, reason: str, level: int = logging.INFO) -> None:
        log.log(level, "the connection of %s is closed: %s", self.client_host, reason)
        self._transport.abort()

    def _hang_up(self, reason: Hangup) -> None:
        """Answer nothing more. What has been answered still goes out."""
        log.info("the connection of %s is closed: %s", self.client_host, reason)
        if self._server is not None:
            self._server.cancel()
        self._transport.close()

    async def drain(self) -> None:
        """Take no more requests, finish those that are under way, close."""
        self._stopping = True
        self._pause_reading()
        self._drop_waiting()
        await self._idle.wait()
        await self._all_sent()
        self._transport.close()

    # Requests.

    async def _serve(self) -> None:
        try:
            while True:
                while not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                await self._answer_next()
        except Malformed as error:
            self._refuse(f"a request can't be read: {error}", "malformed")
        except Exception:
            log.exception("a request of %s failed", self.client_host)
            self._transport.abort()

    async def _answer_next(self) -> None:
        """Nothing of the frame is kept beyond this: its room is given back then."""
        frame, share = self._waiting.popleft()
        self._waiting_bytes -= len(frame)
        self._handled_bytes = len(frame)
        self._idle.clear()
        self._go_on_reading()
        try:
            await self._answer(Cursor(frame), share)
        finally:
            self._idle.set()
            self._handled_bytes = 0
            share.keep(0)

    async def _answer(self, cursor: Cursor, share: Share) -> None:
        started = time.perf_counter()
        key, version = read_int16(cursor), read_int16(cursor)
        correlation_id, client_id = read_int32(cursor), _read_client_id(cursor) or ""
        api = APIS.get(key)
        if api is None:
            raise Malformed(f"API {key} is not served")
        if not api.oldest <= version <= api.newest:
            if api is not API_VERSIONS:
                raise Malformed(f"version {version} of {api.name} is not served")
            await self._all_sent()
            await self._send(correlation_id, unsupported_version_reply(), API_VERSIONS, 0)
            return
        if is_flexible(api.name, version):
            _skip_tags(cursor)
        request = request_schema(api.name, version, api.oldest, api.newest).read(cursor)
        if not api.overlaps:
            await self._all_sent()
        call = Call(self._gateway, self._node, request, version, client_id, self.client_host, self._reached_at, share)
        with call.until_sent:
            outcome = await api.handler(call)
            if outcome is not None and not isinstance(outcome, Later):
                await self._send(correlation_id, outcome, api, version)
        if not isinstance(outcome, Later):
            self._gateway.metrics.kafka_answered(api.name, time.perf_counter() - started)
            return
        self._send_when_due(_Due(api, version, correlation_id, outcome, started))
        if len(self._due) >= REPLIES_WAITING_MAX:
            await self._all_sent()

    # Replies.

    def _send_when_due(self, due: _Due) -> None:
        self._due.append(due)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_due())

    async def _all_sent(self) -> None:
        if self._sender is not None:
            await asyncio.wait((self._sender,))

    async def _send_due(self) -> None:
        try:
            while self._due:
                await self._send_those_ready()
        except Hangup as reason:
            self._hang_up(reason)
        except Exception:
            log.exception("a reply to %s failed", self.client_host)
            self._transport.abort()
        finally:
            self._sender = None

    async def _send_those_ready(self) -> None:
        """The next one, and those behind it that are ready with it: who shared a commit goes out together."""
        pieces: Pieces = []
        answered = 0
        try:
            while answered < len(self._due) and (not answered or self._due[answered].later.ready()):
                due = self._due[answered]
                reply = await due.later.reply()
                if reply is not None:
                    pieces += _encoded(due.correlation_id, reply, due.api, due.version)
                answered += 1
        finally:
            if pieces:
                await self._write(pieces)
        for _ in range(answered):
            due = self._due.popleft()
            self._gateway.metrics.kafka_answered(due.api.name, time.perf_counter() - due.started)

    async def _send(self, correlation_id: int, reply: Reply, api: Api, version: int) -> None:
        await self._write(_encoded(correlation_id, reply, api, version))

    async def _write(self, pieces: Pieces) -> None:
        for portion in _portions(pieces):
            if self._transport.is_closing():
                return
            self._transport.writelines(portion)
            if not self._can_write.is_set():
                try:
                    async with asyncio.timeout(self._gateway.settings.reply_timeout_ms / 1000):
                        await self._can_write.wait()
                except TimeoutError:
                    self._refuse("it does not take its replies", "reply_timeout_ms")


def _portions(pieces: Pieces) -> Iterator[Pieces]:
    """What is handed to the transport at once. It would take all of it, and keep it where nobody counts."""
    portion: Pieces = []
    size = 0
    for whole in pieces:
        for piece in pieces_of(whole):
            portion.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                yield portion
                portion, size = [], 0
    if portion:
        yield portion


def _encoded(correlation_id: int, reply: Reply, api: Api, version: int) -> Pieces:
    pieces: Pieces = [b"", correlation_id.to_bytes(4, "big", signed=True)]
    # The reply that clients learn versions from has the old header always: they can't know better yet.
    if api is not API_VERSIONS and is_flexible(api.name, version):
        pieces.append(b"\x00")
    response_schema(api.name, version, api.oldest, api.newest).write(pieces, reply)
    pieces[0] = sum(map(len, pieces)).to_bytes(4, "big")
    return pieces


def _skip_tags(cursor: Cursor) -> None:
    for _ in range(cursor.elements(cursor.unsigned_varint())):
        cursor.unsigned_varint()
        cursor.take(cursor.unsigned_varint())
