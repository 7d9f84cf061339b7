"""What every suite may ask for: an empty warehouse on each kind of store, a real S3 server, brokers that get closed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
import pytest_asyncio
from hypothesis import settings

from lakelog.broker import Broker
from lakelog.clock import Clock
from lakelog.config import ServerSettings
from lakelog.delta.store import Store, open_store

S3_ACCESS_KEY = "lakelog-tests"
S3_SECRET_KEY = "lakelog-tests-secret"
S3_BUCKET = "warehouse"
S3_START_TIMEOUT_S = 20.0

# For Java that lives for seconds: what the slower compiler would gain is not run often enough to pay for it.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

OpenBroker: TypeAlias = Callable[..., Broker]

# Whoever runs the tests in the background has them ignore Ctrl-C, and what they start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    # A slow machine fails no test.
    settings.register_profile("lakelog", deadline=None)
    settings.load_profile("lakelog")
    # Every driver of Spark takes them, also one that a notebook or a command starts.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JAVA)


class Warehouse(NamedTuple):
    """Where a warehouse lies: what `Broker.open` and `open_store` take."""

    url: str
    options: dict[str, str]

    def open_store(self) -> Store:
        return open_store(self.url, self.options)


class S3Server(NamedTuple):
    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "access_key_id": S3_ACCESS_KEY,
            "secret_access_key": S3_SECRET_KEY,
            "region": "us-east-1",
        }


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A versitygw of this session's own, on a free port, with an empty bucket in it."""
    binary = Path(sys.executable).parent / "versitygw"
    if not binary.exists():
        pytest.skip("versitygw is not in .venv/bin: `make s3` builds it where Go is installed")
    root = tmp_path_factory.mktemp("s3")
    (root / "buckets" / S3_BUCKET).mkdir(parents=True)
    (root / "attributes").mkdir()
    port = free_port()
    # Attributes in a folder of their own: not every file system that tests run on can keep them with the files.
    options = ["--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
    backend = ["posix", "--sidecar", str(root / "attributes"), str(root / "buckets")]
    with (root / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(binary), *options, *backend],
            env={**os.environ, "ROOT_ACCESS_KEY": S3_ACCESS_KEY, "ROOT_SECRET_KEY": S3_SECRET_KEY},
            stdout=log,
            stderr=log,
        )
    try:
        wait_until_it_answers(server, port, root / "log")
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        server.kill()  # asked politely it waits for connections that are kept open
        server.wait()


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.s3)])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """A warehouse with nothing in it, on each kind of store in turn."""
    if request.param == "memory":
        return Warehouse(f"memory://{uuid.uuid4().hex}", {})
    if request.param == "local":
        return Warehouse(str(tmp_path / "warehouse"), {})
    server: S3Server = request.getfixturevalue("s3_server")
    return Warehouse(f"s3://{S3_BUCKET}/{uuid.uuid4().hex}", server.options)


@pytest_asyncio.fixture
async def open_broker(warehouse: Warehouse) -> AsyncIterator[OpenBroker]:
    """Opens brokers, any number of them, on the test's warehouse. All are closed at its end, the last one first."""
    opened: list[Broker] = []

    def open_one(settings: ServerSettings | None = None, *, clock: Clock | None = None) -> Broker:
        if clock is None:
            broker = Broker.open(warehouse.url, settings, warehouse.options)
        else:
            broker = Broker(warehouse.open_store(), settings, clock=clock)
        opened.append(broker)
        return broker

    yield open_one
    for broker in reversed(opened):
        await broker.close()


@pytest_asyncio.fixture
async def broker(open_broker: OpenBroker) -> Broker:
    return open_broker()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    tries = int(S3_START_TIMEOUT_S / 0.05)
    for _ in range(tries):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            pass
        try:
            server.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"versitygw does not answer: {log.read_text(errors='replace')[-2000:]}")
