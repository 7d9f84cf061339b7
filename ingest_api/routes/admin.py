"""Topic administration: the bridge's `POST /admin/topics`, and what else there is to do to a topic."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ingest_api.gateway import gateway_of
from ingest_api.media import JSON
from ingest_api.positions import INT32_MAX, INT64_MAX
from ingest_api.routes.direct import BoundedRoute
from ingest_api.routes.fetch import TopicName
from ingest_api.routes.schemas import CONFIGS, LOG_STARTS, TOPIC, TOPICS, answered
from ingest_api.routes.strict import Strict
from lakelog.model.topic import TopicDescription

router = APIRouter(prefix="/admin/topics", tags=["admin"], route_class=BoundedRoute)

ConfigText = str | int | float | bool
ConfigTexts = Annotated[dict[str, ConfigText], Field(default_factory=dict)]
Partitions = Annotated[int, Field(ge=1, le=INT32_MAX)]


class NewTopic(Strict):
    topic_name: str
    partitions_count: Partitions | None = None
    replication_factor: Annotated[int, Field(description="Taken and of no effect: the store keeps the copies")] = 1
    config: ConfigTexts


class ConfigChange(Strict):
    set: ConfigTexts
    unset: tuple[str, ...] = ()


class PartitionCount(Strict):
    partitions_count: Partitions


class RecordsBefore(Strict):
    offsets: Annotated[
        dict[Annotated[int, Field(ge=0, le=INT32_MAX)], Annotated[int, Field(ge=-1, le=INT64_MAX)]],
        Field(description="By partition, the first offset that stays; -1 for none", min_length=1),
    ]


@router.get("", summary="All topics in figures", response_class=Response, responses=answered(TOPICS, JSON))
async def summarize(request: Request) -> Response:
    return _json([_summary(topic) for topic in await gateway_of(request).broker.admin.describe_topics()])


@router.post(
    "", status_code=201, summary="Create a topic", response_class=Response, responses=answered(TOPIC, JSON, status=201)
)
async def create(request: Request, new: NewTopic) -> Response:
    admin = gateway_of(request).broker.admin
    described = await admin.create_topic(new.topic_name, new.partitions_count, config_texts(new.config))
    return _json(_description(described), 201)


@router.get("/{topic}", summary="Describe a topic in full", response_class=Response, responses=answered(TOPIC, JSON))
async def describe(request: Request, topic: TopicName) -> Response:
    return _json(_description(await gateway_of(request).broker.admin.describe_topic(topic)))


@router.delete("/{topic}", status_code=204, summary="Delete a topic", response_class=Response)
async def delete(request: Request, topic: TopicName) -> Response:
    await gateway_of(request).broker.admin.delete_topic(topic)
    return Response(status_code=204)


@router.get(
    "/{topic}/configs", summary="A topic's configuration", response_class=Response, responses=answered(CONFIGS, JSON)
)
async def configs(request: Request, topic: TopicName) -> Response:
    described = await gateway_of(request).broker.admin.describe_topic(topic)
    return _json(_description(described)["configs"])


@router.patch(
    "/{topic}/configs",
    summary="Change a topic's configuration",
    response_class=Response,
    responses=answered(CONFIGS, JSON),
)
async def alter_configs(request: Request, topic: TopicName, change: ConfigChange) -> Response:
    admin = gateway_of(request).broker.admin
    await admin.alter_config(topic, config_texts(change.set), change.unset)
    return _json(_description(await admin.describe_topic(topic))["configs"])


@router.post(
    "/{topic}/partitions",
    summary="Give a topic more partitions",
    response_class=Response,
    responses=answered(TOPIC, JSON),
)
async def add_partitions(request: Request, topic: TopicName, count: PartitionCount) -> Response:
    return _json(_description(await gateway_of(request).broker.admin.add_partitions(topic, count.partitions_count)))


@router.post(
    "/{topic}/delete-records",
    summary="Let go of old records",
    response_class=Response,
    responses=answered(LOG_STARTS, JSON),
)
async def delete_records(request: Request, topic: TopicName, before: RecordsBefore) -> Response:
    starts = await gateway_of(request).broker.admin.delete_records(topic, before.offsets)
    return _json({"log_start_offsets": {str(partition): offset for partition, offset in starts.items()}})


def config_texts(config: dict[str, ConfigText]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type=JSON)


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "records": sum(each.records for each in topic.partitions),
        "bytes": sum(each.bytes for each in topic.partitions),
    }


def _description(topic: TopicDescription) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "table_version": topic.version,
        "configs": [msgspec.to_builtins(entry) for entry in topic.config.describe()],
        "partitions": [msgspec.to_builtins(partition) for partition in topic.partitions],
    }
