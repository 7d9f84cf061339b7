"""Offsets: where partitions begin and end, what was written at a time, and where an epoch ended."""

from __future__ import annotations

import asyncio

from ingest_api.kafka.calls import LEADER_EPOCH, Call, error_number
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Position

# Kafka's numbers for places; those of tiered storage have nothing to tell apart here.
_PLACES = {-1: Position.LATEST, -2: Position.EARLIEST, -3: Position.MAX_TIMESTAMP, -4: Position.EARLIEST}
_NOTHING_TIERED = -5


async def list_offsets(call: Call) -> Reply:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": await asyncio.gather(*(_offset(call, topic.name, each) for each in topic.partitions)),
            }
            for topic in call.request.topics
        ]
    }


async def _offset(call: Call, topic: str, asked: Message) -> Reply:
    nothing = {"partition_index": asked.partition_index, "offset": -1, "timestamp": -1}
    try:
        _check_epoch(asked.current_leader_epoch)
        if asked.timestamp == _NOTHING_TIERED:
            return nothing
        if asked.timestamp < 0 and asked.timestamp not in _PLACES:
            raise LakelogError(ErrorCode.INVALID_REQUEST, f"{asked.timestamp} stands for no place in a log")
        found = await call.gateway.broker.offset_at(
            topic, asked.partition_index, _PLACES.get(asked.timestamp, asked.timestamp)
        )
    except LakelogError as error:
        return {**nothing, "error_code": error_number(error)}
    return {
        "partition_index": asked.partition_index,
        "offset": found.offset,
        "timestamp": found.timestamp_ms,
        "leader_epoch": LEADER_EPOCH if found.offset >= 0 else -1,
    }


async def offset_for_leader_epoch(call: Call) -> Reply:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": await asyncio.gather(*(_epoch_end(call, topic.topic, each) for each in topic.partitions)),
            }
            for topic in call.request.topics
        ]
    }


async def _epoch_end(call: Call, topic: str, asked: Message) -> Reply:
    try:
        _check_epoch(asked.current_leader_epoch)
        end = await call.gateway.broker.offset_at(topic, asked.partition, Position.LATEST)
    except LakelogError as error:
        return {"partition": asked.partition, "error_code": error_number(error)}
    if asked.leader_epoch != LEADER_EPOCH:
        return {"partition": asked.partition}
    return {"partition": asked.partition, "leader_epoch": LEADER_EPOCH, "end_offset": end.offset}


def _check_epoch(epoch: int) -> None:
    if epoch > LEADER_EPOCH:
        raise LakelogError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {epoch}; the newest is {LEADER_EPOCH}")
