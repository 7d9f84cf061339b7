"""One gateway for all tests of the client, and a topic of its own for each."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from lakelog.client import AsyncLakelogClient, LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), {"access_log": "off"}) as running:
        yield running


@pytest.fixture
def client(server: LocalGateway) -> Iterator[LakelogClient]:
    with LakelogClient(server.url) as made:
        yield made


@pytest_asyncio.fixture
async def aio(server: LocalGateway) -> AsyncIterator[AsyncLakelogClient]:
    async with AsyncLakelogClient(server.url) as made:
        yield made


@pytest.fixture
def topic(client: LakelogClient) -> str:
    """A new topic of two partitions."""
    name = f"topic-{uuid.uuid4().hex}"
    client.create_topic(name, 2)
    return name


@pytest.fixture
def unused_url() -> Iterator[str]:
    """An address that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
