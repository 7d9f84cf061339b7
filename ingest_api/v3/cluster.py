"""Clusters and brokers. There is one of each: any gateway serves all of its warehouse."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from ingest_api.errors import HttpError
from ingest_api.gateway import address_of, gateway_of
from ingest_api.media import JSON
from ingest_api.positions import INT32_MAX
from ingest_api.settings import NO_LISTENER, split_address
from ingest_api.v3 import catalogue, schemas
from ingest_api.v3.catalogue import ALL, Catalogue, Step
from ingest_api.v3.errors import BAD_REQUEST, not_found
from ingest_api.v3.schemas import listed, one

ClusterId = Annotated[str, Path(description="The cluster's id")]
BrokerId = Annotated[int, Path(description="The broker's id", ge=0, le=INT32_MAX)]

AT_CLUSTER = "/clusters/{cluster_id}"
router = APIRouter(prefix="/v3", tags=["v3 cluster"])


def catalogue_of(request: Request, cluster_id: str) -> Catalogue:
    """Raises if the path names another cluster than the one there is."""
    ours = gateway_of(request).settings.cluster_id
    if cluster_id != ours:
        raise not_found(f"cluster {cluster_id[:100]!r}")
    return Catalogue(address_of(request), ours)


def replied(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type=JSON)


def require_broker(broker_id: int) -> None:
    if broker_id != catalogue.BROKER:
        raise not_found(f"broker {broker_id}")


@router.get("/clusters", summary="List clusters", response_class=Response, responses=listed(schemas.CLUSTER))
async def clusters(request: Request) -> Response:
    return replied(catalogue_of(request, gateway_of(request).settings.cluster_id).clusters())


@router.get(AT_CLUSTER, summary="Describe the cluster", response_class=Response, responses=one(schemas.CLUSTER))
async def cluster(request: Request, cluster_id: ClusterId) -> Response:
    return replied(catalogue_of(request, cluster_id).cluster())


@router.get(f"{AT_CLUSTER}/brokers", summary="List brokers", response_class=Response, responses=listed(schemas.BROKER))
async def brokers(request: Request, cluster_id: ClusterId) -> Response:
    writer = catalogue_of(request, cluster_id)
    return replied(writer.listing("KafkaBrokerList", ("brokers",), [_broker(request, writer)]))


@router.get(
    f"{AT_CLUSTER}/brokers/{{broker_id}}",
    summary="Describe a broker",
    response_class=Response,
    responses=one(schemas.BROKER),
)
async def broker(request: Request, cluster_id: ClusterId, broker_id: BrokerId) -> Response:
    writer = catalogue_of(request, cluster_id)
    require_broker(broker_id)
    return replied(_broker(request, writer))


# Before those of the broker of that number: a dash would be refused there.
@router.get(
    f"{AT_CLUSTER}/brokers/{ALL}/configs",
    summary="List the settings of all brokers",
    response_class=Response,
    responses=listed(schemas.BROKER_CONFIG),
)
async def all_broker_configs(request: Request, cluster_id: ClusterId) -> Response:
    return _broker_configs(request, cluster_id, ALL)


@router.get(
    f"{AT_CLUSTER}/brokers/{{broker_id}}/configs",
    summary="List a broker's settings",
    response_class=Response,
    responses=listed(schemas.BROKER_CONFIG),
)
async def broker_configs(request: Request, cluster_id: ClusterId, broker_id: BrokerId) -> Response:
    require_broker(broker_id)
    return _broker_configs(request, cluster_id, broker_id)


@router.get(
    f"{AT_CLUSTER}/brokers/{{broker_id}}/configs/{{name}}",
    summary="One of a broker's settings",
    response_class=Response,
    responses=one(schemas.BROKER_CONFIG),
)
async def broker_config(request: Request, cluster_id: ClusterId, broker_id: BrokerId, name: str) -> Response:
    writer = catalogue_of(request, cluster_id)
    require_broker(broker_id)
    for entry in gateway_of(request).broker.settings.describe():
        if entry.name == name:
            return replied(writer.broker_config(entry))
    raise not_found(f"config {name[:100]!r}")


@router.get(
    f"{AT_CLUSTER}/broker-configs",
    summary="List what was changed for all brokers while they run: nothing can be",
    response_class=Response,
    responses=listed(schemas.BROKER_CONFIG),
)
async def cluster_configs(request: Request, cluster_id: ClusterId) -> Response:
    return replied(catalogue_of(request, cluster_id).listing("KafkaClusterConfigList", ("broker-configs",), ()))


@router.get(f"{AT_CLUSTER}/acls", summary="List access rules: there are none", response_class=Response)
async def acls(request: Request, cluster_id: ClusterId) -> Response:
    catalogue_of(request, cluster_id)
    raise HttpError(400, "no authorizer is configured, so there are no access rules", BAD_REQUEST)


def _broker(request: Request, writer: Catalogue) -> dict[str, Any]:
    """With the address that Kafka's clients come back to: what is advertised, or else where the caller has come to."""
    settings = gateway_of(request).settings
    if settings.kafka == NO_LISTENER:
        return writer.broker(None, None)
    host, port = split_address(settings.kafka_advertised or settings.kafka)
    if not settings.kafka_advertised:
        host = urlsplit(address_of(request)).hostname or host
    return writer.broker(host, port or None)  # 0 stands for any that is free


def _broker_configs(request: Request, cluster_id: str, broker: Step) -> Response:
    writer = catalogue_of(request, cluster_id)
    entries = gateway_of(request).broker.settings.describe()
    at = ("brokers", broker, "configs")
    return replied(writer.listing("KafkaBrokerConfigList", at, map(writer.broker_config, entries)))
