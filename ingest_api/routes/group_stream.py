"""Groups by push: one request makes a consumer, subscribes it, and is sent its records as they arrive.

The stream is a consumer like any other, with a name under which its reader commits what it has done. It lives as long
as its connection: when that ends, the consumer leaves its group at once, and what was not committed goes to others. A
reader that commits is sent no more than a window of records ahead of what it has committed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from consumer_groups.assignors import TopicPartition
from ingest_api import media
from ingest_api.consumers.ahead import SentAhead
from ingest_api.consumers.consumer import NO_SUCH_CONSUMER, Consumer, Poll
from ingest_api.consumers.options import ConsumerOptions, milliseconds_of, reset_of, switch_of
from ingest_api.encoding.records_out import events, json_lines
from ingest_api.errors import HttpError, as_http, error_body
from ingest_api.gateway import Gateway, gateway_of
from ingest_api.media import Embedded
from ingest_api.positions import INT32_MAX
from ingest_api.replies import Held, pieces_of
from ingest_api.routes.consumers import NAME_LENGTH_MAX, GroupName, base_uri, client_host, subscription_of
from ingest_api.routes.schemas import STREAMED
from ingest_api.routes.stream import CHUNK_BYTES, Format, Limit
from lakelog.errors import LakelogError
from lakelog.fetch import Fetched

SESSION_TIMEOUT_MS = 45_000
WINDOW_RECORDS = 10_000

router = APIRouter(prefix="/consumers", tags=["consumers"])


@router.get(
    "/{group}/stream", summary="Read as a member of a group", response_class=StreamingResponse, responses=STREAMED
)
async def stream_group(
    request: Request,
    group: GroupName,
    topics: Annotated[str | None, Query(description="Topics, with commas between them")] = None,
    topic_pattern: Annotated[str | None, Query(description="Or: all whose whole name fits")] = None,
    name: Annotated[
        str | None,
        Query(description="The consumer's name; drawn if left out", min_length=1, max_length=NAME_LENGTH_MAX),
    ] = None,
    format: Format = Embedded.JSON,
    limit: Limit = None,
    max_unacknowledged: Annotated[
        int, Query(description="Send at most so many records ahead of what is committed", ge=1, le=INT32_MAX)
    ] = WINDOW_RECORDS,
    auto_offset_reset: Annotated[str, Query(alias="auto.offset.reset")] = "latest",
    auto_commit_enable: Annotated[
        str, Query(alias="auto.commit.enable", description="Commit what was sent, without being asked")
    ] = "false",
    session_timeout_ms: Annotated[int, Query(alias="session.timeout.ms")] = SESSION_TIMEOUT_MS,
) -> StreamingResponse:
    gateway = gateway_of(request)
    kind = media.negotiate(request.headers.get("accept", ""), media.STREAMS_OUT)
    options = ConsumerOptions(
        embedded=format,
        reset=reset_of(auto_offset_reset),
        auto_commit=switch_of("auto.commit.enable", auto_commit_enable),
        session_timeout_ms=milliseconds_of("session.timeout.ms", session_timeout_ms, 1),
    )
    wanted = subscription_of(None if topics is None else [each for each in topics.split(",") if each], topic_pattern)
    name, consumer = gateway.consumers.create(group, name, options, client_host(request))
    try:
        await consumer.subscribe(wanted)
    except BaseException:
        await gateway.consumers.delete(group, name)
        raise
    uri = base_uri(request, group, name)
    stream = GroupStream(gateway, consumer, limit, None if options.auto_commit else max_unacknowledged)
    if kind == media.EVENTS:
        body = stream.events(msgspec.json.encode({"instance_id": name, "base_uri": uri}))
    else:
        body = stream.lines()
    # Proxies that gather replies would hold back what is to be seen at once.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Location": uri}
    return StreamingResponse(_while_read(gateway, group, name, body), media_type=kind, headers=headers)


async def _while_read(
    gateway: Gateway, group: str, name: str, body: AsyncGenerator[bytes | memoryview]
) -> AsyncIterator[bytes | memoryview]:
    try:
        async with aclosing(body):
            async for piece in body:
                yield piece
    finally:
        gateway.consumers.abandon(group, name)


class GroupStream:
    """What one reader is sent. `window` is how many records it may have that it has not committed; None for any."""

    def __init__(self, gateway: Gateway, consumer: Consumer, limit: int | None, window: int | None) -> None:
        self._gateway = gateway
        self._consumer = consumer
        self._left = limit
        self._window = window
        self._sent = SentAhead()
        assert consumer.options.embedded is not None
        self._embedded = consumer.options.embedded

    def lines(self) -> AsyncGenerator[bytes | memoryview]:
        return self._body(
            b"", b"\n", lambda chunk: json_lines(chunk, self._embedded), lambda error: error_body(error) + b"\n"
        )

    def events(self, instance: bytes) -> AsyncGenerator[bytes | memoryview]:
        """The first event says under which name the reader commits: a browser can't see headers."""
        return self._body(
            b"event: instance\ndata: " + instance + b"\n\n",
            b": nothing new\n\n",
            lambda chunk: events(chunk, self._embedded),
            lambda error: b"event: error\ndata: " + error_body(error) + b"\n\n",
        )

    async def _body(
        self,
        greeting: bytes,
        idle: bytes,
        written: Callable[[Fetched], memoryview],
        refusal: Callable[[HttpError], bytes],
    ) -> AsyncGenerator[bytes | memoryview]:
        """The reply is long under way when something goes wrong, so that is the last thing it says."""

        async def write(replies: Sequence[Fetched]) -> bytes:
            if self._left is not None:
                self._left -= sum(reply.rows.num_rows for reply in replies)
            if self._window is not None:
                for reply in replies:
                    offsets = reply.rows.column("offset").to_numpy()
                    self._sent.add(TopicPartition(reply.topic, reply.partition), offsets)
            return b"".join([written(reply) for reply in replies if reply.rows.num_rows])

        try:
            async with self._consumer.in_use():
                yield greeting
                while not self._gateway.stopping.is_set() and self._left != 0:
                    async with self._gateway.replies.hold(CHUNK_BYTES) as held:
                        body = await self._next(held, write)
                        held.resize(len(body))
                        for piece in pieces_of(body or idle):
                            yield piece
        except LakelogError as error:
            yield refusal(as_http(error))
        except HttpError as error:
            if error.error_code != NO_SUCH_CONSUMER:  # whoever deletes the consumer ends the stream
                yield refusal(error)

    async def _next(self, held: Held, write: Callable[[Sequence[Fetched]], Awaitable[bytes]]) -> bytes:
        """The next records, or nothing after a while. Who waits has no room meanwhile."""
        consumer, wait_ms = self._consumer, self._gateway.settings.heartbeat_ms
        if self._room() == 0:
            resting = consumer.rest(lambda: self._room() != 0, wait_ms)
            await held.while_idle(self._gateway.unless_stopping(resting))
        room = self._room()
        if room == 0:
            return b""
        bounds = [each for each in (self._left, room) if each is not None]
        poll = Poll(timeout_ms=wait_ms, max_bytes=CHUNK_BYTES, max_records=min(bounds, default=None))
        return await consumer.poll(poll, write, lambda change: held.while_idle(self._gateway.unless_stopping(change)))

    def _room(self) -> int | None:
        """How many records it may be sent now."""
        if self._window is None:
            return None
        return max(0, self._window - self._sent.count(self._consumer.acknowledged, self._consumer.positions))
