"""Fetch without a session: the reader says where it stands, the reply says where to go on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from ingest_api import media
from ingest_api.encoding.records_out import arrow_stream, json_list
from ingest_api.gateway import Gateway, gateway_of
from ingest_api.positions import INT32_MAX, INT64_MAX, format_positions, parse_offset, parse_positions, resolve
from ingest_api.replies import Held
from ingest_api.routes.schemas import FETCHED
from lakelog.errors import LakelogError
from lakelog.fetch import Fetched, FetchFrom, enough, joined, size_of

TopicName = Annotated[str, Path(description="The topic's name")]
PartitionNumber = Annotated[int, Path(description="The partition's number", ge=0, le=INT32_MAX)]
Offset = Annotated[str, Query(description="Where to begin: a number, earliest or latest")]
Timestamp = Annotated[
    int | None,
    Query(description="Or: at the first record of this time, in ms since 1970, or later", ge=0, le=INT64_MAX // 1000),
]
Positions = Annotated[str, Query(description="Where to begin in each partition, as 0:17,1:earliest")]
MaxBytes = Annotated[int | None, Query(description="At most so many bytes of records", ge=1, le=INT32_MAX)]
MinBytes = Annotated[int, Query(description="Wait for so many bytes of records", ge=0, le=INT32_MAX)]
Timeout = Annotated[int, Query(description="How many milliseconds to wait for them", ge=0, le=INT32_MAX)]

router = APIRouter(tags=["fetch"])


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much a fetch takes and waits for."""

    max_bytes: int | None
    min_bytes: int
    timeout_ms: int


@router.get(
    "/topics/{topic}/partitions/{partition}/records",
    summary="Fetch from a partition",
    response_class=Response,
    responses=FETCHED,
)
async def fetch_partition(
    request: Request,
    topic: TopicName,
    partition: PartitionNumber,
    offset: Offset = "earliest",
    timestamp: Timestamp = None,
    max_bytes: MaxBytes = None,
    min_bytes: MinBytes = 1,
    timeout: Timeout = 0,  # noqa: ASYNC109 - the name of the parameter of the request
) -> Response:
    gateway = gateway_of(request)
    kind = media.negotiate(request.headers.get("accept", ""), tuple(media.RECORDS_OUT))
    start = await resolve(gateway.broker, topic, partition, parse_offset(offset), timestamp)
    return await _answer(
        request, topic, {partition: start}, Wanted(max_bytes, min_bytes, timeout), kind, _partition_headers
    )


@router.get(
    "/topics/{topic}/records",
    summary="Fetch from all partitions of a topic",
    response_class=Response,
    responses=FETCHED,
)
async def fetch_topic(
    request: Request,
    topic: TopicName,
    positions: Positions = "",
    offset: Offset = "earliest",
    timestamp: Timestamp = None,
    max_bytes: MaxBytes = None,
    min_bytes: MinBytes = 1,
    timeout: Timeout = 0,  # noqa: ASYNC109 - the name of the parameter of the request
) -> Response:
    gateway = gateway_of(request)
    kind = media.negotiate(request.headers.get("accept", ""), tuple(media.RECORDS_OUT))
    starts = await topic_positions(gateway, topic, positions, offset, timestamp)
    return await _answer(request, topic, starts, Wanted(max_bytes, min_bytes, timeout), kind, _topic_headers)


def _partition_headers(replies: Sequence[Fetched]) -> dict[str, str]:
    (reply,) = replies
    return {
        "Lakelog-High-Watermark": str(reply.high_watermark),
        "Lakelog-Log-Start-Offset": str(reply.log_start_offset),
        "Lakelog-Next-Offset": str(reply.next_offset),
    }


def _topic_headers(replies: Sequence[Fetched]) -> dict[str, str]:
    return {
        "Lakelog-High-Watermark": format_positions({reply.partition: reply.high_watermark for reply in replies}),
        "Lakelog-Log-Start-Offset": format_positions({reply.partition: reply.log_start_offset for reply in replies}),
        "Lakelog-Next-Offset": format_positions({reply.partition: reply.next_offset for reply in replies}),
    }


async def topic_positions(
    gateway: Gateway, topic: str, positions: str, offset: str, timestamp: int | None
) -> dict[int, int]:
    """Where to begin in every partition of a topic."""
    named = parse_positions(positions)
    other = parse_offset(offset)
    count = len((await gateway.broker.topics.get(topic)).state.partitions)
    return {
        partition: await resolve(
            gateway.broker,
            topic,
            partition,
            named.get(partition, other),
            None if partition in named else timestamp,
        )
        for partition in sorted({*range(count), *named})
    }


async def _answer(
    request: Request,
    topic: str,
    starts: Mapping[int, int],
    wanted: Wanted,
    kind: str,
    headers_of: Callable[[Sequence[Fetched]], dict[str, str]],
) -> Response:
    gateway = gateway_of(request)
    settings = gateway.broker.settings
    # What is allowed for one partition is allowed for all of them together, if nobody says.
    limit = min(wanted.max_bytes or settings.fetch_partition_max_bytes, settings.fetch_max_bytes)
    async with gateway.replies.hold(limit) as held:
        replies = await _fetch(request, held, topic, starts, wanted, limit)
        return held.response(await _body(gateway, replies, kind), kind, headers_of(replies))


async def _fetch(
    request: Request, held: Held, topic: str, starts: Mapping[int, int], wanted: Wanted, limit: int
) -> list[Fetched]:
    """What is there now, and if that is not enough what arrives in time. Who waits holds no more room than it has, and
    takes room before it reads on.
    """
    gateway = gateway_of(request)
    clock = gateway.broker.clock
    deadline_ms = clock.monotonic_ms() + min(wanted.timeout_ms, gateway.settings.request_timeout_ms)
    replies = await _read(gateway, topic, starts, limit, at_least_one=True)
    while True:
        _raise_error(replies)
        size = size_of(replies)
        held.resize(size)
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0 or enough(replies, min(wanted.min_bytes, limit)):
            return replies
        ends = {reply.partition: reply.next_offset for reply in replies}
        places = [FetchFrom(topic, partition, end) for partition, end in ends.items()]
        if not await gateway.unless_stopping(gateway.broker.fetch_path.wait_past(places, left_ms), request):
            return replies
        try:
            await held.take(limit - size)
        except LakelogError:
            if size:  # there is something to answer
                return replies
            raise
        replies = joined(replies, await _read(gateway, topic, ends, limit - size, at_least_one=not size))


async def _read(
    gateway: Gateway, topic: str, positions: Mapping[int, int], limit: int, *, at_least_one: bool
) -> list[Fetched]:
    """What there is, in the order of the positions. Any partition may be the first to be read: if it were the same one
    each time, a reader that is slower than its writers would never get to the others.
    """
    requests = [FetchFrom(topic, partition, start, limit) for partition, start in positions.items()]
    turn = random.randrange(len(requests))
    replies = await gateway.broker.fetch(
        requests[turn:] + requests[:turn], max_bytes=limit, min_bytes=0, at_least_one=at_least_one
    )
    return replies[len(replies) - turn :] + replies[: len(replies) - turn]


def _raise_error(replies: Sequence[Fetched]) -> None:
    for reply in replies:
        if reply.error is not None:
            raise reply.error


async def _body(gateway: Gateway, replies: Sequence[Fetched], kind: str) -> bytes | memoryview:
    embedded = media.RECORDS_OUT[kind]
    if embedded is None:
        return memoryview(await gateway.compute(size_of(replies), lambda: arrow_stream(replies)))
    return await gateway.compute(size_of(replies), lambda: json_list(replies, embedded))
