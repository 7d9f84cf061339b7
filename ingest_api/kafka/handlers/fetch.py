"""Fetch: record batches out, of several partitions at once, after a wait for enough of them.

Fetch sessions are refused the way that Kafka refuses one when it has too many: the reply names no session, and the
client asks for all of its partitions every time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingest_api.kafka.calls import LEADER_EPOCH, Call, error_number
from ingest_api.kafka.records.writing import write_batches, write_gap
from ingest_api.kafka.schemas import Reply
from lakelog.errors import ErrorCode
from lakelog.fetch import Fetched, FetchFrom, enough

NO_SESSION, NEW_SESSION = -1, 0


async def fetch(call: Call) -> Reply:
    request = call.request
    if request.session_id != 0 or request.session_epoch not in (NO_SESSION, NEW_SESSION):
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND.number, "responses": []}
    wanted = [
        FetchFrom(topic.topic, partition.partition, partition.fetch_offset, max(partition.partition_max_bytes, 0))
        for topic in request.topics
        for partition in topic.partitions
    ]
    wrong_epochs = {
        (topic.topic, partition.partition): ErrorCode.UNKNOWN_LEADER_EPOCH
        for topic in request.topics
        for partition in topic.partitions
        if partition.current_leader_epoch > LEADER_EPOCH
    }
    replies = await _read(call, [each for each in wanted if (each.topic, each.partition) not in wrong_epochs])
    starts = {(each.topic, each.partition): each.offset for each in wanted}
    batches = await call.gateway.compute(_size(replies), lambda: [_batches(reply, starts) for reply in replies])
    by_topic: dict[str, list[Reply]] = {}
    for (topic, partition), code in wrong_epochs.items():
        by_topic.setdefault(topic, []).append(_refused(partition, code.number))
    for reply, records in zip(replies, batches, strict=True):
        by_topic.setdefault(reply.topic, []).append(_partition(reply, records))
    return {"responses": [{"topic": name, "partitions": partitions} for name, partitions in by_topic.items()]}


async def _read(call: Call, wanted: Sequence[FetchFrom]) -> list[Fetched]:
    """Twice at the most: what is there, and if that is not enough, once more after a wait. Room is taken for what a
    read may come to, and kept for what it came to, so that thousands may wait.
    """
    gateway, request = call.gateway, call.request
    limit = min(request.max_bytes, gateway.broker.settings.fetch_max_bytes)
    held = gateway.replies.hold(min(limit, sum(each.max_bytes or 0 for each in wanted)))
    async with held:
        replies = await gateway.broker.fetch(wanted, max_bytes=limit)
        held.resize(_size(replies))
        if not enough(replies, request.min_bytes) and request.max_wait > 0:
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


def _batches(reply: Fetched, starts: dict[tuple[str, int], int]) -> list[bytes | memoryview]:
    if reply.rows.num_rows:
        return write_batches(reply)
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
