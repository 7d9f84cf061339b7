"""Producers that gather: every record arrives once and in order, or its sender hears why not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import wait

import pyarrow as pa
import pytest

from lakelog.client import (
    AsyncLakelogClient,
    AsyncProducer,
    BatchingOptions,
    LakelogClient,
    OffsetRange,
    Produced,
    Producer,
)
from lakelog.errors import ErrorCode, LakelogError

# Longer than any test takes: what arrives all the same did not wait for the linger.
FOREVER_MS = 3_600_000
NOWHERE = 9


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# With room for one record at a time, each has to wait until the one before is stored.
@pytest.mark.parametrize("options", [{}, {"linger_ms": 0}, {"batch_bytes": 100}, {"buffer_bytes": 1, "linger_ms": 0}])
def test_records_arrive_once_and_in_order(client: LakelogClient, topic: str, options: dict[str, int]) -> None:
    with client.producer(topic, partition=1, **options) as producer:
        deliveries = [producer.send(str(number)) for number in range(200)]
    assert [record.value for record in client.fetch(topic, partition=1)] == numbers(200)
    assert all(delivery.done() for delivery in deliveries)
    assert deliveries[0].result().ranges[0].start_offset == 0


def test_a_flush_does_not_wait_for_the_linger(client: LakelogClient, topic: str) -> None:
    with client.producer(topic, partition=0, linger_ms=FOREVER_MS) as producer:
        delivery = producer.send("a", "key", headers=[("h", "1")], timestamp=1_700_000_000_000)
        producer.send("b")
        producer.flush()
        assert delivery.result(timeout=0) == Produced(2, (OffsetRange(0, 0, 2),))
        (first, _) = client.fetch(topic, partition=0)
    assert (first.key, first.headers, first.timestamp_ms) == (b"key", (("h", b"1"),), 1_700_000_000_000)


def test_a_full_batch_does_not_wait_for_the_linger(client: LakelogClient, topic: str) -> None:
    with client.producer(topic, partition=0, linger_ms=FOREVER_MS, batch_bytes=100) as producer:
        delivery = producer.send("x" * 100)
        assert delivery.result(timeout=60).records == 1


def test_closing_sends_what_is_left(client: LakelogClient, topic: str) -> None:
    producer = client.producer(topic, partition=0, linger_ms=FOREVER_MS)
    producer.send("a")
    producer.close()
    assert [record.value for record in client.fetch(topic)] == [b"a"]
    with pytest.raises(LakelogError, match="the producer is closed"):
        producer.send("b")


def test_a_refused_batch_is_told_once_and_the_next_ones_go_on(client: LakelogClient, topic: str) -> None:
    with client.producer(topic, linger_ms=FOREVER_MS) as producer:
        lost = producer.send("lost", partition=NOWHERE)
        with pytest.raises(LakelogError, match="partition that is not there"):
            producer.flush()
        wait([lost])
        assert isinstance(lost.exception(), LakelogError)
        producer.send("kept", partition=0)
        producer.flush()
    assert [record.value for record in client.fetch(topic)] == [b"kept"]


def test_a_refusal_that_nobody_asked_about_is_told_at_the_end(client: LakelogClient, topic: str) -> None:
    with pytest.raises(LakelogError, match="partition that is not there"), client.producer(topic) as producer:
        producer.send("lost", partition=NOWHERE)


def test_a_value_that_cannot_be_sent_is_refused_on_the_spot(client: LakelogClient, topic: str) -> None:
    with client.producer(topic, partition=0) as producer:
        producer.send("a")
        with pytest.raises(LakelogError, match="object has no JSON"):
            producer.send(object())
        producer.send("b")
    assert [record.value for record in client.fetch(topic)] == [b"a", b"b"]


def test_a_record_that_is_refused_on_the_spot_spoils_nobody_elses_batch(client: LakelogClient, topic: str) -> None:
    with client.producer(topic, partition=0, linger_ms=FOREVER_MS) as producer:
        first = producer.send("a")
        with pytest.raises(LakelogError, match="a header is a pair of a name and a value"):
            producer.send("x", headers=[(1, b"a")])  # type: ignore[list-item]
        producer.send("b")
        producer.flush()
        assert first.result().records == 2
    assert [record.value for record in client.fetch(topic)] == [b"a", b"b"]


@pytest.mark.parametrize("options", [{}, {"linger_ms": 0}, {"buffer_bytes": 1, "linger_ms": 0}])
async def test_in_an_event_loop_records_arrive_once_and_in_order(
    aio: AsyncLakelogClient, topic: str, options: dict[str, int]
) -> None:
    async with aio.producer(topic, partition=0, **options) as producer:
        deliveries = [await producer.send(str(number)) for number in range(200)]
    assert [record.value for record in await aio.fetch(topic, partition=0)] == numbers(200)
    assert (await deliveries[0]).ranges[0].start_offset == 0


async def test_in_an_event_loop_a_refusal_is_told_and_the_next_ones_go_on(aio: AsyncLakelogClient, topic: str) -> None:
    async with aio.producer(topic, linger_ms=FOREVER_MS) as producer:
        lost = await producer.send("lost", partition=NOWHERE)
        with pytest.raises(LakelogError) as caught:
            await producer.flush()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(LakelogError):
            await lost
        await producer.send("kept", partition=0)
    assert [record.value for record in await aio.fetch(topic)] == [b"kept"]
    with pytest.raises(LakelogError, match="the producer is closed"):
        await producer.send("late")


async def test_a_sender_waits_while_the_buffer_is_full() -> None:
    under_way, may_end = asyncio.Event(), asyncio.Event()

    async def append(table: pa.Table) -> Produced:
        under_way.set()
        await may_end.wait()
        return Produced(table.num_rows)

    producer = AsyncProducer(append, BatchingOptions(linger_ms=0, buffer_bytes=1))
    sent: list[int] = []

    async def send() -> None:
        for number in range(3):
            await producer.send(str(number))
            sent.append(number)

    sender = asyncio.create_task(send())
    await under_way.wait()
    assert sent == [0]
    may_end.set()
    await sender
    await producer.close()
    assert sent == [0, 1, 2]


def test_a_delivery_that_somebody_cancels_takes_nobody_elses() -> None:
    may_end = threading.Event()

    def append(table: pa.Table) -> Produced:
        may_end.wait()
        return Produced(table.num_rows)

    with Producer(append, BatchingOptions(linger_ms=FOREVER_MS), name="test") as producer:
        first, second = producer.send("a"), producer.send("b")
        assert not first.cancel()
        may_end.set()
        producer.flush()
        assert (first.result(), second.result()) == (Produced(2), Produced(2))
        third = producer.send("c")
        producer.flush()
        assert third.result() == Produced(1)


async def test_in_an_event_loop_who_no_longer_waits_takes_nobody_elses_delivery() -> None:
    may_end = asyncio.Event()

    async def append(table: pa.Table) -> Produced:
        await may_end.wait()
        if table["value"].to_pylist() == [b"refused"]:
            raise LakelogError(ErrorCode.INVALID_REQUEST, "refused")
        return Produced(table.num_rows)

    async with AsyncProducer(append, BatchingOptions(linger_ms=FOREVER_MS)) as producer:
        first, second = await producer.send("a"), await producer.send("b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first, 0)
        may_end.set()
        await producer.flush()
        assert first.cancelled()
        assert await second == Produced(2)
        third = await producer.send("refused")
        third.cancel()
        with pytest.raises(LakelogError, match="refused"):
            await producer.flush()
        fourth = await producer.send("d")
        await producer.flush()
        assert await fourth == Produced(1)


async def test_in_an_event_loop_who_no_longer_waits_for_the_end_does_not_stop_what_is_under_way() -> None:
    under_way, may_end = asyncio.Event(), asyncio.Event()

    async def append(table: pa.Table) -> Produced:
        under_way.set()
        await may_end.wait()
        return Produced(table.num_rows)

    producer = AsyncProducer(append, BatchingOptions(linger_ms=0))
    delivery = await producer.send("a")
    closing = asyncio.create_task(producer.close())
    await under_way.wait()
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    may_end.set()
    await producer.close()
    assert await delivery == Produced(1)
