"""One connection: requests in, replies out in the same order, within limits.

Requests are answered one at a time, as Kafka does, with one exception: a request that has its place in line (a produce
request, once its records wait for their commit) lets the next one be taken up, or a producer with five requests under
way would wait for five commits instead of one. What a connection holds is bounded: frames that wait, bytes that wait,
replies that wait, and the time that a half request or an untaken reply may stay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from ingest_api.gateway import Gateway
from ingest_api.kafka.apis import API_VERSIONS, APIS, Api, unsupported_version_reply
from ingest_api.kafka.calls import Call, Hangup, Later, Node
from ingest_api.kafka.frames import FrameBuffer, FrameTooLarge
from ingest_api.kafka.schemas import Reply, is_flexible, request_schema, response_schema
from ingest_api.kafka.wire import LEGACY_TEXT, Cursor, Malformed, read_int16, read_int32
from lakelog.errors import LakelogError

log = logging.getLogger(__name__)

# A frame up to this size is counted when it is here; a larger one asks for room before it is read.
SMALL_FRAME_BYTES = 64 * 1024
# Reading stops while so much is waiting to be taken up.
WAITING_FRAMES_MAX = 16
WAITING_BYTES_MAX = 1024 * 1024
# Produce requests that wait for their commits at the same time. Clients send 5 unless told otherwise.
REPLIES_WAITING_MAX = 64
WRITE_BUFFER_BYTES = 256 * 1024

Pieces: TypeAlias = list[bytes | memoryview]

_read_client_id = LEGACY_TEXT[0]


@dataclass(frozen=True, slots=True)
class _Due:
    """A reply that is still to come: to which request, and since when."""

    call: Call
    api: Api
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
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._handled_bytes = 0  # of the frame that is being answered
        self._room_bytes = 0  # what of the gateway's room is ours
        self._asking_for_room: asyncio.Task[None] | None = None
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
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
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
        self._waiting.extend(frames)
        self._waiting_bytes += sum(map(len, frames))
        missing = self._room_needed - self._room_bytes
        if missing > 0 and self._frames.under_way_bytes > SMALL_FRAME_BYTES:
            self._transport.pause_reading()
            self._asking_for_room = asyncio.get_running_loop().create_task(self._ask_for_room(missing))
        elif missing > 0:
            self._gateway.bodies.room.claim(missing)
            self._room_bytes += missing
        if self._waiting:
            self._arrived.set()
            if self._too_much_waits:
                self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        for task in (self._asking_for_room, self._sender, self._server):
            if task is not None:
                task.cancel()
        self._gateway.bodies.room.leave(self._room_bytes)
        self._room_bytes = 0
        while self._due:
            due = self._due.popleft()
            due.later.abandon()
            due.call.until_sent.close()
        self._on_close(self)

    # Limits.

    @property
    def busy(self) -> bool:
        return not self._idle.is_set() or self._sender is not None

    @property
    def half_request(self) -> bool:
        """Whether the rest of a request is to come, and it is the client that we wait for."""
        return self._frames.under_way_bytes > 0 and not self._waiting and self._asking_for_room is None

    @property
    def _too_much_waits(self) -> bool:
        return len(self._waiting) >= WAITING_FRAMES_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    @property
    def _room_needed(self) -> int:
        under_way = self._frames.under_way_bytes
        return self._waiting_bytes + self._handled_bytes + (under_way if under_way > SMALL_FRAME_BYTES else 0)

    async def _ask_for_room(self, size: int) -> None:
        try:
            await self._gateway.bodies.room.enter(size)
        except LakelogError as error:
            self._refuse(error.message, "bodies_bytes_max")
            return
        self._room_bytes += size
        self._asking_for_room = None
        self._resume_reading()

    def _give_room_back(self) -> None:
        spare = self._room_bytes - self._room_needed
        if spare > 0:
            self._room_bytes -= spare
            self._gateway.bodies.room.leave(spare)

    def _resume_reading(self) -> None:
        held_up = self._stopping or self._asking_for_room is not None or self._too_much_waits
        if not held_up and not self._transport.is_closing():
            self._transport.resume_reading()

    def _refuse(self, reason: str, limit: str) -> None:
        self._gateway.metrics.refused.labels(limit).inc()
        self.close(reason, logging.WARNING)

    def close(self, reason: str, level: int = logging.INFO) -> None:
        log.log(level, "the connection of %s is closed: %s", self.client_host, reason)
        self._transport.abort()

    async def drain(self) -> None:
        """Take no more requests, finish those that are under way, close."""
        self._stopping = True
        self._transport.pause_reading()
        self._waiting.clear()
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
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._handled_bytes = len(frame)
                self._idle.clear()
                self._resume_reading()
                try:
                    await self._answer(frame)
                finally:
                    self._idle.set()
                    self._handled_bytes = 0
                    self._give_room_back()
        except Malformed as error:
            self._refuse(f"a request can't be read: {error}", "malformed")
        except Exception:
            log.exception("a request of %s failed", self.client_host)
            self._transport.abort()

    async def _answer(self, frame: bytes) -> None:
        started = time.perf_counter()
        cursor = Cursor(frame)
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
        call = Call(self._gateway, self._node, request, version, client_id, self.client_host, self._reached_at)
        with call.until_sent as until_sent:
            outcome = await api.handler(call)
            if isinstance(outcome, Later):
                call.until_sent = until_sent.pop_all()
                self._send_when_due(_Due(call, api, correlation_id, outcome, started))
            elif outcome is not None:
                await self._send(correlation_id, outcome, api, version)
        if not isinstance(outcome, Later):
            self._gateway.metrics.kafka_answered(api.name, time.perf_counter() - started)
        elif len(self._due) >= REPLIES_WAITING_MAX:
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
                pieces: Pieces = []
                answered = 0
                # Those that shared a commit are ready together, and go out together.
                while answered < len(self._due) and (not answered or self._due[answered].later.ready()):
                    due = self._due[answered]
                    reply = await due.later.reply()
                    if reply is not None:
                        pieces += _encoded(due.correlation_id, reply, due.api, due.call.version)
                    answered += 1
                if pieces:
                    await self._write(pieces)
                for _ in range(answered):
                    due = self._due.popleft()
                    due.call.until_sent.close()
                    self._gateway.metrics.kafka_answered(due.api.name, time.perf_counter() - due.started)
        except Hangup as reason:
            self.close(str(reason))
        except Exception:
            log.exception("a reply to %s failed", self.client_host)
            self._transport.abort()
        finally:
            self._sender = None

    async def _send(self, correlation_id: int, reply: Reply, api: Api, version: int) -> None:
        await self._write(_encoded(correlation_id, reply, api, version))

    async def _write(self, pieces: Pieces) -> None:
        if self._transport.is_closing():
            return
        self._transport.writelines(pieces)
        if not self._can_write.is_set():
            try:
                async with asyncio.timeout(self._gateway.settings.reply_timeout_ms / 1000):
                    await self._can_write.wait()
            except TimeoutError:
                self._refuse("it does not take its replies", "reply_timeout_ms")


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
