"""Fetch: record batches out, of several partitions at once, after a wait for enough of them.

Up to version 12 topics go by name, from then on by id: a topic that was created anew under an old name is another one.
Topics go by name up to version 12, and by id since: one that was created anew under its old name is another one.

Fetch sessions are refused the way that Kafka refuses one when it has too many: the reply names no session, and the
client asks for all of its partitions every time.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest_api.kafka.calls import LEADER_EPOCH, Call, error_number
from ingest_api.kafka.records.compression import CODECS
from ingest_api.kafka.records.writing import write_batches, write_gap
from ingest_api.kafka.schemas import Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Fetched, FetchFrom, enough

NO_SESSION, NEW_SESSION = -1, 0
_ZSTD_SINCE = 10
_IDS_SINCE = 13


async def fetch(call: Call) -> Reply:
    request = call.request
    if request.session_id != 0 or request.session_epoch not in (NO_SESSION, NEW_SESSION):
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND.number, "responses": []}
    asked = await _asked(call)
    replies = await _read(call, asked)
    starts = {(each.topic, each.partition): each.offset for each in asked.wanted}
    codecs = {name: await _codec(call, name) for name in {reply.topic for reply in replies if reply.rows.num_rows}}
    batches = await call.gateway.compute(
        _size(replies), lambda: [_batches(reply, starts, codecs.get(reply.topic, 0)) for reply in replies]
    )
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
                limit = max(each.partition_max_bytes, 0)
                asked.wanted.append(FetchFrom(name, each.partition, each.fetch_offset, limit))
            else:
                refused = _refused(each.partition, code or ErrorCode.UNKNOWN_LEADER_EPOCH.number)
                asked.refused.setdefault((name, topic.topic_id), []).append(refused)
    return asked


async def _read(call: Call, asked: _Asked) -> list[Fetched]:
    """Twice at the most: what is there, and if that is not enough, once more after a wait. Room is taken for what a
    read may come to, and kept for what it came to, so that thousands may wait.
    """
    gateway, request, wanted = call.gateway, call.request, asked.wanted
    limit = min(request.max_bytes, gateway.broker.settings.fetch_max_bytes)
    held = gateway.replies.hold(min(limit, sum(each.max_bytes or 0 for each in wanted)))
    async with held:
        replies = await gateway.broker.fetch(wanted, max_bytes=limit)
        held.resize(_size(replies))
        if not asked.refused and not enough(replies, request.min_bytes) and request.max_wait > 0:
            wait_ms = min(request.max_wait, gateway.settings.request_timeout_ms)
            waited = await gateway.unless_stopping(
                gateway.broker.fetch(wanted, max_bytes=limit, min_bytes=request.min_bytes, max_wait_ms=wait_ms)
            )
            replies = waited if waited is not None else replies
            held.resize(_size(replies))
        call.until_sent.callback(held.release)
        held.hand_over()
    return replies


def _size(replies: Sequence[Fetched]) -> int:
    return sum(reply.size_bytes for reply in replies)


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
