"""Every topic is a plain Delta table: four readers that know nothing of Lakelog find the same rows as its consumers,
whatever the broker has done to the files meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakelog.broker import Broker
from lakelog.log.tiers import FAN
from tests.conftest import OpenBroker, Warehouse
from tests.contract.records import COLD, records
from tests.spark.readers import (
    Row,
    data_files,
    delta_frame,
    in_order,
    log_files,
    read_with_broker,
    read_with_delta_rs,
    read_with_delta_scan,
    read_with_duckdb,
    read_with_polars,
    read_with_spark,
    write,
    write_files,
)

pytestmark = pytest.mark.spark

TOPIC = "orders"
PARTITIONS = 3

# What became of a topic: the rows in its table, and those that consumers get.
Stage: TypeAlias = Callable[[Broker], Awaitable[tuple[list[Row], list[Row]]]]


async def appended(broker: Broker) -> tuple[list[Row], list[Row]]:
    rows = await write_files(broker, TOPIC, range(PARTITIONS), files=4)
    assert operations(table_path(broker)).count("MERGE TAIL") == 0
    return rows, rows


async def merged(broker: Broker) -> tuple[list[Row], list[Row]]:
    rows = await write_files(broker, TOPIC, range(PARTITIONS), files=FAN + 2)
    assert operations(table_path(broker)).count("MERGE TAIL") == PARTITIONS
    return rows, rows


async def checkpointed_and_cleaned(broker: Broker) -> tuple[list[Row], list[Row]]:
    rows = await write_files(broker, TOPIC, range(PARTITIONS), files=FAN)
    table = (await broker.topics.get(TOPIC)).table
    await table.checkpoint()
    assert await table.clean_log(before_ms=1 << 62) > 0
    rows += await write(broker, TOPIC, 0, 100, 5)
    # Nobody can read the beginning of the log any more: the checkpoint is all there is.
    assert f"{0:020d}.json" not in [file.name for file in log_files(table_path(broker), "json")]
    return in_order(rows), in_order(rows)


async def records_deleted(broker: Broker) -> tuple[list[Row], list[Row]]:
    rows = await write_files(broker, TOPIC, range(PARTITIONS), files=4, count=3)
    # Partition 0 from a file's edge on, 1 from inside a file, all of 2. Files go as a whole.
    starts = {0: 6, 1: 7, 2: 12}
    assert await broker.admin.delete_records(TOPIC, {0: 6, 1: 7, 2: -1}) == starts
    in_files = {0: 6, 1: 6, 2: 12}
    return (
        [row for row in rows if row.offset >= in_files[row.partition]],
        [row for row in rows if row.offset >= starts[row.partition]],
    )


async def altered_and_grown(broker: Broker) -> tuple[list[Row], list[Row]]:
    rows = await write_files(broker, TOPIC, range(PARTITIONS), files=2)
    await broker.admin.alter_config(TOPIC, {"compression.type": "gzip", "retention.ms": "1000"})
    await broker.admin.add_partitions(TOPIC, PARTITIONS + 2)
    rows += await write_files(broker, TOPIC, range(PARTITIONS + 1), files=FAN)
    return in_order(rows), in_order(rows)


def table_path(broker: Broker) -> str:
    return broker.store.url.removeprefix("file://") + f"/{TOPIC}"


def operations(path: str) -> list[str]:
    return [entry["operation"] for entry in DeltaTable(path).history()]


@pytest.fixture
def path(warehouse: Warehouse) -> str:
    return f"{warehouse.url}/{TOPIC}"


@pytest.mark.parametrize("stage", [appended, merged, checkpointed_and_cleaned, records_deleted, altered_and_grown])
async def test_four_readers_find_the_rows_that_were_acknowledged(
    spark: SparkSession, open_broker: OpenBroker, path: str, stage: Stage
) -> None:
    broker = open_broker()
    await broker.admin.create_topic(TOPIC, PARTITIONS)
    in_table, served = await stage(broker)
    assert read_with_spark(spark, path) == in_table
    assert read_with_delta_rs(path) == in_table
    assert read_with_duckdb(path) == in_table
    assert read_with_polars(path) == in_table
    assert await read_with_broker(broker, TOPIC) == served
    # A broker that comes later has the table alone to go by.
    assert await read_with_broker(open_broker(COLD), TOPIC) == served

    of_one = [row for row in in_table if row.partition == 1 and row.offset >= 7]
    assert of_one
    where = 'partition = 1 AND "offset" >= 7'
    assert read_with_spark(spark, path, where.replace('"', "`")) == of_one
    assert read_with_delta_rs(path, where) == of_one
    assert read_with_duckdb(path, where) == of_one
    assert read_with_polars(path, where) == of_one


async def test_duckdbs_own_delta_extension_finds_the_same_rows(broker: Broker, path: str) -> None:
    await broker.admin.create_topic(TOPIC, PARTITIONS)
    rows, _ = await checkpointed_and_cleaned(broker)
    try:
        found = read_with_delta_scan(path)
    except (duckdb.IOException, duckdb.HTTPException) as error:
        pytest.skip(f"DuckDB's delta extension can't be downloaded here: {str(error).split(' at ')[0]}")
    assert found == rows


async def test_an_empty_topic_is_an_empty_table(spark: SparkSession, broker: Broker, path: str) -> None:
    await broker.admin.create_topic(TOPIC, PARTITIONS)
    assert read_with_spark(spark, path) == read_with_delta_rs(path) == read_with_polars(path) == []
    assert delta_frame(spark, path).columns == ["partition", "offset", "timestamp", "key", "value", "headers"]


async def test_a_deleted_topic_is_an_empty_table_until_it_is_created_again(
    spark: SparkSession, broker: Broker, path: str
) -> None:
    await broker.admin.create_topic(TOPIC, PARTITIONS)
    assert read_with_spark(spark, path) == []
    await write_files(broker, TOPIC, range(PARTITIONS), files=2)
    await broker.admin.delete_topic(TOPIC)
    assert read_with_spark(spark, path) == read_with_delta_rs(path) == []
    await broker.admin.create_topic(TOPIC, 1)
    rows = await write(broker, TOPIC, 0, 50, 4)
    assert [row.offset for row in rows] == [0, 1, 2, 3]
    assert read_with_spark(spark, path) == read_with_delta_rs(path) == read_with_polars(path) == rows


async def test_a_time_is_found_to_the_microsecond(spark: SparkSession, broker: Broker, path: str) -> None:
    """Stats keep milliseconds: a range that is too narrow would make readers skip the file that has the record."""
    await broker.admin.create_topic(TOPIC, 1)
    rows = await write_files(broker, TOPIC, [0], files=5, count=1)
    target = rows[3]
    assert target.timestamp_us % 1000 != 0
    seconds, micros = divmod(target.timestamp_us, 1_000_000)
    in_spark = f"timestamp = timestamp_micros({target.timestamp_us})"
    assert read_with_spark(spark, path, in_spark) == [target]
    in_sql = f"to_timestamp_micros({target.timestamp_us}) = timestamp"
    assert read_with_delta_rs(path, in_sql) == [target]
    in_duckdb = f"timestamp = make_timestamptz({seconds * 1_000_000 + micros})"
    assert read_with_duckdb(path, in_duckdb) == [target]


async def test_statistics_spare_spark_the_files_that_it_does_not_need(
    spark: SparkSession, broker: Broker, path: str
) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    rows = await write_files(broker, TOPIC, range(2), files=6)
    table = (await broker.topics.get(TOPIC)).table

    def read_files(where: str) -> list[str]:
        return sorted(file.split(f"{TOPIC}/", 1)[1] for file in delta_frame(spark, path).where(where).inputFiles())

    def holding(wanted: Callable[[Row], bool]) -> list[str]:
        live = table.state.live.values()
        offsets = {(row.partition, row.offset) for row in rows if wanted(row)}
        return sorted(
            segment.path
            for segment in live
            if any((segment.partition, n) in offsets for n in range(segment.base_offset, segment.end_offset))
        )

    late_us = rows[-2].timestamp_us
    for _ in range(2):
        assert len(read_files("true")) == 12
        assert read_files("partition = 1") == holding(lambda row: row.partition == 1)
        assert read_files("partition = 1 and offset = 7") == holding(lambda row: (row.partition, row.offset) == (1, 7))
        assert read_files("offset >= 14") == holding(lambda row: row.offset >= 14)
        assert read_files(f"timestamp >= timestamp_micros({late_us})") == holding(
            lambda row: row.timestamp_us >= late_us
        )
        # And from the checkpoint as from the commits.
        await table.checkpoint()
        await table.clean_log(before_ms=1 << 62)
        await broker.admin.alter_config(TOPIC, {"retention.ms": "1000"})


async def test_describe_history_reads_like_a_log_of_what_happened(
    spark: SparkSession, broker: Broker, path: str
) -> None:
    await broker.admin.create_topic(TOPIC, 1)
    await write_files(broker, TOPIC, [0], files=FAN, count=2)
    await broker.admin.alter_config(TOPIC, {"retention.ms": "1000"})
    await broker.admin.delete_records(TOPIC, {0: 4})
    history = [row.asDict(recursive=True) for row in spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()]
    history.reverse()
    assert [entry["version"] for entry in history] == list(range(len(history)))
    expected = ["CREATE TOPIC", *["APPEND"] * FAN, "MERGE TAIL", "ALTER TOPIC", "DELETE RECORDS"]
    assert [entry["operation"] for entry in history] == expected
    assert history[1]["operationMetrics"]["numOutputRows"] == "2"
    assert history[1]["isBlindAppend"] is True
    merge = history[FAN + 1]
    assert merge["operationMetrics"]["numRemovedFiles"] == str(FAN)
    assert merge["operationMetrics"]["numOutputRows"] == str(2 * FAN)
    assert history[FAN + 2]["operationParameters"]["lakelog.retention.ms"] == "1000"
    assert all(entry["engineInfo"].startswith("lakelog/") for entry in history)


async def test_describe_detail_shows_plain_delta(spark: SparkSession, broker: Broker, path: str) -> None:
    created = await broker.admin.create_topic(TOPIC, 2, {"cleanup.policy": "compact,delete"})
    await broker.admin.alter_config(TOPIC, {"retention.ms": "1000"})
    for partition in range(2):
        await broker.append(TOPIC, records(["value"], keys=[b"key"], partition=partition))
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
    assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)
    assert set(detail["tableFeatures"]) <= {"appendOnly", "invariants"}
    assert detail["partitionColumns"] == ["partition"]
    assert detail["numFiles"] == 2
    assert detail["sizeInBytes"] == sum(data_files(path).values())
    assert detail["id"] == created.topic_id
    properties: dict[str, Any] = detail["properties"]
    assert properties["lakelog.cleanup.policy"] == "compact,delete"
    assert properties["lakelog.retention.ms"] == "1000"


async def test_time_travel_shows_the_topic_as_it_was(spark: SparkSession, broker: Broker, path: str) -> None:
    await broker.admin.create_topic(TOPIC, 1)
    rows = await write_files(broker, TOPIC, [0], files=FAN, count=1)
    frame = spark.read.format("delta").option("versionAsOf", 5).load(path)
    assert [row["offset"] for row in frame.orderBy("offset").collect()] == [row.offset for row in rows[:5]]
