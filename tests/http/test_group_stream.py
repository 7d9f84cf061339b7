"""Groups by push. A stream goes on, so it needs a connection: these tests talk to a process."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway
from tests.http.consumers import ConsumerOf, consumer, place
from tests.http.requests import BINARY, b64, create, error_of, produce, records, send

pytestmark = pytest.mark.e2e

LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
PATIENCE_S = 60


class Reader:
    """One end of a stream: records as they come, and the consumer that they are acknowledged at."""

    def __init__(self, client: httpx.AsyncClient, reply: httpx.Response) -> None:
        self._lines = reply.aiter_lines()
        self.consumer = ConsumerOf(client, httpx.URL(reply.headers["content-location"]).path)

    async def take(self, count: int) -> list[Any]:
        """The values of the next records."""
        values: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(values) < count:
                line = (await anext(self._lines)).removeprefix("data: ")
                if line.startswith("{") and "offset" in (record := json.loads(line)):
                    values.append(record["value"])
        return values

    async def rest(self) -> list[str]:
        async with asyncio.timeout(PATIENCE_S):
            return [line async for line in self._lines if line]

    async def acknowledge(self, topic: str, partition: int, offset: int) -> None:
        await self.consumer.done("POST", "/offsets", {"offsets": [place(topic, partition, offset=offset)]})


@pytest_asyncio.fixture
async def client(shared_process: LocalGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared_process.url, timeout=PATIENCE_S) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """Each test has a topic of its own, and a group of the same name."""
    return f"streamed-{uuid.uuid4().hex}"


@asynccontextmanager
async def _stream(client: httpx.AsyncClient, group: str, query: str, accept: str = LINES) -> AsyncIterator[Reader]:
    path = f"/consumers/{group}/stream?auto.offset.reset=earliest&{query}"
    async with client.stream("GET", path, headers={"Accept": accept}) as reply:
        assert reply.status_code == 200, await reply.aread()
        assert reply.headers["content-type"].startswith(accept)
        yield Reader(client, reply)


@pytest.mark.parametrize("accept", [LINES, EVENTS])
async def test_records_are_sent_as_they_arrive(client: httpx.AsyncClient, topic: str, accept: str) -> None:
    await send(client, topic, 1, {"a": 2})
    async with _stream(client, topic, f"topics={topic}", accept) as reader:
        assert await reader.take(2) == [1, {"a": 2}]
        await send(client, topic, 3)
        assert await reader.take(1) == [3]


async def test_the_first_event_says_where_to_acknowledge(client: httpx.AsyncClient, topic: str) -> None:
    await send(client, topic, 1)
    async with _stream(client, topic, f"topics={topic}&name=me&limit=1", EVENTS) as reader:
        first, instance, *rest = await reader.rest()
    assert first == "event: instance"
    address = f"{client.base_url}/consumers/{topic}/instances/me"
    assert json.loads(instance.removeprefix("data: ")) == {"instance_id": "me", "base_uri": address}
    assert len(rest) == 1, "the record, and the limit ends it"


@pytest.mark.parametrize(("format", "value"), [("json", "x"), ("text", '"x"'), ("binary", b64(b'"x"'))])
async def test_formats(client: httpx.AsyncClient, topic: str, format: str, value: str) -> None:
    await send(client, topic, "x")
    async with _stream(client, topic, f"topics={topic}&format={format}&limit=1") as reader:
        assert await reader.take(1) == [value]


async def test_what_was_not_acknowledged_goes_to_the_next_reader(client: httpx.AsyncClient, topic: str) -> None:
    await send(client, topic, *range(4))
    async with _stream(client, topic, f"topics={topic}") as reader:
        assert await reader.take(4) == [0, 1, 2, 3]
        await reader.acknowledge(topic, 0, 1)
        path = reader.consumer
    async with _stream(client, topic, f"topics={topic}") as reader:
        assert await reader.take(2) == [2, 3]
        assert error_of(await path.request("GET", "/records"))[:2] == (404, 40403), "it left with its connection"


async def test_no_more_is_sent_than_a_window_ahead(client: httpx.AsyncClient, topic: str) -> None:
    await send(client, topic, *range(6))
    async with _stream(client, topic, f"topics={topic}&max_unacknowledged=2&limit=5") as reader:
        assert await reader.take(2) == [0, 1]
        rest = asyncio.create_task(reader.take(3))
        for offset in (0, 1, 2):
            await reader.acknowledge(topic, 0, offset)
        assert await rest == [2, 3, 4]


async def test_a_reader_whose_window_is_full_keeps_its_place_and_gives_up_what_moves(tmp_path: Path) -> None:
    settings = {"access_log": "off", "group_min_session_timeout_ms": "1", "heartbeat_ms": "60000"}
    session = {"session_timeout_ms": 3_000}
    with gateway(tmp_path, settings) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
            await create(client, "orders", 2)
            for partition in (0, 1):
                await produce(client, f"/topics/orders/partitions/{partition}", records(partition))
            query = "topics=orders&max_unacknowledged=2&session.timeout.ms=3000"
            async with _stream(client, "readers", query) as reader:
                assert sorted(await reader.take(2)) == [0, 1]
                second = await consumer(client, "readers")
                await second.subscribe("orders")
                (moved,) = await second.values("timeout=60000")
                await send(client, "ticks", "over")
                silent, after = await consumer(client, "clock", **session), await consumer(client, "clock")
                await silent.subscribe("ticks")
                await after.subscribe("ticks")
                assert await after.values("timeout=60000") == ["over"], "as is by now the session of who began before"
                kept = 1 - moved
                await reader.acknowledge("orders", kept, 0)
                await produce(client, f"/topics/orders/partitions/{kept}", records("more"))
                assert await reader.take(1) == ["more"]


async def test_a_reader_that_is_put_elsewhere_is_sent_what_is_there(client: httpx.AsyncClient, topic: str) -> None:
    await send(client, topic, *range(8))
    async with _stream(client, topic, f"topics={topic}&max_unacknowledged=2") as reader:
        assert await reader.take(2) == [0, 1]
        for offset, values in ((5, [5, 6]), (1, [1, 2])):
            await reader.consumer.done("POST", "/positions", {"offsets": [place(topic, 0, offset=offset)]})
            assert await reader.take(2) == values


async def test_a_reader_at_the_end_is_put_back(client: httpx.AsyncClient, topic: str) -> None:
    await send(client, topic, *range(3))
    async with _stream(client, topic, f"topics={topic}") as reader:
        assert await reader.take(3) == [0, 1, 2]
        await reader.consumer.done("POST", "/positions/beginning", {"partitions": [place(topic, 0)]})
        assert await reader.take(3) == [0, 1, 2]


async def test_offsets_without_records_are_not_in_the_window(client: httpx.AsyncClient, topic: str) -> None:
    """Records were deleted while the reader was behind them, so it goes on far from where it began."""
    await send(client, topic, *range(50))
    await client.post(f"/admin/topics/{topic}/delete-records", json={"offsets": {"0": 1}})
    async with _stream(client, topic, f"topics={topic}&max_unacknowledged=4") as reader:
        assert await reader.take(4) == [1, 2, 3, 4]
        await client.post(f"/admin/topics/{topic}/delete-records", json={"offsets": {"0": 48}})
        await reader.acknowledge(topic, 0, 4)
        assert await reader.take(2) == [48, 49]
        await send(client, topic, 50)
        assert await reader.take(1) == [50]


async def test_readers_share_and_a_poll_may_take_over(client: httpx.AsyncClient, topic: str) -> None:
    await create(client, topic, 2)
    query = f"topics={topic}"
    async with _stream(client, topic, query) as first, _stream(client, topic, query) as second:
        both = [first.consumer, second.consumer]
        while [len(await each.assigned()) for each in both] != [1, 1]:
            pass
        for partition in (0, 1):
            await produce(client, f"/topics/{topic}/partitions/{partition}", records(partition))
        assert sorted(await first.take(1) + await second.take(1)) == [0, 1]
    poller = await consumer(client, topic)
    await poller.subscribe(topic)
    found: list[Any] = []
    while len(found) < 2:
        found += await poller.values("timeout=60000")
    assert sorted(found) == [0, 1]


async def test_a_stream_that_commits_what_it_sends(client: httpx.AsyncClient, topic: str) -> None:
    await send(client, topic, 1)
    async with _stream(client, topic, f"topics={topic}&auto.commit.enable=true&max_unacknowledged=1") as reader:
        assert await reader.take(1) == [1]
        await send(client, topic, 2)
        assert await reader.take(1) == [2], "nobody has to acknowledge"
    async with _stream(client, topic, f"topics={topic}") as reader:
        await send(client, topic, 3)
        assert (await reader.take(1))[0] in (2, 3), "the last one may be sent once more"


async def test_deleting_the_consumer_ends_the_stream(client: httpx.AsyncClient, topic: str) -> None:
    async with _stream(client, topic, "topic_pattern=nothing-of-this-name") as reader:
        await reader.consumer.delete()
        assert await reader.rest() == []


async def test_a_record_that_the_format_can_not_write_is_the_last_thing_said(
    client: httpx.AsyncClient, topic: str
) -> None:
    await produce(client, f"/topics/{topic}", records(b64(b"\xff")), BINARY)
    async with _stream(client, topic, f"topics={topic}") as reader:
        (said,) = await reader.rest()
    assert json.loads(said)["error_code"] == 406


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", 422),
        ("topics=a&topic_pattern=b", 422),
        ("topics=a/b", 422),
        ("topic_pattern=(", 422),
        ("topics=a&format=avro", 422),
        ("topics=a&auto.offset.reset=now", 42204),
        ("topics=a&session.timeout.ms=1", 422),
        ("topics=a&max_unacknowledged=0", 422),
    ],
)
async def test_refusals(client: httpx.AsyncClient, topic: str, query: str, code: int) -> None:
    reply = await client.get(f"/consumers/{topic}/stream?{query}")
    assert error_of(reply)[:2] == (422, code)


async def test_a_name_that_is_taken(client: httpx.AsyncClient, topic: str) -> None:
    await consumer(client, topic, name="me")
    reply = await client.get(f"/consumers/{topic}/stream?topics=a&name=me")
    assert error_of(reply)[:2] == (409, 40902)
