"""Topic configuration: list, look up, set, reset, and many changes at once."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ingest_api.errors import HttpError
from ingest_api.gateway import gateway_of
from ingest_api.routes.admin import ConfigText, config_texts
from ingest_api.routes.direct import BoundedRoute
from ingest_api.routes.strict import Strict
from ingest_api.v3 import schemas
from ingest_api.v3.catalogue import ALL
from ingest_api.v3.cluster import ClusterId, catalogue_of, replied
from ingest_api.v3.errors import BAD_REQUEST, not_found
from ingest_api.v3.schemas import listed, one
from ingest_api.v3.topics import AT_TOPIC, AT_TOPICS, TopicName
from lakelog.config import ConfigEntry

AT_CONFIG = f"{AT_TOPIC}/configs/{{name}}"
ConfigName = Annotated[str, Path(description="The config's name")]

router = APIRouter(prefix="/v3", tags=["v3 configs"], route_class=BoundedRoute)


class NewValue(Strict):
    value: ConfigText | None = None


class Alteration(Strict):
    name: str
    value: ConfigText | None = None
    operation: Literal["SET", "DELETE"] | None = None


class Alterations(Strict):
    data: Annotated[list[Alteration], Field(min_length=1)]
    validate_only: bool | None = None


# Before those of one topic, whose name is never a dash alone in v3.
@router.get(
    f"{AT_TOPICS}/{ALL}/configs",
    summary="List the configuration of all topics",
    response_class=Response,
    responses=listed(schemas.TOPIC_CONFIG),
)
async def all_configs(request: Request, cluster_id: ClusterId) -> Response:
    writer = catalogue_of(request, cluster_id)
    described = await gateway_of(request).broker.admin.describe_topics(internal=True)
    found = [writer.topic_config(topic.name, entry) for topic in described for entry in topic.config.describe()]
    return replied(writer.listing("KafkaTopicConfigList", ("topics", ALL, "configs"), found))


@router.get(
    f"{AT_TOPIC}/configs",
    summary="List a topic's configuration",
    response_class=Response,
    responses=listed(schemas.TOPIC_CONFIG),
)
async def configs(request: Request, cluster_id: ClusterId, topic_name: TopicName) -> Response:
    writer = catalogue_of(request, cluster_id)
    entries = await _entries(request, topic_name)
    at = ("topics", topic_name, "configs")
    return replied(
        writer.listing("KafkaTopicConfigList", at, [writer.topic_config(topic_name, entry) for entry in entries])
    )


@router.get(AT_CONFIG, summary="One of a topic's configs", response_class=Response, responses=one(schemas.TOPIC_CONFIG))
async def config(request: Request, cluster_id: ClusterId, topic_name: TopicName, name: ConfigName) -> Response:
    writer = catalogue_of(request, cluster_id)
    entries = await _entries(request, topic_name)
    return replied(writer.topic_config(topic_name, _named(entries, name)))


@router.put(AT_CONFIG, status_code=204, summary="Set a config", response_class=Response)
async def set_config(
    request: Request, cluster_id: ClusterId, topic_name: TopicName, name: ConfigName, new: NewValue
) -> Response:
    catalogue_of(request, cluster_id)
    _named(await _entries(request, topic_name), name)
    if new.value is None:
        raise HttpError(400, f"{name} has no value; DELETE takes a config back to its default", BAD_REQUEST)
    await gateway_of(request).broker.admin.alter_config(topic_name, config_texts({name: new.value}))
    return Response(status_code=204)


@router.delete(AT_CONFIG, status_code=204, summary="Take a config back to its default", response_class=Response)
async def reset_config(request: Request, cluster_id: ClusterId, topic_name: TopicName, name: ConfigName) -> Response:
    catalogue_of(request, cluster_id)
    _named(await _entries(request, topic_name), name)
    await gateway_of(request).broker.admin.alter_config(topic_name, unset=[name])
    return Response(status_code=204)


@router.post(
    f"{AT_TOPIC}/configs:alter",
    status_code=204,
    summary="Change several configs, all of them or none",
    response_class=Response,
)
async def alter(request: Request, cluster_id: ClusterId, topic_name: TopicName, changes: Alterations) -> Response:
    catalogue_of(request, cluster_id)
    entries = await _entries(request, topic_name)
    values: dict[str, ConfigText] = {}
    reset: list[str] = []
    for change in changes.data:
        _named(entries, change.name)
        if change.operation == "DELETE":
            reset.append(change.name)
        elif change.value is None:
            raise HttpError(400, f"{change.name} is to be set and has no value", BAD_REQUEST)
        elif change.name in values:
            raise HttpError(400, f"{change.name} is to be set twice", BAD_REQUEST)
        else:
            values[change.name] = change.value
    admin = gateway_of(request).broker.admin
    await admin.alter_config(topic_name, config_texts(values), reset, validate_only=bool(changes.validate_only))
    return Response(status_code=204)


async def _entries(request: Request, topic: str) -> list[ConfigEntry]:
    return (await gateway_of(request).broker.admin.describe_topic(topic)).config.describe()


def _named(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    for entry in entries:
        if entry.name == name:
            return entry
    raise not_found(f"config {name[:100]!r}")
