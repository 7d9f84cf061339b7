"""The client for event loops does what the blocking one does, and many things at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from lakelog.client import AsyncLakelogClient
from lakelog_cli.local_gateway import LocalGateway


@pytest.fixture
async def aio(server: LocalGateway) -> AsyncIterator[AsyncLakelogClient]:
    async with AsyncLakelogClient(server.url) as made:
        yield made


async def test_many_producers_at_once_store_each_record_once(aio: AsyncLakelogClient, topic: str) -> None:
    await asyncio.gather(*(aio.produce(topic, [f"{sender}/{n}" for n in range(20)]) for sender in range(20)))
    values = [record.value for record in await aio.fetch(topic)]
    assert set(values) == {f"{sender}/{n}".encode() for sender in range(20) for n in range(20)}
    assert len(values) == 400


async def test_a_stream_waits_without_holding_anybody_up(aio: AsyncLakelogClient, topic: str) -> None:
    async def read() -> list[bytes | None]:
        return [record.value async for record in aio.stream(topic, offset="earliest", max_records=4)]

    reader = asyncio.create_task(read())
    for number in range(4):
        await aio.produce(topic, [str(number)], partition=0)
    assert await reader == [b"0", b"1", b"2", b"3"]


async def test_a_producer_delivers_in_order(aio: AsyncLakelogClient, topic: str) -> None:
    async with aio.producer(topic, partition=0, linger_ms=1) as producer:
        for number in range(1000):
            await producer.send(str(number))
        await producer.flush()
    assert [record.value for record in await aio.fetch(topic, partition=0)] == [b"%d" % n for n in range(1000)]
