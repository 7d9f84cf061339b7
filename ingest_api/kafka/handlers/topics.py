"""Topics created, grown, emptied and deleted. Each topic of a request has its own outcome."""

from __future__ import annotations

from ingest_api.kafka.calls import Call, error_number, failed
from ingest_api.kafka.handlers.cluster import topic_id_of
from ingest_api.kafka.handlers.configs import created_configs
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import check_not_internal

DEFAULT = -1
# The store keeps the copies; whatever number was asked for, this is how many there are here.
REPLICATION_FACTOR = 1


async def create_topics(call: Call) -> Reply:
    return {"topics": [await _create(call, topic) for topic in call.request.topics]}


async def _create(call: Call, new: Message) -> Reply:
    try:
        check_not_internal(new.name)
        if new.replication_factor != DEFAULT and new.replication_factor < 1 and not new.assignments:
            raise LakelogError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"a replication factor of {new.replication_factor}"
            )
        described = await call.gateway.broker.admin.create_topic(
            new.name,
            _partition_count(new),
            {each.name: each.value for each in new.configs if each.value is not None},
            validate_only=call.request.validate_only,
        )
    except LakelogError as error:
        return {"name": new.name, **failed(error), "configs": []}
    return {
        "name": new.name,
        "topic_id": None if call.request.validate_only else topic_id_of(described),
        "num_partitions": len(described.partitions),
        "replication_factor": REPLICATION_FACTOR,
        "configs": created_configs(described.config),
    }


def _partition_count(new: Message) -> int | None:
    if not new.assignments:
        return None if new.num_partitions == DEFAULT else int(new.num_partitions)
    if new.num_partitions != DEFAULT:
        raise LakelogError(
            ErrorCode.INVALID_REQUEST, "a number of partitions and an assignment of them exclude each other"
        )
    if sorted(each.partition_index for each in new.assignments) != list(range(len(new.assignments))):
        raise LakelogError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partitions of the assignment are not 0, 1, 2 and so on"
        )
    return len(new.assignments)


async def delete_topics(call: Call) -> Reply:
    # By name up to version 5, by name or id since.
    asked = call.request.topics or [Message(name=name, topic_id=None) for name in call.request.topic_names]
    return {"responses": [await _delete(call, each) for each in asked]}


async def _delete(call: Call, asked: Message) -> Reply:
    name = asked.name
    try:
        if name is None:
            name = await call.gateway.broker.admin.name_of(str(asked.topic_id))
        check_not_internal(name)
        await call.gateway.broker.admin.delete_topic(name)
    except LakelogError as error:
        return {"name": name, "topic_id": asked.topic_id, **failed(error)}
    return {"name": name, "topic_id": asked.topic_id}


async def create_partitions(call: Call) -> Reply:
    return {"results": [await _grow(call, topic) for topic in call.request.topics]}


async def _grow(call: Call, topic: Message) -> Reply:
    try:
        check_not_internal(topic.name)
        await call.gateway.broker.admin.add_partitions(
            topic.name, topic.count, validate_only=call.request.validate_only
        )
    except LakelogError as error:
        return {"name": topic.name, **failed(error)}
    return {"name": topic.name}


async def delete_records(call: Call) -> Reply:
    return {
        "topics": [
            {"name": topic.name, "partitions": [await _empty(call, topic.name, each) for each in topic.partitions]}
            for topic in call.request.topics
        ]
    }


async def _empty(call: Call, topic: str, before: Message) -> Reply:
    partition = before.partition_index
    try:
        check_not_internal(topic)
        starts = await call.gateway.broker.admin.delete_records(topic, {partition: before.offset})
    except LakelogError as error:
        return {"partition_index": partition, "low_watermark": -1, "error_code": error_number(error)}
    return {"partition_index": partition, "low_watermark": starts[partition]}
