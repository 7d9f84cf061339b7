"""The real application over a warehouse on a disk: in this process, or where a socket is needed as a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
import pytest_asyncio

from ingest_api.app import create_app, front_of
from ingest_api.door import Door
from ingest_api.gateway import Gateway
from ingest_api.settings import load_settings
from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway as gateway_process

BASE_URL = "http://gateway"


class Served(httpx.AsyncClient):
    """A client of an application in this process, and a way to look behind it."""

    gateway: Gateway


OpenGateway: TypeAlias = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def open_gateway(tmp_path: Path) -> OpenGateway:
    """Opens applications on the test's warehouse, with settings by name; `fast_lane=False` leaves FastAPI alone."""

    @asynccontextmanager
    async def opened(*, fast_lane: bool = True, **settings: str) -> AsyncIterator[Served]:
        loaded = load_settings({"warehouse": str(tmp_path / "warehouse"), "access_log": "off", **settings}, {})
        app = create_app(loaded)
        front = front_of(app, loaded) if fast_lane else Door(app, loaded.gateway, app.state.metrics)
        client = Served(transport=httpx.ASGITransport(front), base_url=BASE_URL)
        async with app.router.lifespan_context(app), client:
            client.gateway = app.state.gateway
            yield client

    return opened


@pytest_asyncio.fixture
async def served(open_gateway: OpenGateway) -> AsyncIterator[Served]:
    async with open_gateway() as client:
        yield client


@pytest_asyncio.fixture(params=["fast lane", "route"])
async def either_lane(request: pytest.FixtureRequest, open_gateway: OpenGateway) -> AsyncIterator[Served]:
    """Both ways that a produce request may take."""
    async with open_gateway(fast_lane=request.param == "fast lane") as client:
        yield client


@pytest.fixture(scope="session")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """A gateway process for tests that leave it as healthy as they found it."""
    with gateway_process(tmp_path_factory.mktemp("shared"), {"access_log": "off"}) as server:
        yield server
