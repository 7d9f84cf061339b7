"""Group administration: list, describe, lag, reset and delete. Being a member is the consumers' business."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from consumer_groups.assignors import TopicPartition
from consumer_groups.requests import GroupDescription, MemberDescription
from consumer_groups.resets import (
    ByDuration,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
)
from consumer_groups.state import Phase
from ingest_api.gateway import gateway_of
from ingest_api.media import JSON
from ingest_api.positions import INT32_MAX, INT64_MAX
from ingest_api.routes.direct import BoundedRoute
from ingest_api.routes.schemas import NUMBER, TEXT, a_list, an_object, answered, or_null
from ingest_api.routes.strict import Strict
from lakelog.errors import ErrorCode, LakelogError

router = APIRouter(prefix="/admin/groups", tags=["groups"], route_class=BoundedRoute)

# An id may hold slashes, so what stands behind it in a path is looked for before it is taken for all of the path.
GroupId = Annotated[str, Path(description="The group's id")]
PartitionNumber = Annotated[int, Field(ge=0, le=INT32_MAX)]
Whole = Annotated[int, Field(ge=0, le=INT64_MAX)]

_PLACES: dict[str, ResetTarget] = {"earliest": ToEarliest(), "latest": ToLatest(), "current": ToCurrent()}

_PARTITION = an_object(topic=TEXT, partition=NUMBER)
_MEMBER = an_object(
    member_id=TEXT,
    instance_id=or_null(TEXT),
    client_id=TEXT,
    client_host=TEXT,
    topics=a_list(TEXT),
    assignment=a_list(_PARTITION),
)
_GROUPS = a_list(an_object(group_id=TEXT, state=TEXT, protocol_type=TEXT))
_GROUP = an_object(
    group_id=TEXT,
    state=TEXT,
    generation=NUMBER,
    protocol_type=TEXT,
    protocol=TEXT,
    leader=TEXT,
    members=a_list(_MEMBER),
)
_LAGS = a_list(
    an_object(
        topic=TEXT,
        partition=NUMBER,
        committed=or_null(NUMBER),
        current=or_null(NUMBER),
        log_start_offset=NUMBER,
        high_watermark=NUMBER,
        end_offset=NUMBER,
        lag=or_null(NUMBER),
        metadata=TEXT,
        member_id=TEXT,
        instance_id=or_null(TEXT),
        client_id=TEXT,
        client_host=TEXT,
    )
)
_CHANGES = a_list(an_object(topic=TEXT, partition=NUMBER, before=or_null(NUMBER), after=NUMBER))
_DELETIONS = a_list(an_object(topic=TEXT, partition=NUMBER, error=or_null(TEXT)))


class Reset(Strict):
    """Where to: exactly one of `to`, `offset`, `timestamp_ms`, `duration_ms` and `shift`."""

    to: Literal["earliest", "latest", "current"] | None = None
    offset: Whole | None = None
    timestamp_ms: Whole | None = None
    duration_ms: Whole | None = None
    shift: Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)] | None = None
    topics: Annotated[
        dict[str, list[PartitionNumber] | None] | None,
        Field(description="Partitions by topic, null for all of a topic; without it all that the group has committed"),
    ] = None
    dry_run: Annotated[bool, Field(description="Only say what would be done")] = False

    @model_validator(mode="after")
    def _one_target(self) -> Reset:
        named = [self.to, self.offset, self.timestamp_ms, self.duration_ms, self.shift]
        if sum(each is not None for each in named) != 1:
            raise ValueError("say one of to, offset, timestamp_ms, duration_ms and shift")
        return self

    @property
    def target(self) -> ResetTarget:
        if self.offset is not None:
            return ToOffset(self.offset)
        if self.timestamp_ms is not None:
            return ToTimestamp(self.timestamp_ms)
        if self.duration_ms is not None:
            return ByDuration(self.duration_ms)
        return ShiftBy(self.shift) if self.shift is not None else _PLACES[self.to or ""]


class Place(Strict):
    topic: str
    partition: PartitionNumber


class Places(Strict):
    partitions: Annotated[list[Place], Field(min_length=1)]


@router.get("", summary="List groups", response_class=Response, responses=answered(_GROUPS, JSON))
async def list_groups(request: Request) -> Response:
    listed = await gateway_of(request).groups.list_groups()
    return _json(
        [{"group_id": each.group_id, "state": each.phase.value, "protocol_type": each.protocol_type} for each in listed]
    )


@router.get("/{group:path}/lag", summary="How far a group is", response_class=Response, responses=answered(_LAGS, JSON))
async def lag(request: Request, group: GroupId) -> Response:
    return _json(await gateway_of(request).groups.lag(group))


@router.post(
    "/{group:path}/reset-offsets",
    summary="Move an empty group to another place",
    response_class=Response,
    responses=answered(_CHANGES, JSON),
)
async def reset_offsets(request: Request, group: GroupId, reset: Reset) -> Response:
    groups = gateway_of(request).groups
    return _json(await groups.reset_offsets(group, reset.target, reset.topics, dry_run=reset.dry_run))


@router.post(
    "/{group:path}/delete-offsets",
    summary="Forget offsets of topics that the group no longer reads",
    response_class=Response,
    responses=answered(_DELETIONS, JSON),
)
async def delete_offsets(request: Request, group: GroupId, places: Places) -> Response:
    keys = [TopicPartition(each.topic, each.partition) for each in places.partitions]
    outcome = await gateway_of(request).groups.delete_offsets(group, keys)
    return _json(
        [
            {**key._asdict(), "error": None if error is ErrorCode.NONE else error.name}
            for key, error in sorted(outcome.items())
        ]
    )


@router.get("/{group:path}", summary="Describe a group", response_class=Response, responses=answered(_GROUP, JSON))
async def describe(request: Request, group: GroupId) -> Response:
    described = await gateway_of(request).groups.describe(group)
    if described.phase is Phase.DEAD:
        raise LakelogError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
    return _json(_group(described))


@router.delete("/{group:path}", status_code=204, summary="Delete an empty group", response_class=Response)
async def delete(request: Request, group: GroupId) -> Response:
    await gateway_of(request).groups.delete_group(group)
    return Response(status_code=204)


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON)


def _group(group: GroupDescription) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "state": group.phase.value,
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader,
        "members": [_member(each) for each in group.members],
    }


def _member(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topics": member.topics,
        "assignment": [key._asdict() for key in member.assignment],
    }
