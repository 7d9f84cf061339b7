"""The client for event loops does what the blocking one does, and many things at once."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from lakelog.client import AsyncLakelogClient, LakelogClient, RequestFailed
from lakelog.errors import ErrorCode


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def public(client: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in vars(client).items()
            if inspect.isfunction(member) and not name.startswith("_")
        }

    assert public(AsyncLakelogClient) == public(LakelogClient)


@pytest.mark.parametrize("client", [LakelogClient, AsyncLakelogClient])
def test_each_method_says_what_it_does(client: type) -> None:
    methods = [member for name, member in vars(client).items() if inspect.isfunction(member) and name[0] != "_"]
    assert [method.__name__ for method in methods if not method.__doc__ and method.__name__ != "close"] == []


async def test_a_topic_from_its_creation_to_its_end(aio: AsyncLakelogClient) -> None:
    await aio.create_topic("async-life", 1)
    await aio.produce("async-life", ["a", "b"])
    assert (await aio.describe_topic("async-life")).records == 2
    assert await aio.delete_records("async-life", {0: 1}) == {0: 1}
    assert await aio.offsets_at("async-life", "earliest") == {0: 1}
    await aio.delete_topic("async-life")
    with pytest.raises(RequestFailed) as caught:
        await aio.fetch("async-life")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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


async def test_batches_of_a_stream_are_whole_replies(aio: AsyncLakelogClient, topic: str) -> None:
    await aio.produce(topic, ["a", "b", "c"], partition=1)
    stream = aio.stream(topic, offset="earliest", follow=False)
    assert [len(batch) async for batch in stream.batches()] == [3]
    assert stream.positions == {0: 0, 1: 3}


async def test_an_address_without_a_gateway_is_named(unused_url: str) -> None:
    async with AsyncLakelogClient(unused_url, retry_timeout_s=0) as nobody:
        with pytest.raises(RequestFailed, match=f"no gateway answers at {unused_url}"):
            await nobody.ping()
