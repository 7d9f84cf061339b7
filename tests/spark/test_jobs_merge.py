"""Merging on Spark: small and half-empty files become segments, with the same records in the same order."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.conftest import OpenBroker, Warehouse
from tests.contract.records import COLD
from tests.spark.job_runs import COMPACTED, SEAL_MS, HandClock, put, run, served
from tests.spark.readers import in_order, read_with_broker, read_with_spark, write

pytestmark = pytest.mark.spark

TOPIC = "measurements"


async def test_small_files_become_one_and_every_reader_sees_the_same_records(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 2, {"segment.ms": str(SEAL_MS)})
    rows = [row for n in range(5) for partition in range(2) for row in await write(broker, TOPIC, partition, 4 * n, 4)]
    clock.at_ms = rows[-1].timestamp_us // 1000 + SEAL_MS
    outcomes = await run("merge", broker, warehouse, spark)
    assert [(each.before.files, each.after.files, each.before.records, each.after.records) for each in outcomes] == [
        (5, 1, 20, 20)
    ] * 2
    assert await read_with_broker(open_broker(COLD), TOPIC) == in_order(rows)
    assert read_with_spark(spark, f"{warehouse.url}/{TOPIC}") == in_order(rows)
    assert await run("merge", broker, warehouse, spark) == []


async def test_clean_and_dirty_files_stay_apart_and_tombstones_keep_their_time(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    kept_ms = 10 * SEAL_MS
    await broker.admin.create_topic(TOPIC, 1, {**COMPACTED, "delete.retention.ms": str(kept_ms)})
    # Two cleanings, each with a tombstone, leave two small files.
    for name in (b"a", b"b"):
        await put(broker, TOPIC, [(name, b"1"), (name, None), (name + b"-kept", b"2")])
        clock.at_ms += SEAL_MS
        await run("compaction", broker, warehouse, spark, force=True)
    for _ in range(2):
        await put(broker, TOPIC, [(b"dirty", b"3")])
    clock.at_ms += SEAL_MS
    before = await served(broker, TOPIC)
    (done,) = await run("merge", broker, warehouse, spark)
    assert (done.before.files, done.after.files) == (4, 2)
    assert await served(broker, TOPIC) == before
    # Only the first tombstone has had its time.
    clock.at_ms += kept_ms - 2 * SEAL_MS
    await run("compaction", broker, warehouse, spark, force=True)
    assert [key for _, key, value in await served(broker, TOPIC) if value is None] == [b"b"]
    clock.at_ms += SEAL_MS
    await run("compaction", broker, warehouse, spark)
    assert [key for _, key, _ in await served(broker, TOPIC)] == [b"a-kept", b"b-kept", b"dirty"]
