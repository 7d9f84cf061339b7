"""Groups: membership, committed offsets, and what tools ask and do about them.

The service answers refusals of the group protocol as errors in its replies; whatever else goes wrong is raised, and
becomes the error of the whole request here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TypeVar

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import NO_OFFSET, CommitOffsets, CommittedOffset
from consumer_groups.requests import (
    GroupDescription,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    MemberDescription,
    SyncGroup,
)
from consumer_groups.state import GroupType, Phase, Protocol
from consumer_groups.subscription_protocol import ConsumerAssignment, encode_assignment
from ingest_api.kafka.calls import NODE_ID, Call, error_number, failed
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError

GROUP_KEY = 0
# From these versions on a member is told its id before it counts, and a leader may be told not to assign.
_MEMBER_ID_REQUIRED_SINCE = 4
_SKIPS_ASSIGNMENT_SINCE = 9
# From this version on all who leave are named in one list, and so are all groups whose offsets are asked for.
_LEAVERS_SINCE = 3
_GROUPS_SINCE = 8
_COORDINATORS_SINCE = 4
# From this version on a group that is not there is told apart from one that is dead.
_SAYS_NOT_FOUND_SINCE = 6

T = TypeVar("T")


async def find_coordinator(call: Call) -> Reply:
    host, port = call.address
    here = {"node_id": NODE_ID, "host": host, "port": port}
    if call.request.key_type != GROUP_KEY:
        error = LakelogError(ErrorCode.INVALID_REQUEST, "only groups have coordinators; transactions are not supported")
        here = {"node_id": -1, "host": "", "port": -1, **failed(error)}
    if call.version < _COORDINATORS_SINCE:
        return here
    return {"coordinators": [{"key": key, **here} for key in call.request.coordinator_keys]}


# Being a member.


async def join_group(call: Call) -> Reply:
    asked = call.request
    try:
        reply = await _unless_stopping(
            call,
            call.gateway.groups.join(
                JoinGroup(
                    group_id=asked.group_id,
                    member_id=asked.member_id,
                    instance_id=asked.group_instance_id,
                    client_id=call.client_id,
                    client_host=call.client_host,
                    session_timeout_ms=asked.session_timeout,
                    # Version 0 has one timeout for both.
                    rebalance_timeout_ms=asked.rebalance_timeout
                    if asked.rebalance_timeout >= 0
                    else asked.session_timeout,
                    protocol_type=asked.protocol_type,
                    protocols=tuple(Protocol(each.name, bytes(each.metadata)) for each in asked.protocols),
                    member_id_required=call.version >= _MEMBER_ID_REQUIRED_SINCE,
                    knows_skip_assignment=call.version >= _SKIPS_ASSIGNMENT_SINCE,
                )
            ),
        )
    except LakelogError as error:
        return {"error_code": error_number(error), "member_id": asked.member_id, "protocol_name": ""}
    return {
        "error_code": reply.error.number,
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in reply.members
        ],
    }


async def sync_group(call: Call) -> Reply:
    asked = call.request
    try:
        reply = await _unless_stopping(
            call,
            call.gateway.groups.sync(
                SyncGroup(
                    group_id=asked.group_id,
                    member_id=asked.member_id,
                    generation=asked.generation_id,
                    instance_id=asked.group_instance_id,
                    protocol_type=asked.protocol_type,
                    protocol=asked.protocol_name,
                    assignments=tuple((each.member_id, bytes(each.assignment)) for each in asked.assignments),
                )
            ),
        )
    except LakelogError as error:
        return {"error_code": error_number(error)}
    return {
        "error_code": reply.error.number,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol,
        "assignment": reply.assignment,
    }


async def heartbeat(call: Call) -> Reply:
    asked = call.request
    try:
        reply = await call.gateway.groups.heartbeat(
            Heartbeat(
                group_id=asked.group_id,
                member_id=asked.member_id,
                generation=asked.generation_id,
                instance_id=asked.group_instance_id,
            )
        )
    except LakelogError as error:
        return {"error_code": error_number(error)}
    return {"error_code": reply.error.number}


async def leave_group(call: Call) -> Reply:
    asked = call.request
    if call.version < _LEAVERS_SINCE:
        leavers = [Leaver(asked.member_id)]
    else:
        leavers = [Leaver(each.member_id, each.group_instance_id) for each in asked.members]
    try:
        reply = await call.gateway.groups.leave(LeaveGroup(asked.group_id, tuple(leavers)))
    except LakelogError as error:
        return {"error_code": error_number(error)}
    if call.version < _LEAVERS_SINCE:
        return {"error_code": reply.errors[0].number}
    return {
        "members": [
            {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": error.number}
            for leaver, error in zip(leavers, reply.errors, strict=True)
        ]
    }


async def _unless_stopping(call: Call, waiting: Awaitable[T]) -> T:
    outcome = await call.gateway.unless_stopping(waiting)
    if outcome is None:
        raise LakelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is shutting down")
    return outcome


# Offsets.


async def offset_commit(call: Call) -> Reply:
    asked = call.request
    offsets = {
        TopicPartition(topic.name, each.partition_index): (
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
        )
        for topic in asked.topics
        for each in topic.partitions
    }
    try:
        reply = await call.gateway.groups.commit_offsets(
            CommitOffsets(
                group_id=asked.group_id,
                offsets=offsets,
                member_id=asked.member_id,
                generation=asked.generation_id_or_member_epoch,
                instance_id=asked.group_instance_id,
            )
        )
        errors = {key: error_number(reply.refused.get(key, reply.error)) for key in offsets}
    except LakelogError as error:
        errors = dict.fromkeys(offsets, error_number(error))
    return {
        "topics": _by_topic((key, {"partition_index": key.partition, "error_code": errors[key]}) for key in offsets)
    }


async def offset_fetch(call: Call) -> Reply:
    asked = call.request
    if call.version < _GROUPS_SINCE:
        return await _committed(call, asked)
    return {"groups": [{"group_id": group.group_id, **await _committed(call, group)} for group in asked.groups]}


async def _committed(call: Call, asked: Message) -> Reply:
    wanted = None
    if asked.topics is not None:
        wanted = [TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partition_indexes]
    nothing = CommittedOffset(NO_OFFSET)
    # Before version 9 nobody names itself, and before version 8 one group is asked for in place of a list.
    member_id, epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    try:
        found = await call.gateway.groups.committed(asked.group_id, wanted, member_id, epoch)
    except LakelogError as error:
        # Said of each partition too: version 1 has no other place, and some clients look nowhere else in any version.
        failure = {"error_code": error_number(error)}
        return {"topics": _by_topic((key, {**_offset(key, nothing), **failure}) for key in wanted or ()), **failure}
    return {"topics": _by_topic((key, _offset(key, found.get(key, nothing))) for key in (wanted or found))}


def _offset(key: TopicPartition, committed: CommittedOffset) -> Reply:
    return {
        "partition_index": key.partition,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


async def offset_delete(call: Call) -> Reply:
    asked = [
        TopicPartition(topic.name, each.partition_index) for topic in call.request.topics for each in topic.partitions
    ]
    try:
        outcome = await call.gateway.groups.delete_offsets(call.request.group_id, asked)
    except LakelogError as error:
        return {"error_code": error_number(error)}
    return {
        "topics": _by_topic(
            (key, {"partition_index": key.partition, "error_code": error.number}) for key, error in outcome.items()
        )
    }


def _by_topic(partitions: Iterable[tuple[TopicPartition, Reply]]) -> list[Reply]:
    topics: dict[str, list[Reply]] = {}
    for key, reply in partitions:
        topics.setdefault(key.topic, []).append(reply)
    return [{"name": name, "partitions": replies} for name, replies in topics.items()]


# What tools ask.


async def list_groups(call: Call) -> Reply:
    states = {state.lower() for state in call.request.states_filter}
    kinds = {kind.lower() for kind in call.request.types_filter}
    try:
        listed = await call.gateway.groups.list_groups()
    except LakelogError as error:
        return {"error_code": error_number(error)}
    return {
        "groups": [
            {
                "group_id": each.group_id,
                "protocol_type": each.protocol_type,
                "group_state": each.state,
                "group_type": each.type.value,
            }
            for each in listed
            if (not states or each.state.lower() in states) and (not kinds or each.type.value in kinds)
        ]
    }


async def describe_groups(call: Call) -> Reply:
    return {"groups": [await _described(call, group_id) for group_id in call.request.groups]}


async def _described(call: Call, group_id: str) -> Reply:
    try:
        described = await call.gateway.groups.describe(group_id)
    except LakelogError as error:
        return {"group_id": group_id, "group_state": Phase.DEAD.value, **failed(error)}
    if described.phase is Phase.DEAD:
        return _not_found(group_id, call.version, "is not there")
    if described.type is GroupType.CONSUMER:
        # Such groups have a request of their own, and whoever asks for one by this request does not know that.
        return _not_found(group_id, call.version, "is not a classic group")
    return {
        "group_id": group_id,
        "group_state": described.phase.value,
        "protocol_type": described.protocol_type,
        "protocol_data": described.protocol if described.phase is Phase.STABLE else "",
        "members": [_member(described, each) for each in described.members],
    }


def _not_found(group_id: str, version: int, why: str) -> Reply:
    reply = {"group_id": group_id, "group_state": Phase.DEAD.value}
    if version < _SAYS_NOT_FOUND_SINCE:
        return reply
    return {**reply, **failed(LakelogError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} {why}"))}


def _member(described: GroupDescription, member: MemberDescription) -> Reply:
    """A member that the gateway serves is shown as if it had Kafka's protocol, so that tools can tell what it reads."""
    assignment = member.assignment_bytes
    if member.served:
        assignment = encode_assignment(ConsumerAssignment(partitions=member.assignment))
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": f"/{member.client_host}",
        "member_metadata": member.metadata,
        "member_assignment": assignment if described.phase is Phase.STABLE else b"",
    }


async def delete_groups(call: Call) -> Reply:
    return {"results": [await _delete(call, group_id) for group_id in call.request.groups_names]}


async def _delete(call: Call, group_id: str) -> Reply:
    try:
        await call.gateway.groups.delete_group(group_id)
    except LakelogError as error:
        return {"group_id": group_id, "error_code": error_number(error)}
    return {"group_id": group_id}
