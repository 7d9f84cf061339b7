"""Produce: record batches in, one outcome per partition; and the ids under which producers number their batches."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ingest_api.gateway import Gateway
from ingest_api.kafka.calls import Call, Hangup, Later, error_number, failed
from ingest_api.kafka.records.envelope import NO_PRODUCER, is_compressed
from ingest_api.kafka.records.reading import Limits, Read, Reading
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.log.producers import ProducerBatch
from lakelog.log.stamp import Appended
from lakelog.model.batch import held_bytes
from lakelog.model.topic import check_not_internal
from lakelog.produce import Acks

ACKS = {acks.value: acks for acks in Acks}
_PRODUCER_ID_BITS = 63


@dataclass(frozen=True, slots=True)
class _Sent:
    """One partition's batch, in line for its commit or refused."""

    topic: str
    partition: int
    outcome: asyncio.Future[Appended] | LakelogError | None


async def produce(call: Call) -> Later:
    """Each partition's batch is an append of its own; those of one topic stand in line together and share a commit."""
    request = call.request
    acks = ACKS.get(request.acks)
    sent = [
        _Sent(topic.name, partition.index, await _submit(call, topic.name, partition, acks))
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    waiting = [each.outcome for each in sent if isinstance(each.outcome, asyncio.Future)]

    def ready() -> bool:
        return all(future.done() for future in waiting)

    def abandon() -> None:
        for future in waiting:
            future.cancel()  # the records go their way; nobody hears of it

    return Later(ready, partial(_reply, call.gateway, sent, acks, waiting, request.timeout), abandon)


async def _submit(
    call: Call, topic: str, sent: Message, acks: Acks | None
) -> asyncio.Future[Appended] | LakelogError | None:
    own_bytes = call.share.bytes
    try:
        if acks is None:
            raise LakelogError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {call.request.acks}; it is 0, 1 or -1")
        if call.request.transactional_id is not None:
            raise _no_transactions()
        check_not_internal(topic)
        if sent.index < 0:  # within, that would be a place that may be chosen
            raise UnknownPartition(f"topic {topic!r} has no partition {sent.index}")
        envelope, records = await _read(call, sent)
        producer = None
        if envelope.producer_id != NO_PRODUCER:
            producer = ProducerBatch(
                envelope.producer_id, envelope.producer_epoch, envelope.base_sequence, stream=sent.index
            )
        # They are here beside the request until they have their place in line, where they are counted as in flight.
        call.share.keep(own_bytes + held_bytes(records))
        return await call.gateway.broker.produce_path.submit(topic, records, acks=acks, producer=producer)
    except LakelogError as error:
        # One like it: that which was raised keeps hold of all that it went through, the request's bytes among it.
        return LakelogError(error.code, error.message)
    finally:
        call.share.keep(own_bytes)


async def _read(call: Call, sent: Message) -> Read:
    """The records of a batch, with room for them beside the request's. What a compressed one comes to is not known
    before it is unpacked, so that is always done in a thread, as far as there is room.
    """
    gateway = call.gateway
    data: memoryview = sent.records if sent.records is not None else memoryview(b"")
    limits = Limits(gateway.broker.settings.request_bytes_max, gateway.settings.request_records_max)
    reading, room = Reading(data, sent.index, limits), 0
    while True:
        await call.share.take(reading.wants - room)
        room = reading.wants
        go_on = partial(reading.go_on, room)
        read = await (gateway.broker.compute(go_on) if is_compressed(data) else gateway.compute(len(data), go_on))
        if read is not None:
            return read


async def _reply(
    gateway: Gateway,
    sent: Sequence[_Sent],
    acks: Acks | None,
    waiting: Sequence[asyncio.Future[Appended]],
    timeout_ms: int,
) -> Reply | None:
    if acks is Acks.NONE:
        _hang_up_on_errors(sent)
        return None
    if still := [future for future in waiting if not future.done()]:
        await asyncio.wait(still, timeout=max(timeout_ms, 1) / 1000)
    by_topic: dict[str, list[Reply]] = {}
    for each in sent:
        by_topic.setdefault(each.topic, []).append(await _partition_reply(gateway, each, timeout_ms))
    return {"responses": [{"name": name, "partition_responses": parts} for name, parts in by_topic.items()]}


def _hang_up_on_errors(sent: Sequence[_Sent]) -> None:
    """As Kafka does: who waits for no reply hears of an error by the end of the connection."""
    for each in sent:
        if isinstance(each.outcome, LakelogError):
            raise Hangup(f"records for {each.topic}-{each.partition} with acks=0 are refused: {each.outcome}")


async def _partition_reply(gateway: Gateway, sent: _Sent, timeout_ms: int) -> Reply:
    try:
        if isinstance(sent.outcome, LakelogError):
            raise sent.outcome
        assert sent.outcome is not None, "only acks=0 has no outcome"
        if not sent.outcome.done():
            sent.outcome.cancel()
            raise LakelogError(
                ErrorCode.REQUEST_TIMED_OUT, f"not committed within {timeout_ms} ms; it may still be stored"
            )
        appended = sent.outcome.result()
        topic = await gateway.broker.topics.get(sent.topic)
        return {
            "index": sent.partition,
            "base_offset": int(appended.offsets[0]),
            "log_append_time": -1 if appended.timestamp_ms is None else appended.timestamp_ms,
            "log_start_offset": topic.partition(sent.partition).log_start_offset,
        }
    except LakelogError as error:
        return {"index": sent.partition, "base_offset": -1, **failed(error)}


async def init_producer_id(call: Call) -> Reply:
    """An id that nobody has: so many bits of chance need no place where those that were given out are kept."""
    if call.request.transactional_id is not None:
        return {"error_code": error_number(_no_transactions()), "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": secrets.randbits(_PRODUCER_ID_BITS) or 1, "producer_epoch": 0}


def _no_transactions() -> LakelogError:
    return LakelogError(ErrorCode.INVALID_REQUEST, "transactions are not supported; leave out transactional.id")
