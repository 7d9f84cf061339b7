"""`format("lakelog")` as a source: what was produced, by the options of Kafka's source, in streams that go on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelog.broker import Broker
from lakelog.log.tiers import FAN
from lakelog.spark.options import parse_source
from lakelog.spark.positions import OffsetsJson
from lakelog.spark.source import StreamReader, full_schema
from tests.conftest import Warehouse
from tests.contract.records import append, append_each, records
from tests.spark.lakelog_frames import (
    CollectedStream,
    batch,
    forget_last_commit,
    in_order_per_partition,
    offsets,
    rows,
    stream,
    vacuum,
)
from tests.spark.readers import EPOCH_US, in_order, write, write_files

pytestmark = pytest.mark.spark

TOPIC = "orders"


# -- batch -----------------------------------------------------------------------------------------------------


async def test_a_batch_is_what_was_produced(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    await broker.admin.create_topic(TOPIC, 3)
    written = await write_files(broker, TOPIC, [0, 1, 2], files=FAN + 2)
    frame = batch(spark, warehouse, subscribe=TOPIC, includeHeaders=True)
    assert rows(frame) == written
    assert {(row.topic, row.timestampType) for row in frame.select("topic", "timestampType").distinct().collect()} == {
        (TOPIC, 0)
    }
    assert offsets(frame) == [(row.partition, row.offset) for row in written]


async def test_columns_are_those_of_kafkas_source(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    await broker.admin.create_topic(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    await write(broker, TOPIC, 0, 0, 3)
    frame = batch(spark, warehouse, subscribe=TOPIC)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert [row.timestampType for row in frame.collect()] == [1, 1, 1]
    with_headers = batch(spark, warehouse, subscribe=TOPIC, includeHeaders="true")
    assert with_headers.dtypes[-1] == ("headers", "array<struct<key:string,value:binary>>")


async def test_a_schema_picks_columns(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    await append_each(broker, TOPIC, ["a", "b"])
    reader = spark.read.format("lakelog").option("subscribe", TOPIC)
    frame = reader.schema("offset BIGINT, value BINARY").load(warehouse.url)
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [(0, b"a"), (1, b"b")]
    assert reader.schema("topic STRING").load(warehouse.url).count() == 2
    with pytest.raises(PySparkException, match="there is no column 'body'"):
        reader.schema("body BINARY").load(warehouse.url).count()
    with pytest.raises(PySparkException, match="column value is binary, not string"):
        reader.schema("value STRING").load(warehouse.url).count()


async def test_edges_by_offset(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    await write_files(broker, TOPIC, [0, 1], files=4)
    frame = batch(
        spark,
        warehouse,
        subscribe=TOPIC,
        startingOffsets=json.dumps({TOPIC: {"0": 2, "1": -2}}),
        endingOffsets=json.dumps({TOPIC: {"0": 5, "1": -1}}),
    )
    assert offsets(frame) == [(0, n) for n in range(2, 5)] + [(1, n) for n in range(12)]
    assigned = batch(spark, warehouse, assign=json.dumps({TOPIC: [1]}), startingOffsets=json.dumps({TOPIC: {"1": 9}}))
    assert offsets(assigned) == [(1, 9), (1, 10), (1, 11)]


async def test_edges_by_time(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    await write(broker, TOPIC, 0, 0, 10)  # a record each second and a microsecond from EPOCH_US on
    await write(broker, TOPIC, 1, 5, 10)
    third, eighth = EPOCH_US // 1000 + 3000, EPOCH_US // 1000 + 8000
    frame = batch(spark, warehouse, subscribe=TOPIC, startingTimestamp=third, endingTimestamp=eighth)
    assert offsets(frame) == [(0, n) for n in range(3, 8)] + [(1, n) for n in range(3)]
    times = {TOPIC: {"0": eighth, "1": third}}
    by_partition = batch(spark, warehouse, subscribe=TOPIC, startingOffsetsByTimestamp=json.dumps(times))
    assert offsets(by_partition) == [(0, 8), (0, 9)] + [(1, n) for n in range(10)]
    up_to = batch(spark, warehouse, subscribe=TOPIC, endingOffsetsByTimestamp=json.dumps(times))
    assert offsets(up_to) == [(0, n) for n in range(8)]  # the first of the other one is later
    late = EPOCH_US // 1000 + 12_000
    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy"):
        batch(spark, warehouse, subscribe=TOPIC, startingTimestamp=late).count()
    from_the_end = batch(
        spark, warehouse, subscribe=TOPIC, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest"
    )
    assert offsets(from_the_end) == [(1, 7), (1, 8), (1, 9)]


async def test_topics_by_pattern(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    for name in ("a.one", "a.two", "b.one"):
        await append_each(broker, name, [name])
    frame = batch(spark, warehouse, subscribePattern=r"a\..*")
    assert sorted(row.topic for row in frame.collect()) == ["a.one", "a.two"]
    assert batch(spark, warehouse, subscribePattern="none").count() == 0


async def test_min_partitions_cuts_and_changes_nothing(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    written = await write_files(broker, TOPIC, [0, 1], files=10)
    whole = batch(spark, warehouse, subscribe=TOPIC, includeHeaders=True)
    cut = batch(spark, warehouse, subscribe=TOPIC, includeHeaders=True, minPartitions=7)
    assert (whole.rdd.getNumPartitions(), cut.rdd.getNumPartitions()) == (2, 7)
    assert rows(cut) == written


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": TOPIC, "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": TOPIC, "kafka.bootstrap.servers": "x"}, "connection to Kafka"),
        ({"subscribe": "nowhere"}, "there is no nowhere in the warehouse"),
        ({"subscribe": TOPIC, "startingOffsets": '{"orders": {"0": 1, "5": 1}}'}, "names orders-5"),
    ],
)
async def test_mistakes_are_told(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, options: dict[str, str], told: str
) -> None:
    await append_each(broker, TOPIC, ["a"])
    with pytest.raises(PySparkException, match=told):
        batch(spark, warehouse, **options).count()


def test_a_warehouse_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="there is no warehouse at"):
        batch(spark, Warehouse(str(tmp_path / "typo"), {}), subscribe=TOPIC).count()
    assert not (tmp_path / "typo").exists()


async def test_records_that_are_gone_are_an_error_unless_it_is_allowed(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    await append_each(broker, TOPIC, ["a", "b", "c"])
    await broker.admin.delete_records(TOPIC, {0: 2})
    start = {"subscribe": TOPIC, "startingOffsets": '{"orders": {"0": 0}}'}
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        batch(spark, warehouse, **start).count()
    assert offsets(batch(spark, warehouse, **start, failOnDataLoss=False)) == [(0, 2)]
    assert offsets(batch(spark, warehouse, subscribe=TOPIC)) == [(0, 2)]


async def test_a_planned_batch_survives_merges_and_vacuum(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    await append_each(broker, TOPIC, [f"{n}" for n in range(FAN - 1)])
    frame = batch(spark, warehouse, subscribe=TOPIC)
    planned = offsets(frame)  # the plan stays with the DataFrame
    await append_each(broker, TOPIC, ["the last one"])
    await broker.upkeep.settle()
    await vacuum(broker, TOPIC)
    assert offsets(frame) == planned == [(0, n) for n in range(FAN - 1)]


# -- filters ---------------------------------------------------------------------------------------------------


async def three_files(broker: Broker, warehouse: Warehouse) -> list[Path]:
    """Partition 0 in two files, ten records and ten seconds each, and partition 1 in one."""
    await broker.admin.create_topic(TOPIC, 2)
    for partition, first in ((0, 0), (0, 10), (1, 0)):
        await write(broker, TOPIC, partition, first, 10)
    return [Path(warehouse.url, TOPIC, path) for path in (await broker.topics.get(TOPIC)).state.live]


@pytest.mark.parametrize(
    ("where", "read", "count"),
    [
        ("partition = 1", [2], 10),
        ("partition IN (1, 7)", [2], 10),
        ("partition = 0 AND offset >= 12", [1], 8),
        ("offset BETWEEN 2 AND 4 AND partition < 1", [0], 3),
        (f"partition = 0 AND timestamp >= timestamp_micros({EPOCH_US + 15_000_000})", [1], 5),
        ("topic = 'another'", [], 0),
    ],
)
async def test_pushed_filters_leave_files_unread(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, where: str, read: list[int], count: int
) -> None:
    files = await three_files(broker, warehouse)
    for number, file in enumerate(files):
        if number not in read:
            file.unlink()  # whoever opens it fails
    assert batch(spark, warehouse, subscribe=TOPIC, filterPushdown=True).where(where).count() == count
    with pytest.raises(PySparkException, match="a segment that the table names is not there"):
        batch(spark, warehouse, subscribe=TOPIC).where(where).count()


async def test_one_dataframe_under_several_filters(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    """Spark keeps one plan per load(): without pushdown a filter of one query must not show in another."""
    await three_files(broker, warehouse)
    frame = batch(spark, warehouse, subscribe=TOPIC)
    assert frame.where("partition = 1").count() == 10
    assert frame.count() == 30
    assert frame.where("offset < 2").union(frame.where("offset >= 18")).count() == 6


# -- streams ---------------------------------------------------------------------------------------------------


async def test_a_stream_restarted_while_the_table_is_rewritten_gives_each_record_once_and_in_order(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    frame = stream(
        spark,
        warehouse,
        subscribe=TOPIC,
        startingOffsets="earliest",
        includeHeaders=True,
        maxOffsetsPerTrigger=40,
        minPartitions=3,
    )
    collected = CollectedStream(frame, tmp_path / "checkpoint")
    written = await write_files(broker, TOPIC, [0, 1], files=FAN // 2)
    for turn in range(4):
        assert in_order(collected.run()) == in_order(written)
        if turn % 2:  # what was read may go
            await broker.admin.delete_records(TOPIC, {0: -1})
        written += await write_files(broker, TOPIC, [0, 1], files=FAN // 2 + turn)
        await vacuum(broker, TOPIC)
    assert in_order(collected.run()) == in_order(written)
    assert in_order_per_partition(collected.rows)
    assert max(len(each) for each in collected.batches.values()) <= 40


async def test_a_running_stream_sees_new_records_partitions_and_topics(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await broker.admin.create_topic("a.one")
    written = await write(broker, "a.one", 0, 0, 3)
    frame = stream(spark, warehouse, subscribePattern="a.*", startingOffsets="earliest", includeHeaders=True)
    collected = CollectedStream(frame, tmp_path / "checkpoint")
    query = collected.start()
    try:
        query.processAllAvailable()
        assert in_order(collected.rows) == in_order(written)
        await broker.admin.add_partitions("a.one", 2)
        await broker.admin.create_topic("a.two", 3)
        written += await write(broker, "a.one", 1, 0, 2)
        written += await write(broker, "a.two", 2, 0, 2)
        written += await write(broker, "a.one", 0, 3, 4)
        query.processAllAvailable()
        assert in_order(collected.rows) == in_order(written)
        progress = json.loads(query.lastProgress["sources"][0]["endOffset"])  # type: ignore[index]
        assert progress == {"a.one": {"0": 7, "1": 2}, "a.two": {"0": 0, "1": 0, "2": 2}}
    finally:
        query.stop()


async def test_a_stream_from_the_latest_offset_misses_nothing_that_comes_after(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await broker.admin.create_topic(TOPIC)
    await write(broker, TOPIC, 0, 0, 3)
    frame = stream(spark, warehouse, subscribe=TOPIC, includeHeaders=True)
    collected = CollectedStream(frame, tmp_path / "checkpoint")
    assert collected.run() == []
    # As if it had died in its first batch: this one is run again, from where the stream began.
    forget_last_commit(tmp_path / "checkpoint")
    written = await write(broker, TOPIC, 0, 3, 4)
    assert collected.run() == written


async def test_a_stream_from_a_time_on(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    written = await write(broker, TOPIC, 0, 0, 10)  # a record each second and a microsecond from EPOCH_US on
    written += await write(broker, TOPIC, 1, 5, 10)
    seventh_us = EPOCH_US + 7_000_000
    options = {"subscribe": TOPIC, "startingTimestamp": seventh_us // 1000, "includeHeaders": True}
    collected = CollectedStream(stream(spark, warehouse, **options), tmp_path / "checkpoint")
    expected = [row for row in written if row.timestamp_us >= seventh_us]
    assert 0 < len(expected) < len(written)
    assert in_order(collected.run()) == in_order(expected)
    # A record with an earlier time that comes later is one of the stream's all the same.
    expected += await write(broker, TOPIC, 0, 0, 2)
    assert in_order(collected.run()) == in_order(expected)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
async def test_what_comes_while_a_stream_from_the_latest_offset_begins_is_no_data_loss(
    broker: Broker, warehouse: Warehouse, fail_on_data_loss: bool
) -> None:
    """Spark asks for what is available first, and for where the stream begins afterwards."""
    await broker.admin.create_topic("orders-1", 2)
    await write(broker, "orders-1", 0, 0, 3)
    given = {"warehouse": warehouse.url, "subscribePattern": "orders-.*", "failOnDataLoss": str(fail_on_data_loss)}
    reader = StreamReader(parse_source(given), full_schema(include_headers=False))
    await asyncio.to_thread(reader.prepareForTriggerAvailableNow)
    await write(broker, "orders-1", 0, 3, 4)
    await write(broker, "orders-2", 0, 0, 2)

    def go_on() -> tuple[OffsetsJson, OffsetsJson, OffsetsJson]:
        start = reader.initialOffset()
        first = reader.latestOffset(start, reader.getDefaultReadLimit())
        return start, first, reader.latestOffset(first, reader.getDefaultReadLimit())

    start, first, second = await asyncio.to_thread(go_on)
    await asyncio.to_thread(reader.stop)
    assert start == {"orders-1": {"0": 7, "1": 0}, "orders-2": {"0": 2}}
    assert (first, second) == (start, start)


async def test_admission_shares_a_trigger_and_progress_shows_offsets(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    await append(broker, TOPIC, records([f"{n}" for n in range(30)], partition=0))
    await append(broker, TOPIC, records([f"{n}" for n in range(10)], partition=1))
    frame = stream(spark, warehouse, subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ends = [json.loads(each["sources"][0]["endOffset"]) for each in query.recentProgress]
    assert ends[:2] == [{TOPIC: {"0": 15, "1": 5}}, {TOPIC: {"0": 30, "1": 10}}]
    assert json.loads(query.recentProgress[0]["sources"][0]["latestOffset"]) == {TOPIC: {"0": 30, "1": 10}}


async def test_a_stream_that_lost_records_stops_unless_it_may_go_on(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await broker.admin.create_topic(TOPIC)
    options = {"subscribe": TOPIC, "startingOffsets": "earliest", "includeHeaders": True}
    written = await write(broker, TOPIC, 0, 0, 3)
    collected = CollectedStream(stream(spark, warehouse, **options), tmp_path / "checkpoint")
    assert collected.run() == written
    await write(broker, TOPIC, 0, 3, 3)
    await broker.admin.delete_records(TOPIC, {0: 5})
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        collected.run()
    tolerant = CollectedStream(stream(spark, warehouse, **options, failOnDataLoss=False), tmp_path / "checkpoint")
    assert [row.offset for row in tolerant.run()] == [5]
