"""Consumer groups: who is in them, what each member reads, and how far behind they are.

A lag is said of partitions where the group has committed something: v3 has no way to say that it has not.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.requests import Request
from starlette.responses import Response

from consumer_groups.assignors import TopicPartition
from consumer_groups.lag import PartitionLag
from consumer_groups.requests import GroupDescription, MemberDescription
from consumer_groups.state import Phase
from ingest_api.gateway import gateway_of
from ingest_api.v3 import schemas
from ingest_api.v3.cluster import AT_CLUSTER, ClusterId, catalogue_of, replied
from ingest_api.v3.errors import not_found
from ingest_api.v3.schemas import listed, one
from ingest_api.v3.topics import PartitionId, TopicName

AT_GROUPS = f"{AT_CLUSTER}/consumer-groups"
AT_GROUP = f"{AT_GROUPS}/{{consumer_group_id:path}}"
AT_CONSUMER = f"{AT_GROUP}/consumers/{{consumer_id}}"

# An id may hold slashes, so what stands behind it in a path is looked for before it is taken for all of the path.
GroupId = Annotated[str, Path(description="The group's id")]
ConsumerId = Annotated[str, Path(description="The member's id")]


async def _place(topic_name: TopicName, partition_id: PartitionId) -> TopicPartition:
    return TopicPartition(topic_name, partition_id)


Place = Annotated[TopicPartition, Depends(_place)]

router = APIRouter(prefix="/v3", tags=["v3 groups"])


@router.get(AT_GROUPS, summary="List groups", response_class=Response, responses=listed(schemas.GROUP))
async def groups(request: Request, cluster_id: ClusterId) -> Response:
    writer, service = catalogue_of(request, cluster_id), gateway_of(request).groups
    described = [await service.describe(each.group_id) for each in await service.list_groups()]
    return replied(writer.listing("KafkaConsumerGroupList", ("consumer-groups",), map(writer.group, described)))


@router.get(
    f"{AT_GROUP}/consumers",
    summary="List a group's members",
    response_class=Response,
    responses=listed(schemas.CONSUMER),
)
async def consumers(request: Request, cluster_id: ClusterId, consumer_group_id: GroupId) -> Response:
    writer = catalogue_of(request, cluster_id)
    members = (await _group(request, consumer_group_id)).members
    at = ("consumer-groups", consumer_group_id, "consumers")
    return replied(
        writer.listing("KafkaConsumerList", at, [writer.consumer(consumer_group_id, each) for each in members])
    )


@router.get(AT_CONSUMER, summary="Describe a member", response_class=Response, responses=one(schemas.CONSUMER))
async def consumer(
    request: Request, cluster_id: ClusterId, consumer_group_id: GroupId, consumer_id: ConsumerId
) -> Response:
    writer = catalogue_of(request, cluster_id)
    return replied(writer.consumer(consumer_group_id, await _member(request, consumer_group_id, consumer_id)))


@router.get(
    f"{AT_CONSUMER}/assignments",
    summary="List what a member reads",
    response_class=Response,
    responses=listed(schemas.ASSIGNMENT),
)
async def assignments(
    request: Request, cluster_id: ClusterId, consumer_group_id: GroupId, consumer_id: ConsumerId
) -> Response:
    writer = catalogue_of(request, cluster_id)
    member = await _member(request, consumer_group_id, consumer_id)
    at = ("consumer-groups", consumer_group_id, "consumers", consumer_id, "assignments")
    found = [writer.assignment(consumer_group_id, member, *place) for place in member.assignment]
    return replied(writer.listing("KafkaConsumerAssignmentList", at, found))


@router.get(
    f"{AT_CONSUMER}/assignments/{{topic_name}}/partitions/{{partition_id}}",
    summary="One partition that a member reads",
    response_class=Response,
    responses=one(schemas.ASSIGNMENT),
)
async def assignment(
    request: Request,
    cluster_id: ClusterId,
    consumer_group_id: GroupId,
    consumer_id: ConsumerId,
    place: Place,
) -> Response:
    writer = catalogue_of(request, cluster_id)
    member = await _member(request, consumer_group_id, consumer_id)
    if place not in member.assignment:
        raise not_found(f"an assignment of {place.topic}-{place.partition} to {consumer_id!r}")
    return replied(writer.assignment(consumer_group_id, member, *place))


@router.get(f"{AT_GROUP}/lags", summary="List a group's lags", response_class=Response, responses=listed(schemas.LAG))
async def lags(request: Request, cluster_id: ClusterId, consumer_group_id: GroupId) -> Response:
    writer = catalogue_of(request, cluster_id)
    found = await _lags(request, consumer_group_id)
    at = ("consumer-groups", consumer_group_id, "lags")
    return replied(writer.listing("KafkaConsumerLagList", at, [writer.lag(consumer_group_id, each) for each in found]))


@router.get(
    f"{AT_GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}",
    summary="A group's lag in a partition",
    response_class=Response,
    responses=one(schemas.LAG),
)
async def lag(request: Request, cluster_id: ClusterId, consumer_group_id: GroupId, place: Place) -> Response:
    writer = catalogue_of(request, cluster_id)
    for each in await _lags(request, consumer_group_id):
        if (each.topic, each.partition) == place:
            return replied(writer.lag(consumer_group_id, each))
    raise not_found(f"a lag of group {consumer_group_id!r} in {place.topic}-{place.partition}")


@router.get(
    f"{AT_GROUP}/lag-summary",
    summary="A group's largest and total lag",
    response_class=Response,
    responses=one(schemas.LAG_SUMMARY),
)
async def lag_summary(request: Request, cluster_id: ClusterId, consumer_group_id: GroupId) -> Response:
    writer = catalogue_of(request, cluster_id)
    found = await _lags(request, consumer_group_id)
    if not found:
        raise not_found(f"a lag of group {consumer_group_id!r}, which has committed nothing,")
    return replied(writer.lag_summary(consumer_group_id, found))


@router.get(AT_GROUP, summary="Describe a group", response_class=Response, responses=one(schemas.GROUP))
async def group(request: Request, cluster_id: ClusterId, consumer_group_id: GroupId) -> Response:
    writer = catalogue_of(request, cluster_id)
    return replied(writer.group(await _group(request, consumer_group_id)))


async def _group(request: Request, group_id: str) -> GroupDescription:
    described = await gateway_of(request).groups.describe(group_id)
    if described.phase is Phase.DEAD:
        raise not_found(f"consumer group {group_id[:100]!r}")
    return described


async def _member(request: Request, group_id: str, member_id: str) -> MemberDescription:
    for member in (await _group(request, group_id)).members:
        if member.member_id == member_id:
            return member
    raise not_found(f"consumer {member_id[:100]!r}")


async def _lags(request: Request, group_id: str) -> list[PartitionLag]:
    await _group(request, group_id)
    return [each for each in await gateway_of(request).groups.lag(group_id) if each.lag is not None]
