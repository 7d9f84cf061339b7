"""Fetch without a session: the reader says where it stands, the reply says where to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from ingest_api import media
from ingest_api.encoding.records_out import arrow_stream, json_list
from ingest_api.gateway import Gateway, gateway_of
from ingest_api.positions import INT64_MAX, format_positions, parse_offset, parse_positions, resolve
from lakelog.fetch import Fetched, FetchFrom

INT32_MAX = 2**31 - 1

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


@router.get("/topics/{topic}/partitions/{partition}/records", summary="Fetch from a partition", response_class=Response)
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
    (reply,) = await _fetch(gateway, topic, {partition: start}, Wanted(max_bytes, min_bytes, timeout))
    headers = {
        "Lakelog-High-Watermark": str(reply.high_watermark),
        "Lakelog-Log-Start-Offset": str(reply.log_start_offset),
        "Lakelog-Next-Offset": str(reply.next_offset),
    }
    return await _response(gateway, [reply], kind, headers)


@router.get("/topics/{topic}/records", summary="Fetch from all partitions of a topic", response_class=Response)
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
    replies = await _fetch(gateway, topic, starts, Wanted(max_bytes, min_bytes, timeout))
    headers = {
        "Lakelog-High-Watermark": format_positions({reply.partition: reply.high_watermark for reply in replies}),
        "Lakelog-Log-Start-Offset": format_positions({reply.partition: reply.log_start_offset for reply in replies}),
        "Lakelog-Next-Offset": format_positions({reply.partition: reply.next_offset for reply in replies}),
    }
    return await _response(gateway, replies, kind, headers)


async def topic_positions(
    gateway: Gateway, topic: str, positions: str, offset: str, timestamp: int | None
) -> dict[int, int]:
    """Where to begin in every partition of a topic."""
    named = parse_positions(positions)
    other = parse_offset(offset)
    partitions = len((await gateway.broker.topics.get(topic)).state.partitions)
    return {
        partition: await resolve(
            gateway.broker,
            topic,
            partition,
            named.get(partition, other),
            None if partition in named else timestamp,
        )
        for partition in sorted({*range(partitions), *named})
    }


async def _fetch(gateway: Gateway, topic: str, starts: dict[int, int], wanted: Wanted) -> list[Fetched]:
    settings = gateway.broker.settings
    requests = [FetchFrom(topic, partition, start, wanted.max_bytes) for partition, start in starts.items()]
    # What is allowed for one partition is allowed for all of them together, if nobody says.
    limit = min(wanted.max_bytes or max(settings.fetch_partition_max_bytes, 1), settings.fetch_max_bytes)

    async def read(wait_ms: int) -> list[Fetched]:
        return await gateway.broker.fetch(requests, max_bytes=limit, min_bytes=wanted.min_bytes, max_wait_ms=wait_ms)

    wait_ms = min(wanted.timeout_ms, gateway.settings.request_timeout_ms)
    replies = await gateway.unless_stopping(read(wait_ms)) if wait_ms else None
    if replies is None:
        replies = await read(0)
    for reply in replies:
        if reply.error is not None:
            raise reply.error
    return replies


async def _response(gateway: Gateway, replies: Sequence[Fetched], kind: str, headers: dict[str, str]) -> Response:
    embedded = media.RECORDS_OUT[kind]
    size = sum(reply.size_bytes for reply in replies)
    if embedded is None:
        body: bytes | memoryview = memoryview(await gateway.compute(size, lambda: arrow_stream(replies)))
    else:
        body = await gateway.compute(size, lambda: json_list(replies, embedded))
    return Response(body, headers=headers, media_type=kind)
