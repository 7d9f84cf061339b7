"""The application: routes, limits and error replies around one broker."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from compaction_jobs.journal import Journal
from consumer_groups.service import GroupService
from ingest_api.door import Door
from ingest_api.errors import HttpError, as_http, error_response, unexpected
from ingest_api.fast_lane import FastLane
from ingest_api.gateway import Gateway
from ingest_api.kafka.listener import KafkaListener
from ingest_api.metrics import Metrics
from ingest_api.routes import admin, consumers, fetch, group_stream, groups, process, produce, stream, topics
from ingest_api.routes.schemas import ERRORS
from ingest_api.settings import LoadedSettings
from ingest_api.ui import assets as console_page
from ingest_api.ui import routes as console
from ingest_api.ui.lag_history import LagHistory
from ingest_api.ui.rates import Rates
from ingest_api.v3 import cluster as v3_cluster
from ingest_api.v3 import configs as v3_configs
from ingest_api.v3 import groups as v3_groups
from ingest_api.v3 import records as v3_records
from ingest_api.v3 import topics as v3_topics
from ingest_api.v3.errors import PREFIX as V3
from ingest_api.v3.errors import as_v3
from lakelog.broker import Broker
from lakelog.clock import SystemClock
from lakelog.errors import LakelogError
from lakelog.observer import Observers

EXPOSED_HEADERS = (
    "Lakelog-Error",
    "Lakelog-High-Watermark",
    "Lakelog-Log-Start-Offset",
    "Lakelog-Next-Offset",
    "Retry-After",
)


def create_app(settings: LoadedSettings, kafka: socket.socket | None = None) -> FastAPI:
    """The application; if it is given a socket, it serves Kafka's protocol there for as long as it lives."""
    metrics = Metrics()
    rates = Rates(SystemClock().now_ms)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        where, options = settings.gateway.warehouse, settings.storage
        async with (
            Broker.open(where, settings.log, options, observer=Observers(metrics, rates)) as broker,
            GroupService(broker, settings.groups) as group_service,
            LagHistory(group_service, broker.clock) as lag_history,
        ):
            gateway = Gateway(broker, group_service, settings, metrics)
            metrics.watch(broker, lambda: gateway.bodies.room.bytes, lambda: gateway.replies.room.bytes)
            app.state.gateway = gateway
            app.state.lag_history = lag_history
            app.state.journal = Journal(broker.store, broker.clock)
            async with gateway.consumers, AsyncExitStack() as listeners:
                if kafka is not None:
                    await listeners.enter_async_context(KafkaListener(gateway, kafka))
                yield

    # Its own pages of documentation are programs from outside; the console shows the description instead.
    no_pages: dict[str, Any] = {"docs_url": None, "redoc_url": None}
    app = FastAPI(title="Lakelog", version=version("lakelog"), lifespan=lifespan, redirect_slashes=False, **no_pages)
    # In the order of how often they are asked for: routes are tried one after the other.
    produce.register(app)
    v3_records.register(app)
    v3 = (v3_configs, v3_topics, v3_groups, v3_cluster)
    for module in (consumers, fetch, group_stream, stream, topics, admin, groups, process, *v3, console):
        app.include_router(module.router, responses=ERRORS)
    app.add_exception_handler(LakelogError, _log_error)
    app.add_exception_handler(HttpError, _http_error)
    app.add_exception_handler(HTTPException, _starlette_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _unexpected_error)
    app.include_router(console_page.router)
    app.state.metrics = metrics
    app.state.rates = rates
    return app


def front_of(app: FastAPI, settings: LoadedSettings) -> ASGIApp:
    """The application with what every request passes first."""
    inner: ASGIApp = FastLane(app)
    if settings.gateway.cors_origins:
        inner = CORSMiddleware(
            inner,
            allow_origins=[origin.strip() for origin in settings.gateway.cors_origins.split(",")],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
    return Door(inner, settings.gateway, app.state.metrics)


async def _log_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LakelogError)
    return error_response(as_v3(error) if request.url.path.startswith(V3) else as_http(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error_response(error)


async def _starlette_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path}"
    elif error.status_code == 400:  # FastAPI says this of a body that it could not even begin to check
        detail = "the body is not JSON, or is nested too deep"
    response = error_response(HttpError(error.status_code, detail))
    response.headers.update(error.headers or {})
    return response


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return error_response(unexpected())


async def _validation_error(request: Request, error: Exception) -> Response:
    """FastAPI found a parameter or a field of a small body wrong: say which and why."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(step) for step in first["loc"])
    if first["type"] == "json_invalid":
        return error_response(HttpError(400, f"the body is not JSON: {first['ctx']['error']}"))
    if request.url.path.startswith(V3):
        return error_response(HttpError(404 if first["loc"][0] == "path" else 400, f"{place}: {first['msg']}"))
    if first["loc"][:2] == ("path", "partition"):
        return error_response(HttpError(404, f"{place}: {first['msg']}", 40402))
    return error_response(HttpError(422, f"{place}: {first['msg']}"))
