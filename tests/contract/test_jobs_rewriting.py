"""What a task of a job does: new files out of old ones, and no faster than it may."""

from __future__ import annotations

import random

import pytest

from compaction_jobs.context import Context
from compaction_jobs.rewriting import Access, Files, Rewrite, Source, rewrite
from lakelog.broker import Broker
from tests.conftest import Warehouse
from tests.contract.records import MovedClock, append, records

TOPIC = "events"
LIMIT = 1000.0
VALUES = [random.Random(6 + number).randbytes(20_000) for number in range(3)]  # which no codec makes small


class HandClock(MovedClock):
    """Stands still until somebody sleeps by it."""

    def monotonic_ms(self) -> float:
        return self.ahead_ms

    async def sleep(self, seconds: float) -> None:
        self.ahead_ms += round(seconds * 1000)


@pytest.mark.parametrize("limit", [0.0, LIMIT])
async def test_a_rewrite_takes_the_time_that_its_bytes_are_given(
    broker: Broker, warehouse: Warehouse, limit: float
) -> None:
    for value in VALUES:
        await append(broker, TOPIC, records([value]))
    topic = await broker.topics.get(TOPIC)
    segments = topic.state.partitions[0].segments
    sources = tuple(Source(topic.table.path(each.path), each.bytes) for each in segments)
    clock = HandClock()
    files = Files(Access(warehouse.url, warehouse.options, limit), clock, clock.sleep)
    written = await rewrite(files, Rewrite(TOPIC, 0, sources, first_file=0, codec="none", unique="run"), None)
    assert written.records == len(VALUES)
    moved_bytes = clock.ahead_ms * LIMIT / 1000
    once = sum(map(len, VALUES))
    if limit:
        assert 2 * once < moved_bytes < 2.2 * once, "read once and written once, and a little beside the values"
    else:
        assert moved_bytes == 0


def test_the_tasks_of_a_job_share_its_limit(broker: Broker, warehouse: Warehouse) -> None:
    context = Context(broker, warehouse.url, warehouse.options, io_bytes_per_second=LIMIT)
    assert context.access(tasks_at_once=4).bytes_per_second == LIMIT / 4
