"""Topics: list, create, describe, grow, delete; and their partitions with their one replica."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ingest_api.gateway import gateway_of
from ingest_api.positions import INT32_MAX
from ingest_api.routes.admin import ConfigText, PartitionCount, Partitions, config_texts
from ingest_api.routes.direct import BoundedRoute
from ingest_api.routes.strict import Strict
from ingest_api.v3 import schemas
from ingest_api.v3.catalogue import ALL
from ingest_api.v3.cluster import AT_CLUSTER, BrokerId, ClusterId, catalogue_of, replied, require_broker
from ingest_api.v3.errors import not_found
from ingest_api.v3.schemas import listed, one
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition

AT_TOPICS = f"{AT_CLUSTER}/topics"
AT_TOPIC = f"{AT_TOPICS}/{{topic_name}}"
AT_PARTITION = f"{AT_TOPIC}/partitions/{{partition_id}}"

TopicName = Annotated[str, Path(description="The topic's name")]
PartitionId = Annotated[int, Path(description="The partition's number", ge=0, le=INT32_MAX)]

router = APIRouter(prefix="/v3", tags=["v3 topics"], route_class=BoundedRoute)


class NewConfig(Strict):
    name: str
    value: ConfigText | None = None


class ReplicaAssignment(Strict):
    partition_id: int
    broker_ids: list[int]


class NewTopic(Strict):
    topic_name: str
    partitions_count: Partitions | None = None
    replication_factor: Annotated[
        int | None, Field(description="Taken and of no effect: the store keeps the copies")
    ] = None
    replicas_assignments: Annotated[
        tuple[ReplicaAssignment, ...] | None, Field(description="Has to be empty: the store keeps the copies")
    ] = None
    configs: tuple[NewConfig, ...] | None = None
    validate_only: bool | None = None


@router.get(AT_TOPICS, summary="List topics", response_class=Response, responses=listed(schemas.TOPIC))
async def topics(request: Request, cluster_id: ClusterId) -> Response:
    writer = catalogue_of(request, cluster_id)
    described = await gateway_of(request).broker.admin.describe_topics(internal=True)
    return replied(writer.listing("KafkaTopicList", ("topics",), map(writer.topic, described)))


@router.post(
    AT_TOPICS,
    status_code=201,
    summary="Create a topic",
    response_class=Response,
    responses={**one(schemas.TOPIC, 201), **one(schemas.TOPIC)},
)
async def create(request: Request, cluster_id: ClusterId, new: NewTopic) -> Response:
    writer = catalogue_of(request, cluster_id)
    if new.replicas_assignments:
        raise LakelogError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the store keeps the copies; leave replicas_assignments out"
        )
    config = config_texts({entry.name: entry.value for entry in new.configs or () if entry.value is not None})
    described = await gateway_of(request).broker.admin.create_topic(
        new.topic_name, new.partitions_count, config, validate_only=bool(new.validate_only)
    )
    return replied(writer.topic(described), 200 if new.validate_only else 201)


@router.get(AT_TOPIC, summary="Describe a topic", response_class=Response, responses=one(schemas.TOPIC))
async def topic(request: Request, cluster_id: ClusterId, topic_name: TopicName) -> Response:
    writer = catalogue_of(request, cluster_id)
    return replied(writer.topic(await gateway_of(request).broker.admin.describe_topic(topic_name)))


@router.patch(AT_TOPIC, summary="Give a topic more partitions", response_class=Response, responses=one(schemas.TOPIC))
async def grow(request: Request, cluster_id: ClusterId, topic_name: TopicName, count: PartitionCount) -> Response:
    writer = catalogue_of(request, cluster_id)
    return replied(
        writer.topic(await gateway_of(request).broker.admin.add_partitions(topic_name, count.partitions_count))
    )


@router.delete(AT_TOPIC, status_code=204, summary="Delete a topic", response_class=Response)
async def delete(request: Request, cluster_id: ClusterId, topic_name: TopicName) -> Response:
    catalogue_of(request, cluster_id)
    await gateway_of(request).broker.admin.delete_topic(topic_name)
    return Response(status_code=204)


@router.get(
    f"{AT_TOPIC}/partitions",
    summary="List the partitions of a topic",
    response_class=Response,
    responses=listed(schemas.PARTITION),
)
async def partitions(request: Request, cluster_id: ClusterId, topic_name: TopicName) -> Response:
    writer = catalogue_of(request, cluster_id)
    count = await _partitions(request, topic_name)
    at = ("topics", topic_name, "partitions")
    return replied(
        writer.listing("KafkaPartitionList", at, [writer.partition(topic_name, number) for number in range(count)])
    )


# Before the partition of that number: a path with a dash in it would be refused there.
@router.get(
    f"{AT_TOPIC}/partitions/{ALL}/reassignment",
    summary="List moves of a topic's replicas: there are never any",
    response_class=Response,
    responses=listed(schemas.REPLICA),
)
async def reassignments(request: Request, cluster_id: ClusterId, topic_name: TopicName) -> Response:
    writer = catalogue_of(request, cluster_id)
    if topic_name != ALL:
        await _partitions(request, topic_name)
    return replied(
        writer.listing("KafkaReassignmentList", ("topics", topic_name, "partitions", ALL, "reassignment"), ())
    )


@router.get(AT_PARTITION, summary="Describe a partition", response_class=Response, responses=one(schemas.PARTITION))
async def partition(
    request: Request, cluster_id: ClusterId, topic_name: TopicName, partition_id: PartitionId
) -> Response:
    writer = catalogue_of(request, cluster_id)
    await _require_partition(request, topic_name, partition_id)
    return replied(writer.partition(topic_name, partition_id))


@router.get(
    f"{AT_PARTITION}/reassignment",
    summary="The move of a partition's replicas: there is never one",
    response_class=Response,
)
async def reassignment(
    request: Request, cluster_id: ClusterId, topic_name: TopicName, partition_id: PartitionId
) -> Response:
    catalogue_of(request, cluster_id)
    await _require_partition(request, topic_name, partition_id)
    raise not_found(f"a reassignment of {topic_name}-{partition_id}")


@router.get(
    f"{AT_PARTITION}/replicas",
    summary="List a partition's replicas",
    response_class=Response,
    responses=listed(schemas.REPLICA),
)
async def replicas(
    request: Request, cluster_id: ClusterId, topic_name: TopicName, partition_id: PartitionId
) -> Response:
    writer = catalogue_of(request, cluster_id)
    await _require_partition(request, topic_name, partition_id)
    at = ("topics", topic_name, "partitions", partition_id, "replicas")
    return replied(writer.listing("KafkaReplicaList", at, [writer.replica(topic_name, partition_id)]))


@router.get(
    f"{AT_PARTITION}/replicas/{{broker_id}}",
    summary="Describe a replica",
    response_class=Response,
    responses=one(schemas.REPLICA),
)
async def replica(
    request: Request, cluster_id: ClusterId, topic_name: TopicName, partition_id: PartitionId, broker_id: BrokerId
) -> Response:
    writer = catalogue_of(request, cluster_id)
    await _require_partition(request, topic_name, partition_id)
    require_broker(broker_id)
    return replied(writer.replica(topic_name, partition_id))


@router.get(
    f"{AT_CLUSTER}/brokers/{{broker_id}}/partition-replicas",
    summary="List a broker's replicas",
    response_class=Response,
    responses=listed(schemas.REPLICA),
)
async def broker_replicas(request: Request, cluster_id: ClusterId, broker_id: BrokerId) -> Response:
    writer = catalogue_of(request, cluster_id)
    require_broker(broker_id)
    described = await gateway_of(request).broker.admin.describe_topics(internal=True)
    found = [writer.replica(topic.name, each.partition) for topic in described for each in topic.partitions]
    return replied(writer.listing("KafkaReplicaList", ("brokers", broker_id, "partition-replicas"), found))


async def _partitions(request: Request, topic: str) -> int:
    return len((await gateway_of(request).broker.admin.describe_topic(topic)).partitions)


async def _require_partition(request: Request, topic: str, partition: int) -> None:
    count = await _partitions(request, topic)
    if partition >= count:
        raise UnknownPartition(f"topic {topic!r} has no partition {partition}; it has 0 to {count - 1}")
