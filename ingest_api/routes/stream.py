"""Streams: one reply that goes on as records arrive, as NDJSON or as server-sent events.

At most one chunk is under way to a reader; the next is fetched when it has been taken. Who leaves, on either side, ends
the stream between two records, and each event's id is the place to go on from.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from ingest_api import media
from ingest_api.encoding.records_out import events, json_lines
from ingest_api.errors import HttpError, as_http, error_body
from ingest_api.gateway import Gateway, gateway_of
from ingest_api.media import Embedded
from ingest_api.positions import parse_exact, parse_offset, resolve
from ingest_api.replies import pieces_of
from ingest_api.routes.fetch import Offset, PartitionNumber, Positions, Timestamp, TopicName, topic_positions
from ingest_api.routes.schemas import STREAMED
from lakelog.errors import LakelogError
from lakelog.fetch import Fetched, FetchFrom, size_of

CHUNK_BYTES = 256 * 1024

Format = Annotated[Embedded, Query(description="How keys and values are written")]
Limit = Annotated[int | None, Query(description="End after so many records", ge=1)]

router = APIRouter(tags=["stream"])


@router.get(
    "/topics/{topic}/partitions/{partition}/stream",
    summary="Follow a partition",
    response_class=StreamingResponse,
    responses=STREAMED,
)
async def stream_partition(
    request: Request,
    topic: TopicName,
    partition: PartitionNumber,
    offset: Offset = "earliest",
    timestamp: Timestamp = None,
    format: Format = Embedded.JSON,
    limit: Limit = None,
) -> StreamingResponse:
    gateway = gateway_of(request)
    start = await resolve(gateway.broker, topic, partition, parse_offset(offset), timestamp)
    (await gateway.broker.topics.get(topic)).partition(partition)
    resumed = _last_event(request)
    follower = Follower(gateway, topic, {partition: resumed.get(partition, start)}, format, limit, every=False)
    return _response(request, follower)


@router.get(
    "/topics/{topic}/stream",
    summary="Follow all partitions of a topic",
    response_class=StreamingResponse,
    responses=STREAMED,
)
async def stream_topic(
    request: Request,
    topic: TopicName,
    positions: Positions = "",
    offset: Offset = "earliest",
    timestamp: Timestamp = None,
    format: Format = Embedded.JSON,
    limit: Limit = None,
) -> StreamingResponse:
    gateway = gateway_of(request)
    starts = await topic_positions(gateway, topic, positions, offset, timestamp)
    follower = Follower(gateway, topic, {**starts, **_last_event(request)}, format, limit, every=True)
    return _response(request, follower)


def _last_event(request: Request) -> dict[int, int]:
    return parse_exact(request.headers.get("last-event-id", ""))


def _response(request: Request, follower: Follower) -> StreamingResponse:
    kind = media.negotiate(request.headers.get("accept", ""), media.STREAMS_OUT)
    body = follower.events() if kind == media.EVENTS else follower.lines()
    # Proxies that gather replies would hold back what is to be seen at once.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(body, media_type=kind, headers=headers)


class Follower:
    """Where one reader stands in a topic, and what it is sent next."""

    def __init__(
        self,
        gateway: Gateway,
        topic: str,
        positions: dict[int, int],
        embedded: Embedded,
        limit: int | None,
        *,
        every: bool,
    ) -> None:
        self._gateway = gateway
        self._topic = topic
        self._positions = positions
        self._embedded = embedded
        self._left = limit
        self._every = every  # partitions that are added meanwhile are followed too
        self._turn = 0

    def lines(self) -> AsyncIterator[bytes | memoryview]:
        return self._body(
            b"\n", lambda chunk: json_lines(chunk, self._embedded), lambda error: error_body(error) + b"\n"
        )

    def events(self) -> AsyncIterator[bytes | memoryview]:
        return self._body(
            b": nothing new\n\n",
            lambda chunk: events(chunk, self._embedded, self._event_ids(chunk)),
            lambda error: b"event: error\ndata: " + error_body(error) + b"\n\n",
        )

    async def _body(
        self, idle: bytes, written: Callable[[Fetched], memoryview], refusal: Callable[[HttpError], bytes]
    ) -> AsyncIterator[bytes | memoryview]:
        """The reply is long under way when something goes wrong, so that is the last thing it says."""
        gateway = self._gateway
        try:
            while not gateway.stopping.is_set() and self._left != 0:
                async with gateway.replies.hold(CHUNK_BYTES) as held:
                    fetched = await self._fetch()
                    size = size_of(fetched)
                    for chunk in filter(_has_rows, map(self._cut, fetched)):
                        body = written(chunk)
                        held.resize(max(size, len(body)))
                        for piece in pieces_of(body):
                            yield piece
                        # The ids of a chunk are made from where the reader stood before it.
                        self._positions[chunk.partition] = chunk.next_offset
                if not any(map(_has_rows, fetched)):
                    self._step_over(fetched)
                    while await gateway.unless_stopping(self._more()) is False:
                        yield idle
        except LakelogError as error:
            yield refusal(as_http(error))
        except HttpError as error:  # a record that the reader's format can't write
            yield refusal(error)

    async def _fetch(self) -> list[Fetched]:
        """What there is now."""
        await self._take_in_partitions()
        # Each partition is the first in its turn, so that a busy one does not keep the others waiting.
        order = sorted(self._positions)
        self._turn += 1
        turn = self._turn % len(order)
        requests = [
            FetchFrom(self._topic, partition, self._positions[partition]) for partition in order[turn:] + order[:turn]
        ]
        replies = await self._gateway.broker.fetch(requests, max_bytes=CHUNK_BYTES, min_bytes=0)
        for reply in replies:
            if reply.error is not None:
                raise reply.error
        return replies

    async def _take_in_partitions(self) -> None:
        topic = await self._gateway.broker.topics.get(self._topic)
        if self._every:
            for partition in range(len(topic.state.partitions)):
                self._positions.setdefault(partition, 0)

    async def _more(self) -> bool:
        """Wait for records, and no longer than for a sign of life; whether there are some."""
        await self._take_in_partitions()
        places = [FetchFrom(self._topic, partition, offset) for partition, offset in self._positions.items()]
        return await self._gateway.broker.fetch_path.wait_past(places, self._gateway.settings.heartbeat_ms)

    def _step_over(self, replies: list[Fetched]) -> None:
        for reply in replies:
            self._positions[reply.partition] = reply.next_offset

    def _cut(self, reply: Fetched) -> Fetched:
        """No more records than the reader asked for."""
        if self._left is None:
            return reply
        count = min(self._left, reply.rows.num_rows)
        self._left -= count
        if count == reply.rows.num_rows:
            return reply
        rows = reply.rows.slice(0, count)
        end = int(rows.column("offset")[-1].as_py()) + 1 if count else self._positions[reply.partition]
        return Fetched(reply.topic, reply.partition, rows, end)

    def _event_ids(self, chunk: Fetched) -> pa.Array:
        """Where the reader stands after each record: the other partitions as they are, this one past the record."""
        before, after = "", ""
        for partition in sorted(self._positions):
            if partition < chunk.partition:
                before += f"{partition}:{self._positions[partition]},"
            elif partition > chunk.partition:
                after += f",{partition}:{self._positions[partition]}"
        next_offsets = pc.add(chunk.rows.column("offset").combine_chunks(), 1).cast(pa.string()).cast(pa.binary())
        prefix = pa.scalar(f"{before}{chunk.partition}:".encode(), pa.binary())
        suffix = pa.scalar(after.encode(), pa.binary())
        return pc.binary_join_element_wise(prefix, next_offsets, suffix, pa.scalar(b"", pa.binary()))


def _has_rows(reply: Fetched) -> bool:
    return bool(reply.rows.num_rows)
