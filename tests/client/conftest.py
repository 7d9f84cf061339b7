"""One gateway for all tests of the client, and a topic of its own for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def client(server: LocalGateway) -> Iterator[LakelogClient]:
    with LakelogClient(server.url) as made:
        yield made


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: LakelogClient) -> str:
    """A new topic of two partitions."""
    name = f"topic-{abs(hash(request.node.nodeid))}"
    client.create_topic(name, 2)
    return name
