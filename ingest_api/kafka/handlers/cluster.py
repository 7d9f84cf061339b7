"""The cluster as clients see it: one node, which leads every partition of every topic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress

from ingest_api.kafka.calls import LEADER_EPOCH, NODE_ID, Call, error_number
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import TopicDescription

_ONLY_REPLICA = [NODE_ID]
# Each topic that is asked for by name is looked up in the store.
_ASKED_AT_ONCE = 32


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
        return list(map(_topic, await call.gateway.broker.admin.describe_topics(internal=True)))
    may_create = call.request.allow_auto_topic_creation
    turns = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def in_turn(each: Message) -> Reply:
        async with turns:
            return await _asked_topic(call, each, may_create=may_create)

    return await asyncio.gather(*map(in_turn, asked))


async def _asked_topic(call: Call, asked: Message, *, may_create: bool) -> Reply:
    name: str | None = asked.name
    try:
        if name is None:
            name = await call.gateway.broker.admin.name_of(str(asked.topic_id))
        described = await _described(call, name, may_create=may_create)
    except LakelogError as error:
        return {"error_code": error_number(error), "name": name, "topic_id": asked.topic_id}
    return _topic(described)


def _topic(described: TopicDescription) -> Reply:
    return {
        "name": described.name,
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
        if not missing or not may_create or not broker.settings.auto_create_topics_enable:
            raise
    try:
        return await broker.admin.create_topic(name)
    except LakelogError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return await broker.admin.describe_topic(name)  # another was faster


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
    topics: list[Reply] = []
    if asked is None:
        topics.extend(map(_sizes, await admin.describe_topics(internal=True)))
    for topic in asked or ():
        with suppress(LakelogError):  # as Kafka does: what is not here is not in the list
            topics.append(_sizes(await admin.describe_topic(topic.topic), set(topic.partitions)))
    return {"results": [{"log_dir": call.gateway.settings.warehouse, "topics": topics}]}


def _sizes(described: TopicDescription, wanted: Collection[int] | None = None) -> Reply:
    sizes = [
        {"partition_index": each.partition, "partition_size": each.bytes}
        for each in described.partitions
        if wanted is None or each.partition in wanted
    ]
    return {"name": described.name, "partitions": sizes}
