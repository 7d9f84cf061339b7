"""Fetch: record batches out, of several partitions at once, after a wait for enough of them.

Topics go by name up to version 12, and by id since: one that was created anew under its old name is another one.

Fetch sessions are refused the way that Kafka refuses one when it has too many: the reply names no session, and the
client asks for all of its partitions every time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ingest_api.gateway import Gateway
from ingest_api.kafka.calls import LEADER_EPOCH, Call, error_number
from ingest_api.kafka.records.compression import CODECS
from ingest_api.kafka.records.writing import write_batches, write_gap
from ingest_api.kafka.schemas import Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Fetched, FetchFrom, behind, enough, joined, size_of
from lakelog.flow import Share
from lakelog.model.batch import STORED_SCHEMA

log = logging.getLogger(__name__)

# A fetch takes the room that is free for its reply, and waits only where there is less than this.
ROOM_LEAST_BYTES = 1 << 20
NO_SESSION, NEW_SESSION = -1, 0
_ZSTD_SINCE = 10
_IDS_SINCE = 13


async def fetch(call: Call) -> Reply:
    request = call.request
    if request.session_id != 0 or request.session_epoch not in (NO_SESSION, NEW_SESSION):
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND.number, "responses": []}
    asked = await _asked(call)
    replies = await _read(call, asked.wanted, may_wait=not asked.refused)
    starts = {(each.topic, each.partition): each.offset for each in asked.wanted}
    codecs = {name: await _codec(call, name) for name in {reply.topic for reply in replies if reply.rows.num_rows}}

    def encoded() -> list[list[bytes | memoryview]]:
        return [_batches(reply, starts, codecs.get(reply.topic, 0)) for reply in replies]

    # gzip takes its time for few bytes too.
    slow = CODECS["gzip"] in codecs.values()
    batches = await (call.gateway.broker.compute(encoded) if slow else call.gateway.compute(size_of(replies), encoded))
    by_topic = asked.refused
    for reply, records in zip(replies, batches, strict=True):
        by_topic.setdefault((reply.topic, asked.ids[reply.topic]), []).append(_partition(reply, records))
    return {
        "responses": [
            {"topic": name, "topic_id": topic_id, "partitions": partitions}
            for (name, topic_id), partitions in by_topic.items()
        ]
    }


@dataclass(frozen=True, slots=True)
class _Asked:
    """What can be read, and what is refused before, both by the names or ids that the client knows."""

    wanted: list[FetchFrom] = field(default_factory=list)
    ids: dict[str, uuid.UUID | None] = field(default_factory=dict)
    refused: dict[tuple[str, uuid.UUID | None], list[Reply]] = field(default_factory=dict)


async def _asked(call: Call) -> _Asked:
    asked = _Asked()
    for topic in call.request.topics:
        name, code = topic.topic, ErrorCode.NONE.number
        if call.version >= _IDS_SINCE:
            try:
                name = await call.gateway.broker.admin.name_of(str(topic.topic_id))
            except LakelogError as error:
                code = error_number(error)
        asked.ids[name] = topic.topic_id
        for each in topic.partitions:
            if code == ErrorCode.NONE.number and each.current_leader_epoch <= LEADER_EPOCH:
                limit = max(each.partition_max_bytes, 1)  # who asks for nothing gets a record too, as from Kafka
                asked.wanted.append(FetchFrom(name, each.partition, each.fetch_offset, limit))
            else:
                refused = _refused(each.partition, code or ErrorCode.UNKNOWN_LEADER_EPOCH.number)
                asked.refused.setdefault((name, topic.topic_id), []).append(refused)
    return asked


async def _read(call: Call, wanted: Sequence[FetchFrom], *, may_wait: bool) -> list[Fetched]:
    """What there is; and if that is not enough what comes in time. Whoever waits has room for what it has read and no
    more, and takes room before it reads on, so that thousands may wait.
    """
    if not wanted:
        return []
    gateway, request, share = call.gateway, call.request, Share(call.gateway.replies.room)
    call.until_sent.callback(share.keep, 0)
    clock = gateway.broker.clock
    deadline_ms = clock.monotonic_ms() + min(request.max_wait, gateway.settings.request_timeout_ms)
    limit = min(max(1, request.max_bytes), gateway.broker.settings.fetch_max_bytes, sum(_limits(wanted)))
    try:
        replies = await _read_within(gateway, wanted, share, limit, at_least_one=True)
    except LakelogError as error:
        log.info("%s gets no records for now: %s", call.client_host, error)
        return [await _standing(gateway, each) for each in wanted]
    while True:
        size, left_ms = size_of(replies), deadline_ms - clock.monotonic_ms()
        if left_ms <= 0 or not may_wait or size >= limit or enough(replies, request.min_bytes):
            return replies
        places = behind(wanted, replies)
        if not await gateway.unless_stopping(gateway.broker.fetch_path.wait_past(places, left_ms)):
            return replies
        try:
            more = await _read_within(gateway, places, share, limit - size, at_least_one=not size)
        except LakelogError:  # no room for more
            return replies
        replies = joined(replies, more)


async def _read_within(
    gateway: Gateway, wanted: Sequence[FetchFrom], share: Share, limit: int, *, at_least_one: bool
) -> list[Fetched]:
    """What there is, as far as there is room. A first record is read whatever its size, and asks for more room then."""
    before, room = share.bytes, min(limit, max(gateway.replies.room.free, ROOM_LEAST_BYTES))
    await share.take(room)
    replies = await gateway.broker.fetch(wanted, max_bytes=room, min_bytes=0, at_least_one=at_least_one)
    size = size_of(replies)
    if size > room:
        await share.take(size - room)
    share.keep(before + size)
    return replies


async def _standing(gateway: Gateway, place: FetchFrom) -> Fetched:
    """No records, although there may be some: the client comes back for them."""
    nothing = STORED_SCHEMA.empty_table()
    try:
        state = (await gateway.broker.topics.get(place.topic)).partition(place.partition)
    except LakelogError as error:
        return Fetched(place.topic, place.partition, nothing, place.offset, error=error)
    return Fetched(
        place.topic,
        place.partition,
        nothing,
        place.offset,
        high_watermark=state.next_offset,
        log_start_offset=state.log_start_offset,
    )


def _limits(wanted: Sequence[FetchFrom]) -> Iterator[int]:
    return (each.max_bytes or 0 for each in wanted)


async def _codec(call: Call, name: str) -> int:
    """That of the topic, if it names one and the client can know it."""
    try:
        codec = (await call.gateway.broker.topics.get(name)).state.config.compression_type
    except LakelogError:
        return 0  # deleted meanwhile; what was read is sent as it is
    return 0 if codec == "zstd" and call.version < _ZSTD_SINCE else CODECS.get(codec, 0)


def _batches(reply: Fetched, starts: dict[tuple[str, int], int], codec: int) -> list[bytes | memoryview]:
    if reply.rows.num_rows:
        return write_batches(reply, codec)
    start = starts[reply.topic, reply.partition]
    return write_gap(start, reply.next_offset) if reply.error is None and reply.next_offset > start else []


def _partition(reply: Fetched, records: list[bytes | memoryview]) -> Reply:
    if reply.error is not None:
        return _refused(reply.partition, error_number(reply.error))
    return {
        "partition_index": reply.partition,
        "high_watermark": reply.high_watermark,
        "last_stable_offset": reply.high_watermark,
        "log_start_offset": reply.log_start_offset,
        "records": records,
    }


def _refused(partition: int, code: int) -> Reply:
    return {"partition_index": partition, "error_code": code, "high_watermark": -1, "records": b""}
