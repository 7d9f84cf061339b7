"""Kafka's newer group protocol (KIP-848): the one request of its members, and the one that describes their groups.

Topics have names in the coordinator and ids on the wire: the table's own. A topic that is gone by the time that it is
told of is left out, and an id that belongs to no topic any more stands for nothing that a member could still have.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from consumer_groups.assignors import TopicPartition
from consumer_groups.requests import ConsumerHeartbeat, GroupDescription, MemberDescription
from consumer_groups.state import GroupType
from ingest_api.kafka.calls import Call, failed
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.topics import Topic

# From this version on the client draws the member id.
_CLIENT_DRAWS_ID_SINCE = 1
_UNCHANGED = -1
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


async def consumer_group_heartbeat(call: Call) -> Reply:
    asked = call.request
    try:
        if call.version >= _CLIENT_DRAWS_ID_SINCE and not asked.member_id:
            raise LakelogError(ErrorCode.INVALID_REQUEST, "the member id is empty")
        reply = await call.gateway.groups.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=asked.group_id,
                member_id=asked.member_id,
                epoch=asked.member_epoch,
                instance_id=asked.instance_id,
                rack_id=asked.rack_id,
                client_id=call.client_id,
                client_host=call.client_host,
                rebalance_timeout_ms=None if asked.rebalance_timeout == _UNCHANGED else asked.rebalance_timeout,
                topics=None if asked.subscribed_topic_names is None else tuple(asked.subscribed_topic_names),
                pattern=asked.subscribed_topic_regex,
                assignor=asked.server_assignor,
                owned=None if asked.topic_partitions is None else await _partitions(call, asked.topic_partitions),
            )
        )
    except LakelogError as error:
        return failed(error)
    if reply.error is not ErrorCode.NONE:
        return failed(LakelogError(reply.error, reply.message or ""))
    assignment = None
    if reply.assignment is not None:
        assignment = {"topic_partitions": await _by_topic(call, reply.assignment, _ids_alone)}
    return {
        "member_id": reply.member_id,
        "member_epoch": reply.epoch,
        "heartbeat_interval": call.gateway.groups.settings.group_consumer_heartbeat_interval_ms,
        "assignment": assignment,
    }


async def consumer_group_describe(call: Call) -> Reply:
    return {"groups": [await _group(call, group_id) for group_id in call.request.group_ids]}


async def _group(call: Call, group_id: str) -> Reply:
    try:
        described = await call.gateway.groups.describe(group_id)
        if described.type is not GroupType.CONSUMER:
            raise LakelogError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is not a consumer group")
        members = [await _member(call, described, each) for each in described.members]
    except LakelogError as error:
        return {"group_id": group_id, **failed(error)}
    return {
        "group_id": group_id,
        "group_state": described.state,
        "group_epoch": described.generation,
        "assignment_epoch": described.generation,
        "assignor_name": described.protocol,
        "members": members,
    }


async def _member(call: Call, group: GroupDescription, member: MemberDescription) -> Reply:
    subscription = member.subscription
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch if member.served else group.generation,
        "client_id": member.client_id,
        "client_host": f"/{member.client_host}",
        "subscribed_topic_names": member.topics if subscription is None else subscription.topics,
        "subscribed_topic_regex": None if subscription is None else subscription.pattern,
        "assignment": {"topic_partitions": await _by_topic(call, member.assignment, _ids_and_names)},
        "target_assignment": {"topic_partitions": await _by_topic(call, member.target, _ids_and_names)},
        "member_type": _CONSUMER_MEMBER if member.served else _CLASSIC_MEMBER,
    }


async def _partitions(call: Call, topics: Iterable[Message]) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    for topic in topics:
        try:
            name = await call.gateway.broker.admin.name_of(str(topic.topic_id))
        except LakelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_ID:
                raise
            continue
        found += [TopicPartition(name, number) for number in topic.partitions]
    return tuple(found)


def _ids_alone(topic: Topic) -> dict[str, Any]:
    return {"topic_id": uuid.UUID(topic.state.table_id)}


def _ids_and_names(topic: Topic) -> dict[str, Any]:
    return {**_ids_alone(topic), "topic_name": topic.name}


async def _by_topic(
    call: Call, partitions: Iterable[TopicPartition], named: Callable[[Topic], dict[str, Any]]
) -> list[Reply]:
    numbers: dict[str, list[int]] = {}
    for name, number in partitions:
        numbers.setdefault(name, []).append(number)
    found: list[Reply] = []
    for name, those in numbers.items():
        try:
            topic = await call.gateway.broker.topics.get(name)
        except LakelogError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue
        found.append({**named(topic), "partitions": those})
    return found
