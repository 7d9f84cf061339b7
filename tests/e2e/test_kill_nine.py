"""Tries to break "acknowledged is durable" and "offsets are dense" with real processes and real deaths.

Two processes append to the same partitions of one warehouse while a third is killed without warning, over and over.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakelog.broker import Broker
from lakelog.fetch import FetchFrom
from tests.e2e.processes import Writer, start_writer
from tests.e2e.writer_process import IN_FLIGHT, PARTITIONS, RECORDS

pytestmark = pytest.mark.e2e

TOPIC = "payments"
DEATHS = 8


@pytest.fixture
def writers() -> Iterator[ExitStack]:
    """Ends with no process left, whatever became of the test."""
    with ExitStack() as stack:
        yield stack


def _begin(stack: ExitStack, warehouse: Path, name: str) -> Writer:
    writer = start_writer(warehouse, TOPIC, name, "--on-its-own")
    stack.callback(writer.kill)
    return writer


async def _create(warehouse: Path) -> None:
    async with Broker.open(str(warehouse)) as broker:
        await broker.admin.create_topic(TOPIC, PARTITIONS)


async def _rows(warehouse: Path, partition: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    async with Broker.open(str(warehouse)) as broker:
        position, end = 0, 1
        while position < end:
            (reply,) = await broker.fetch([FetchFrom(TOPIC, partition, position)])
            assert reply.error is None, reply.error
            values = (value.decode() for value in reply.rows.column("value").to_pylist())
            found += zip(reply.rows.column("offset").to_pylist(), values, strict=True)
            position, end = reply.next_offset, reply.high_watermark
    return found


def test_the_rows_are_what_was_acknowledged_and_at_most_what_was_in_flight(tmp_path: Path, writers: ExitStack) -> None:
    warehouse = tmp_path / "warehouse"
    asyncio.run(_create(warehouse))
    steady = [_begin(writers, warehouse, name) for name in ("steady-a", "steady-b")]
    chance = random.Random(9)
    killed: list[Writer] = []
    for life in range(DEATHS):
        victim = _begin(writers, warehouse, f"victim-{life}")
        victim.await_acknowledgements(chance.randint(1, 40))
        victim.kill()
        killed.append(victim)
    for writer in steady:
        writer.stop()

    rows = {partition: asyncio.run(_rows(warehouse, partition)) for partition in range(PARTITIONS)}
    for found in rows.values():
        assert [offset for offset, _ in found] == list(range(len(found))), "dense, unique, in order"
    places = {value: (partition, offset) for partition, found in rows.items() for offset, value in found}
    assert len(places) == sum(map(len, rows.values())), "no record is there twice"

    unacknowledged = Counter(value.split("/")[0] for value in places)
    for writer in (*steady, *killed):
        for entry in writer.acknowledged():
            expected = [(entry["partition"], offset) for offset in entry["offsets"]]
            assert [places.get(value) for value in entry["values"]] == expected, "lost, or somewhere else"
            unacknowledged[entry["values"][0].split("/")[0]] -= len(entry["values"])
    for name, count in unacknowledged.items():
        in_flight = IN_FLIGHT * RECORDS if name.startswith("victim") else 0
        assert 0 <= count <= in_flight, f"{name} has {count} records that nobody acknowledged"
        assert count % RECORDS == 0, "a request is there as a whole or not at all"
    assert all(len(writer.acknowledged()) > 0 for writer in (*steady, *killed))
