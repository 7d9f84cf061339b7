"""Key compaction on Spark: survivors are those of a simple model, whatever else goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakelog.broker import Broker
from lakelog.delta.store import open_store
from tests.compaction_model import TOMBSTONES_KEPT_MS, CompactionModel, Record, pairs
from tests.conftest import OpenBroker, Warehouse
from tests.contract.records import COLD, append, batch_of, records
from tests.spark.job_runs import COMPACTED, SEAL_MS, HandClock, put, run, served
from tests.spark.readers import data_files, delta_frame

pytestmark = pytest.mark.spark

TOPIC = "customers"
PARTITIONS = 12  # each with a history of its own: a run of Spark takes about as long for many as for one

rounds = st.lists(
    st.tuples(
        st.lists(st.lists(pairs, max_size=3), min_size=PARTITIONS, max_size=PARTITIONS),
        st.sampled_from([0, SEAL_MS - 1, SEAL_MS, TOMBSTONES_KEPT_MS]),
    ),
    min_size=2,
    max_size=3,
)


# What fails is told as it is: to shrink it would take Spark many minutes.
@given(rounds, st.sampled_from([0, 2 * SEAL_MS]))
@settings(
    max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
def test_survivors_are_those_of_the_model(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, history, lag_ms: int
) -> None:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("model")), {})

    async def check() -> None:
        clock = HandClock()
        models = [CompactionModel(max(SEAL_MS, lag_ms), TOMBSTONES_KEPT_MS) for _ in range(PARTITIONS)]
        config = {"delete.retention.ms": str(TOMBSTONES_KEPT_MS), "min.compaction.lag.ms": str(lag_ms), **COMPACTED}
        async with Broker(open_store(warehouse.url), COLD, clock=clock) as broker:
            await broker.admin.create_topic(TOPIC, PARTITIONS, config)
            for appends, pause_ms in history:
                for partition, files in enumerate(appends):
                    for some in files:
                        await put(broker, TOPIC, some, partition=partition)
                        models[partition].append(some, clock.at_ms)
                clock.at_ms += pause_ms
                outcomes = await run("compaction", broker, warehouse, spark, force=True)
                assert all(outcome.error is None for outcome in outcomes)
                for partition, model in enumerate(models):
                    model.compact(clock.at_ms)
                    assert await served(broker, TOPIC, partition) == model.records
        # Another process finds the same, and so does anybody who reads Delta.
        async with Broker(open_store(warehouse.url), COLD) as other:
            for partition, model in enumerate(models):
                assert await served(other, TOPIC, partition) == model.records
        frame = delta_frame(spark, f"{warehouse.url}/{TOPIC}")
        found = frame.select("partition", "offset", "key", "value").toArrow().to_pylist()
        rows = sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in found)
        assert rows == [(number, *record) for number, model in enumerate(models) for record in model.records]

    asyncio.run(check())


async def test_two_steps_leave_what_one_step_leaves(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    for topic in ("once", "twice"):
        await broker.admin.create_topic(topic, 1, COMPACTED)
    halves = [[(b"%d" % (i % 7), None if i % 5 == 0 else b"%d" % i) for i in range(n, n + 40)] for n in (0, 33)]
    for half in halves:
        for topic in ("once", "twice"):
            await put(broker, topic, half)
        clock.at_ms += SEAL_MS
        await run("compaction", broker, warehouse, spark, "twice", force=True)
    await run("compaction", broker, warehouse, spark, "once", force=True)
    assert await served(broker, "twice") == await served(broker, "once")
    assert {key for _, key, _ in await served(broker, "once")} == {b"%d" % i for i in range(7)}


async def test_a_partition_that_is_not_due_is_left_alone_and_a_second_run_has_nothing_to_do(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 2, COMPACTED)
    await put(broker, TOPIC, [(b"a", b"1"), (b"a", b"2")], partition=1)
    assert await run("compaction", broker, warehouse, spark) == [], "all of it is active"
    clock.at_ms += SEAL_MS
    planned = await run("compaction", broker, warehouse, spark, dry_run=True)
    assert [(each.partition, each.before.records) for each in planned] == [(1, 2)]
    assert len(await served(broker, TOPIC, 1)) == 2
    (done,) = await run("compaction", broker, warehouse, spark)
    assert (done.partition, done.before.records, done.after.records, done.cleaned_up_to) == (1, 2, 1, 2)
    assert await run("compaction", broker, warehouse, spark) == []
    assert await served(broker, TOPIC, 1) == [(1, b"a", b"2")]


async def test_when_nothing_survives_the_offsets_go_on(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, {**COMPACTED, "delete.retention.ms": "0"})
    await put(broker, TOPIC, [(b"a", b"1"), (b"a", None)])
    clock.at_ms += SEAL_MS
    await run("compaction", broker, warehouse, spark)
    assert await served(broker, TOPIC) == [(1, b"a", None)], "a tombstone outlives the cleaning that meets it"
    (done,) = await run("compaction", broker, warehouse, spark)
    assert (done.reason, done.after.files) == ("1 tombstones past delete.retention.ms", 0)
    assert await served(broker, TOPIC) == []
    assert await put(open_broker(COLD), TOPIC, [(b"a", b"3")]) == [2]


async def test_records_without_a_key_and_below_the_log_start_do_not_survive(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, {"segment.ms": str(SEAL_MS)})
    await put(broker, TOPIC, [(b"gone", b"1"), (b"a", b"2"), (None, b"3"), (b"b", b"4")])
    await broker.admin.delete_records(TOPIC, {0: 1})
    await broker.admin.alter_config(TOPIC, {"cleanup.policy": "compact"})
    clock.at_ms += SEAL_MS
    (done,) = await run("compaction", broker, warehouse, spark)
    assert done.after.records == 2
    assert await served(broker, TOPIC) == [(1, b"a", b"2"), (3, b"b", b"4")]


async def test_a_topic_that_is_compacted_and_expires_keeps_the_latest_of_what_is_young(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    retention_ms = 60 * SEAL_MS
    config = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}
    await broker.admin.create_topic(TOPIC, 1, config)
    await put(broker, TOPIC, [(b"a", b"1"), (b"a", b"2"), (b"b", b"1")])
    clock.at_ms += SEAL_MS
    assert await run("retention", broker, warehouse, None) == []
    await run("compaction", broker, warehouse, spark)
    assert await served(broker, TOPIC) == [(1, b"a", b"2"), (2, b"b", b"1")]
    clock.at_ms += retention_ms
    await put(broker, TOPIC, [(b"a", b"3"), (b"a", b"4")])
    clock.at_ms += SEAL_MS
    (expired,) = await run("retention", broker, warehouse, None)
    assert (expired.log_start, expired.before.records) == (3, 2)
    (compacted,) = await run("compaction", broker, warehouse, spark)
    assert (compacted.before.records, compacted.after.records, compacted.cleaned_up_to) == (2, 1, 5)
    assert await served(open_broker(COLD), TOPIC) == [(4, b"a", b"4")]
    assert (await broker.admin.describe_topic(TOPIC)).partitions[0].log_start_offset == 3


async def test_an_idempotent_producer_is_remembered_though_its_records_are_compacted_away(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, COMPACTED)
    first = records([b"1"], keys=[b"a"], partition=0)
    appended = await append(broker, TOPIC, first, producer=batch_of(7, 0))
    await put(broker, TOPIC, [(b"a", b"2")])
    clock.at_ms += SEAL_MS
    await run("compaction", broker, warehouse, spark)
    assert await served(broker, TOPIC) == [(1, b"a", b"2")]
    again = await append(open_broker(COLD, clock=clock), TOPIC, first, producer=batch_of(7, 0))
    assert again.offsets.tolist() == appended.offsets.tolist() == [0]


async def test_a_partition_that_fails_does_not_stop_the_others(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 3, COMPACTED)
    for partition in range(3):
        await put(broker, TOPIC, [(b"a", b"1"), (b"a", b"2")], partition=partition)
    clock.at_ms += SEAL_MS
    damage(Path(warehouse.url, TOPIC, "partition=1"))
    outcomes = {each.partition: each for each in await run("compaction", broker, warehouse, spark)}
    assert [number for number, each in outcomes.items() if each.error is not None] == [1]
    for partition in (0, 2):
        assert await served(broker, TOPIC, partition) == [(1, b"a", b"2")]


def damage(folder: Path) -> None:
    """The footer of its one file is lost, as it is when a disk fails."""
    (file,) = folder.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-40] + bytes(40))


async def test_two_runs_at_once_and_a_leader_that_merges_do_no_harm(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    """The leader appends and merges its tail while two runs compact the same partition."""
    leader = open_broker(COLD)
    await leader.admin.create_topic(TOPIC, 1, {**COMPACTED, "segment.ms": "1"})
    model: dict[bytes, Record] = {}

    async def write(count: int) -> None:
        for number in range(count):
            key, value = b"%d" % (number % 5), b"%d" % number
            (offset,) = await put(leader, TOPIC, [(key, value)])
            model[key] = (offset, key, value)

    await write(20)
    runs = [run("compaction", open_broker(COLD), warehouse, spark, force=True) for _ in range(2)]
    writing = asyncio.create_task(write(200))
    for outcomes in await asyncio.gather(*runs):
        # The leader may have been faster every time; that is told, and mended by the next run.
        assert all(each.error is None or "next run" in each.error for each in outcomes)
    await writing
    await leader.upkeep.settle()
    rows = await served(leader, TOPIC)
    assert [offset for offset, _, _ in rows] == sorted({offset for offset, _, _ in rows})
    assert {key: (offset, key, value) for offset, key, value in rows} == model
    await run("compaction", open_broker(COLD), warehouse, spark, force=True)
    assert await served(open_broker(COLD), TOPIC) == sorted(model.values())


async def test_the_history_and_the_journal_tell_what_happened(
    spark: SparkSession, open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    clock = HandClock()
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, COMPACTED)
    await put(broker, TOPIC, [(b"a", b"1"), (b"a", b"2"), (b"b", b"3")])
    clock.at_ms += SEAL_MS
    await run("compaction", broker, warehouse, spark)
    path = f"{warehouse.url}/{TOPIC}"
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").first()
    assert newest is not None
    assert newest["operation"] == "COMPACT"
    assert newest["operationMetrics"]["numOutputRows"] == "2"
    (row,) = delta_frame(spark, f"{warehouse.url}/__maintenance").collect()
    assert (row["job"], row["topic"], row["partition"], row["error"]) == ("compaction", TOPIC, 0, None)
    assert (row["records_before"], row["records_after"], row["cleaned_up_to"]) == (3, 2, 3)
    assert (row["files_before"], row["files_after"]) == (1, 1)
    assert len(data_files(path)) == 2, "the old file stays for those who read it"
