"""The cluster as clients see it: one node, which leads every partition of every topic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from ingest_api.kafka.calls import LEADER_EPOCH, NODE_ID, Call, error_number
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import TopicDescription, is_internal

_ONLY_REPLICA = [NODE_ID]


async def metadata(call: Call) -> Reply:
    host, port = call.address
    return {
        "brokers": [{"node_id": NODE_ID, "host": host, "port": port}],
        "cluster_id": call.node.cluster_id,
        "controller_id": NODE_ID,
        "topics": await _topics(call),
    }


async def _topics(call: Call) -> Sequence[Reply]:
    asked = call.request.topics
    # Version 0 has no null: it asks for all topics by naming none.
    if asked is None or (call.version == 0 and not asked):
        names = await call.gateway.broker.admin.list_topics(internal=True)
        asked = [Message(name=name, topic_id=None) for name in names]
        found = await asyncio.gather(*(_topic(call, each, may_create=False) for each in asked))
        # One that has been deleted since the list was made is no error of the client's.
        return [each for each in found if not each.get("error_code")]
    may_create = call.request.allow_auto_topic_creation
    return await asyncio.gather(*(_topic(call, each, may_create=may_create) for each in asked))


async def _topic(call: Call, asked: Message, *, may_create: bool) -> Reply:
    name: str | None = asked.name
    try:
        if name is None:
            name = await name_of(call, asked.topic_id)
        described = await _described(call, name, may_create=may_create)
    except LakelogError as error:
        return {"error_code": error_number(error), "name": name, "topic_id": asked.topic_id}
    return {
        "name": name,
        "topic_id": topic_id_of(described),
        "is_internal": described.internal,
        "partitions": [
            {
                "partition_index": each.partition,
                "leader_id": NODE_ID,
                "leader_epoch": LEADER_EPOCH,
                "replica_nodes": _ONLY_REPLICA,
                "isr_nodes": _ONLY_REPLICA,
            }
            for each in described.partitions
        ],
    }


async def _described(call: Call, name: str, *, may_create: bool) -> TopicDescription:
    broker = call.gateway.broker
    try:
        return await broker.admin.describe_topic(name)
    except LakelogError as error:
        missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not missing or not may_create or not broker.settings.auto_create_topics_enable or is_internal(name):
            raise
    try:
        return await broker.admin.create_topic(name)
    except LakelogError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return await broker.admin.describe_topic(name)  # another was faster


async def name_of(call: Call, topic_id: uuid.UUID | None) -> str:
    broker = call.gateway.broker
    for name in await broker.admin.list_topics(internal=True) if topic_id is not None else ():
        topic = await broker.topics.get(name)
        if uuid.UUID(topic.state.table_id) == topic_id:
            return name
    raise LakelogError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")


def topic_id_of(described: TopicDescription) -> uuid.UUID:
    return uuid.UUID(described.topic_id)


async def describe_cluster(call: Call) -> Reply:
    host, port = call.address
    return {
        "cluster_id": call.node.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [{"broker_id": NODE_ID, "host": host, "port": port}],
        "endpoint_type": call.request.endpoint_type,
    }


async def describe_log_dirs(call: Call) -> Reply:
    """The warehouse is the one directory."""
    admin = call.gateway.broker.admin
    asked = call.request.topics
    wanted: dict[str, set[int] | None] = {}
    if asked is None:
        wanted.update(dict.fromkeys(await admin.list_topics(internal=True)))
    else:
        wanted = {topic.topic: set(topic.partitions) for topic in asked}
    topics: list[Reply] = []
    for name, partitions in wanted.items():
        try:
            described = await admin.describe_topic(name)
        except LakelogError:
            continue  # as Kafka does: what is not here is not in the list
        sizes = [
            {"partition_index": each.partition, "partition_size": each.bytes}
            for each in described.partitions
            if partitions is None or each.partition in partitions
        ]
        topics.append({"name": name, "partitions": sizes})
    return {"results": [{"log_dir": call.gateway.settings.warehouse, "topics": topics}]}
