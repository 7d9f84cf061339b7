"""Streams beside the jobs: whatever files a job replaces and deletes, a reader by offset goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import OpenBroker, Warehouse
from tests.contract.records import COLD
from tests.spark.job_runs import COMPACTED, put, run
from tests.spark.lakelog_frames import CollectedStream, forget_last_commit, in_order_per_partition, stream

pytestmark = pytest.mark.spark

TOPIC = "readings"
PARTITIONS = 2
FILES = 10
TURNS = 3


async def test_a_stream_restarted_while_jobs_run_gives_each_record_once_and_in_order(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse, tmp_path: Path
) -> None:
    leader, other = open_broker(COLD), open_broker(COLD)
    # Sealed at once, and a file that has left the table is deleted at once.
    config = {**COMPACTED, "segment.ms": "1", "file.delete.delay.ms": "0"}
    await leader.admin.create_topic(TOPIC, PARTITIONS, config)
    options = {"startingOffsets": "earliest", "includeHeaders": True, "maxOffsetsPerTrigger": 50}
    checkpoint = tmp_path / "checkpoint"
    collected = CollectedStream(stream(spark, warehouse, subscribe=TOPIC, **options), checkpoint)
    written: dict[tuple[int, int], bytes] = {}

    async def write() -> None:
        """Every key is a new one: compaction writes the files anew, and no record may go."""
        for _ in range(FILES):
            for partition in range(PARTITIONS):
                values = [b"%d" % (len(written) + n) for n in range(4)]
                offsets = await put(leader, TOPIC, [(value, value) for value in values], partition=partition)
                written.update({(partition, offset): value for offset, value in zip(offsets, values, strict=True)})

    async def clean() -> list[int]:
        outcomes = [
            outcome
            for job in ("compaction", "merge", "vacuum")
            for outcome in await run(job, other, warehouse, spark, TOPIC, force=True)
        ]
        assert all(each.error is None or "next run" in each.error for each in outcomes)
        return [each.before.files for each in outcomes if each.job == "compaction" and each.error is None]

    cleaned: list[int] = []
    await write()
    for _ in range(TURNS):
        _, of_turn, _ = await asyncio.gather(asyncio.to_thread(collected.run), clean(), write())
        cleaned += of_turn
        forget_last_commit(checkpoint)
    await asyncio.to_thread(collected.run)
    assert {(row.partition, row.offset): row.value for row in collected.rows} == written
    assert in_order_per_partition(collected.rows)
    assert cleaned, "there was something to clean"
