"""Jobs as tests run them, on the shared session, and topics with a history to run them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from compaction_jobs.context import Context
from compaction_jobs.outcome import Outcome
from compaction_jobs.runner import run_job
from lakelog.broker import Broker
from lakelog.clock import SystemClock
from tests.conftest import Warehouse
from tests.contract.records import append, read_all, records

SEAL_MS = 1000
# Small files are sealed by age alone, and the test moves the clock.
COMPACTED = {"cleanup.policy": "compact", "segment.ms": str(SEAL_MS)}


class HandClock(SystemClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.at_ms = super().now_ms()

    def now_ms(self) -> int:
        return self.at_ms


async def run(
    job: str, broker: Broker, warehouse: Warehouse, spark: SparkSession | None, *topics: str, **how: Any
) -> list[Outcome]:
    # The leader may be merging what was just appended, and a job leaves a partition alone that changes under it.
    await broker.upkeep.settle()
    context = Context(broker, warehouse.url, warehouse.options, session=spark, **how)
    return await run_job(context, job, topics)


async def put(
    broker: Broker, topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]], *, partition: int = 0
) -> list[int]:
    """One commit, and so one file. Returns the offsets."""
    batch = records([value for _, value in pairs], keys=[key for key, _ in pairs], partition=partition)
    return (await append(broker, topic, batch)).offsets.tolist()


async def served(broker: Broker, topic: str, partition: int = 0) -> list[tuple[int, bytes, bytes | None]]:
    return [(row["offset"], row["key"], row["value"]) for row in await read_all(broker, topic, partition)]
