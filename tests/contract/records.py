"""Small records to append and the way to read them all back, for every test of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakelog.broker import Broker
from lakelog.clock import SystemClock
from lakelog.config import ServerSettings
from lakelog.errors import LakelogError
from lakelog.fetch import Fetched, FetchFrom
from lakelog.log.producers import TOPIC_STREAM, ProducerBatch
from lakelog.log.stamp import Appended
from lakelog.model.batch import Records, from_arrow
from lakelog.produce import Acks

# A test that waits this long for something that should come at once has failed.
PATIENCE_S = 20.0
# Nothing is kept in memory: every fetch goes to the files.
COLD = ServerSettings(hot_tail_bytes_max=0, read_cache_bytes_max=0)


class MovedClock(SystemClock):
    """The system's clock, which a test can put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.ahead_ms


def records(
    values: Sequence[bytes | str | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    partition: int | None = None,
    timestamps_ms: Sequence[int | None] | None = None,
    headers: Sequence[Any] | None = None,
) -> Records:
    """A batch as a producer brings it; with `partition` all of it is meant for that one."""
    columns: dict[str, pa.Array] = {"value": pa.array(values, type=pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, type=pa.binary())
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(values), type=pa.int32())
    if timestamps_ms is not None:
        columns["timestamp"] = pa.array(timestamps_ms, type=pa.timestamp("ms", tz="UTC"))
    if headers is not None:
        columns["headers"] = pa.array(headers, type=pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
    return from_arrow(pa.table(columns))


async def append(
    broker: Broker,
    topic: str,
    batch: Records,
    *,
    acks: Acks = Acks.ALL,
    producer: ProducerBatch | None = None,
    expected_offsets: Mapping[int, int] | None = None,
) -> Appended:
    """Append and be told where: for every acks but NONE."""
    appended = await broker.append(topic, batch, acks=acks, producer=producer, expected_offsets=expected_offsets)
    assert appended is not None
    return appended


async def append_each(broker: Broker, topic: str, values: Sequence[str], *, partition: int = 0) -> None:
    """One commit, and so one file, per value."""
    for value in values:
        await append(broker, topic, records([value], partition=partition))


async def fetch_one(broker: Broker, topic: str, partition: int = 0, offset: int = 0, **options: Any) -> Fetched:
    """The reply for one partition; its error is raised."""
    async with asyncio.timeout(PATIENCE_S):
        (reply,) = await broker.fetch([FetchFrom(topic, partition, offset)], **options)
    if reply.error is not None:
        raise reply.error
    return reply


async def read_all(broker: Broker, topic: str, partition: int = 0, offset: int | None = None) -> list[dict[str, Any]]:
    """All that a partition serves, as rows. Goes on as a consumer does, from reply to reply."""
    if offset is None:
        offset = (await broker.admin.describe_topic(topic)).partitions[partition].log_start_offset
    rows: list[dict[str, Any]] = []
    while True:
        reply = await fetch_one(broker, topic, partition, offset)
        rows += reply.rows.to_pylist()
        offset = reply.next_offset
        if offset >= reply.high_watermark:
            return rows


async def values_of(broker: Broker, topic: str, partition: int = 0) -> list[str]:
    return [row["value"].decode() for row in await read_all(broker, topic, partition)]


async def high_watermarks(broker: Broker, topic: str) -> list[int]:
    return [each.high_watermark for each in (await broker.admin.describe_topic(topic)).partitions]


async def outcomes(*appends: Any) -> tuple[list[Any], list[LakelogError]]:
    """What came of things done at the same time: results, and refusals. Anything else is raised."""
    done: list[Any] = []
    refused: list[LakelogError] = []
    for outcome in await asyncio.gather(*appends, return_exceptions=True):
        if isinstance(outcome, LakelogError):
            refused.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            done.append(outcome)
    return done, refused


def batch_of(producer_id: int, sequence: int, *, epoch: int = 0, stream: int = TOPIC_STREAM) -> ProducerBatch:
    return ProducerBatch(producer_id=producer_id, epoch=epoch, sequence=sequence, stream=stream)
