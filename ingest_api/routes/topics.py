"""v2's view of topics and brokers. One broker stands for all: the store keeps the copies."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ingest_api import media
from ingest_api.gateway import gateway_of
from ingest_api.routes.fetch import PartitionNumber, TopicName
from ingest_api.routes.schemas import NUMBER, TEXT, V2_OFFSETS, V2_PARTITION, V2_TOPIC, a_list, an_object, answered
from lakelog.errors import UnknownPartition
from lakelog.fetch import Position
from lakelog.model.topic import TopicDescription

BROKER = 0

router = APIRouter(tags=["topics"])


def v2_reply(request: Request, content: Any) -> Response:
    kind = media.negotiate(request.headers.get("accept", ""), media.METADATA_OUT)
    return Response(msgspec.json.encode(content), media_type=kind)


@router.get(
    "/brokers", summary="List brokers", response_class=Response, responses=answered(an_object(brokers=a_list(NUMBER)))
)
async def brokers(request: Request) -> Response:
    return v2_reply(request, {"brokers": [BROKER]})


@router.get("/topics", summary="List topics", response_class=Response, responses=answered(a_list(TEXT)))
async def topics(request: Request) -> Response:
    return v2_reply(request, await gateway_of(request).broker.admin.list_topics())


@router.get("/topics/{topic}", summary="Describe a topic", response_class=Response, responses=answered(V2_TOPIC))
async def topic(request: Request, topic: TopicName) -> Response:
    described = await gateway_of(request).broker.admin.describe_topic(topic)
    configs = {entry.name: entry.value for entry in described.config.describe()}
    return v2_reply(request, {"name": described.name, "configs": configs, "partitions": _partitions(described)})


@router.get(
    "/topics/{topic}/partitions",
    summary="List the partitions of a topic",
    response_class=Response,
    responses=answered(a_list(V2_PARTITION)),
)
async def partitions(request: Request, topic: TopicName) -> Response:
    return v2_reply(request, _partitions(await gateway_of(request).broker.admin.describe_topic(topic)))


@router.get(
    "/topics/{topic}/partitions/{partition}",
    summary="Describe a partition",
    response_class=Response,
    responses=answered(V2_PARTITION),
)
async def partition(request: Request, topic: TopicName, partition: PartitionNumber) -> Response:
    all_of_them = _partitions(await gateway_of(request).broker.admin.describe_topic(topic))
    if partition >= len(all_of_them):
        raise UnknownPartition(f"topic {topic!r} has no partition {partition}; it has 0 to {len(all_of_them) - 1}")
    return v2_reply(request, all_of_them[partition])


@router.get(
    "/topics/{topic}/partitions/{partition}/offsets",
    summary="First and next offset",
    response_class=Response,
    responses=answered(V2_OFFSETS),
)
async def offsets(request: Request, topic: TopicName, partition: PartitionNumber) -> Response:
    broker = gateway_of(request).broker
    first = await broker.offset_at(topic, partition, Position.EARLIEST)
    end = await broker.offset_at(topic, partition, Position.LATEST)
    return v2_reply(request, {"beginning_offset": first.offset, "end_offset": end.offset})


def _partitions(described: TopicDescription) -> list[dict[str, Any]]:
    replica = {"broker": BROKER, "leader": True, "in_sync": True}
    return [{"partition": each.partition, "leader": BROKER, "replicas": [replica]} for each in described.partitions]
