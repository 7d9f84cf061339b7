"""The process itself: is it alive, can it serve, what does it count, what does it offer."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ingest_api import metrics
from ingest_api.errors import HttpError
from ingest_api.gateway import gateway_of
from ingest_api.routes.schemas import TEXT, an_object, answered
from ingest_api.routes.topics import v2_reply
from lakelog.delta.store import StoreRefused, StoreUnavailable

router = APIRouter(tags=["process"])


@router.get(
    "/", summary="What this is", response_class=Response, responses=answered(an_object(name=TEXT, version=TEXT))
)
async def root(request: Request) -> Response:
    return v2_reply(request, {"name": "lakelog", "version": version("lakelog")})


@router.get("/healthy", status_code=204, summary="Whether the process lives", response_class=Response)
async def healthy() -> Response:
    return Response(status_code=204)


@router.get("/ready", status_code=204, summary="Whether it can serve", response_class=Response)
async def ready(request: Request) -> Response:
    gateway = gateway_of(request)
    if gateway.stopping.is_set():
        raise HttpError(503, "the gateway is stopping")
    try:
        await gateway.broker.store.folders()
    except (StoreUnavailable, StoreRefused) as error:
        raise HttpError(503, f"the warehouse does not answer: {error}") from None
    return Response(status_code=204)


@router.get("/metrics", summary="Prometheus metrics", response_class=Response, responses=answered(TEXT, "text/plain"))
async def prometheus(request: Request) -> Response:
    gateway = gateway_of(request)
    text = await gateway.broker.compute(gateway.metrics.snapshot().text)
    return Response(text, media_type=metrics.CONTENT_TYPE)


@router.get("/openapi", summary="This description", response_class=JSONResponse)
async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(request.app.openapi())
