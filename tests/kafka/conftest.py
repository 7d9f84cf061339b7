"""A gateway in this process with a listener of its own, and a plain client that speaks through kio."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
import pytest_asyncio

from ingest_api.app import create_app
from ingest_api.gateway import Gateway
from ingest_api.settings import load_settings
from tests.kafka.plain_client import PlainClient


class Listening(NamedTuple):
    gateway: Gateway
    host: str
    port: int

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @asynccontextmanager
    async def client(self) -> AsyncIterator[PlainClient]:
        client = await PlainClient.connect(self.host, self.port)
        try:
            yield client
        finally:
            client.close()


async def soon(holds: Callable[[], bool]) -> None:
    """Wait until the listener has seen what its clients did, which takes some turns of the event loop."""
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to that")


OpenListener: TypeAlias = Callable[..., AbstractAsyncContextManager[Listening]]


@pytest.fixture
def open_listener(tmp_path: Path) -> OpenListener:
    @asynccontextmanager
    async def opened(**settings: str) -> AsyncIterator[Listening]:
        loaded = load_settings({"warehouse": str(tmp_path / "warehouse"), "access_log": "off", **settings}, {})
        listening = socket.create_server(("127.0.0.1", 0))
        host, port = listening.getsockname()
        app = create_app(loaded, listening)
        async with app.router.lifespan_context(app):
            yield Listening(app.state.gateway, host, port)

    return opened


@pytest_asyncio.fixture
async def listening(open_listener: OpenListener) -> AsyncIterator[Listening]:
    async with open_listener() as found:
        yield found


@pytest_asyncio.fixture
async def client(listening: Listening) -> AsyncIterator[PlainClient]:
    async with listening.client() as found:
        yield found
