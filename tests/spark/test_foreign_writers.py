"""Spark writes to a topic's table past the broker: what it can't vouch for is refused by name, never served out of
order, and what it may do changes nothing that was promised.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.tiers import FAN
from tests.conftest import OpenBroker, Warehouse
from tests.contract.records import COLD, append, batch_of, fetch_one, read_all, records
from tests.spark.readers import (
    Row,
    data_files,
    in_order,
    log_files,
    read_with_broker,
    read_with_spark,
    write,
    write_files,
)

pytestmark = pytest.mark.spark

TOPIC = "orders"
ForeignWrite: TypeAlias = Callable[[SparkSession, str], object]


@pytest.fixture
def path(warehouse: Warehouse) -> str:
    return f"{warehouse.url}/{TOPIC}"


@pytest.fixture
def vacuum(spark: SparkSession, path: str) -> Callable[[str], None]:
    def run(retention: str) -> None:
        check = "spark.databricks.delta.retentionDurationCheck.enabled"
        spark.conf.set(check, "false")
        try:
            spark.sql(f"VACUUM delta.`{path}` RETAIN {retention}")
        finally:
            spark.conf.unset(check)

    return run


async def topic_with_files(broker: Broker) -> list[Row]:
    await broker.admin.create_topic(TOPIC, 2)
    return await write_files(broker, TOPIC, [0, 1], files=5)


def spark_appends(spark: SparkSession, path: str) -> None:
    spark.sql(
        "SELECT 0 AS partition, 15L AS offset, current_timestamp() AS timestamp, X'00' AS key, X'01' AS value, "
        "CAST(NULL AS ARRAY<STRUCT<key STRING, value BINARY>>) AS headers"
    ).write.format("delta").mode("append").save(path)


def spark_optimizes(spark: SparkSession, path: str) -> None:
    spark.sql(f"OPTIMIZE delta.`{path}`").collect()


def spark_deletes_a_record(spark: SparkSession, path: str) -> None:
    spark.sql(f"DELETE FROM delta.`{path}` WHERE partition = 0 AND offset = 4")


@pytest.mark.parametrize("foreign_write", [spark_appends, spark_optimizes, spark_deletes_a_record])
async def test_files_of_another_writer_are_refused_by_name(
    spark: SparkSession, open_broker: OpenBroker, path: str, foreign_write: ForeignWrite
) -> None:
    """Spark keeps no order inside of the files that it writes, and drops what they say of idempotent producers."""
    broker = open_broker(COLD)
    await topic_with_files(broker)
    foreign_write(spark, path)
    for each in (broker, open_broker(COLD)):
        with pytest.raises(LakelogError, match="not written by Lakelog: file partition=0/part-") as refusal:
            await append(each, TOPIC, records(["next"], partition=0))
        assert refusal.value.code is ErrorCode.UNSUPPORTED_TABLE
        with pytest.raises(LakelogError, match="not written by Lakelog"):
            await each.admin.describe_topic(TOPIC)


async def test_a_consumer_is_refused_and_not_led_past_records_that_another_writer_moved(
    spark: SparkSession, open_broker: OpenBroker, path: str
) -> None:
    broker = open_broker(COLD)
    rows = await topic_with_files(broker)
    assert (await fetch_one(broker, TOPIC, 0, 0, max_bytes=1)).next_offset == 1
    # The old files are gone and the new ones are not served: who went on would find nothing up to the end.
    spark_optimizes(spark, path)
    with pytest.raises(LakelogError, match="not written by Lakelog"):
        await fetch_one(broker, TOPIC, 0, 1)
    spark.sql(f"RESTORE delta.`{path}` TO VERSION AS OF 10")
    rest = await read_all(broker, TOPIC, 0, 1)
    assert [row["offset"] for row in rest] == [row.offset for row in rows if row.partition == 0][1:]


@pytest.mark.parametrize(
    ("harm", "mend"),
    [
        ("OPTIMIZE delta.`{}`", "RESTORE delta.`{}` TO VERSION AS OF 10"),
        (
            "ALTER TABLE delta.`{}` SET TBLPROPERTIES ('lakelog.retention.ms' = 'soon')",
            "ALTER TABLE delta.`{}` UNSET TBLPROPERTIES ('lakelog.retention.ms')",
        ),
    ],
    ids=["files", "terms"],
)
async def test_a_table_that_was_mended_is_a_topic_again(
    spark: SparkSession, open_broker: OpenBroker, path: str, harm: str, mend: str
) -> None:
    broker = open_broker()
    rows = await topic_with_files(broker)
    spark.sql(harm.format(path))
    with pytest.raises(LakelogError):
        await broker.admin.describe_topic(TOPIC)
    spark.sql(mend.format(path))
    for each in (broker, open_broker(COLD)):
        assert await read_with_broker(each, TOPIC) == rows
    rows += await write(broker, TOPIC, 0, 0, 1)
    assert read_with_spark(spark, path) == in_order(rows)


@pytest.mark.parametrize(
    "takes_out", ["RESTORE delta.`{}` TO VERSION AS OF 6", "DELETE FROM delta.`{}` WHERE offset >= 9"]
)
async def test_records_that_spark_takes_out_are_gone_for_everybody_and_their_offsets_stay_used(
    spark: SparkSession, open_broker: OpenBroker, path: str, takes_out: str
) -> None:
    warm = open_broker()
    rows = await topic_with_files(warm)
    spark.sql(takes_out.format(path))
    left = [row for row in rows if row.offset < 9]
    # Memory must not go on serving what the table has no more.
    assert await read_with_broker(warm, TOPIC) == left
    assert await read_with_broker(open_broker(COLD), TOPIC) == left
    later = await write(open_broker(), TOPIC, 0, 0, 1)
    assert [row.offset for row in later] == [15]
    assert await read_with_broker(warm, TOPIC) == in_order(left + later)
    assert read_with_spark(spark, path) == in_order(left + later)


async def test_a_topics_configuration_may_be_set_from_spark(spark: SparkSession, broker: Broker, path: str) -> None:
    await topic_with_files(broker)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('lakelog.retention.ms' = '1000', 'team' = 'billing')")
    described = await broker.admin.describe_topic(TOPIC)
    assert described.config.retention_ms == 1000
    assert (await write(broker, TOPIC, 0, 0, 1))[0].offset == 15


async def test_a_table_feature_that_is_not_plain_delta_is_refused_by_name(
    spark: SparkSession, open_broker: OpenBroker, path: str
) -> None:
    broker = open_broker()
    await topic_with_files(broker)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    for each in (broker, open_broker()):
        with pytest.raises(LakelogError, match="asks for deletionVectors") as refusal:
            await append(each, TOPIC, records(["next"], partition=0))
        assert refusal.value.code is ErrorCode.UNSUPPORTED_TABLE


async def test_sparks_vacuum_leaves_all_live_data(
    spark: SparkSession, open_broker: OpenBroker, path: str, vacuum: Callable[[str], None]
) -> None:
    broker = open_broker()
    await broker.admin.create_topic(TOPIC, 2)
    rows = await write_files(broker, TOPIC, [0, 1], files=FAN + 1)
    live = set((await broker.topics.get(TOPIC)).state.live)
    assert len(data_files(path)) > len(live)
    vacuum("0 HOURS")
    assert data_files(path).keys() == live
    assert await read_with_broker(open_broker(COLD), TOPIC) == rows
    # Vacuum notes itself in the log; the broker goes on after those commits.
    rows += await write(broker, TOPIC, 1, 0, 2)
    assert await read_with_broker(open_broker(COLD), TOPIC) == in_order(rows)
    assert read_with_spark(spark, path) == in_order(rows)


async def test_sparks_vacuum_spares_files_that_left_the_table_a_moment_ago(
    broker: Broker, path: str, vacuum: Callable[[str], None]
) -> None:
    await broker.admin.create_topic(TOPIC, 1)
    await write_files(broker, TOPIC, [0], files=FAN)
    topic = await broker.topics.get(TOPIC)
    merged_away = data_files(path).keys() - set(topic.state.live)
    assert len(merged_away) == FAN
    for file in merged_away:
        os.utime(Path(path, file), (1_000_000_000, 1_000_000_000))
    await topic.table.checkpoint()
    vacuum("1 HOURS")
    assert merged_away <= data_files(path).keys()


async def test_a_checkpoint_that_spark_wrote_opens_the_topic_with_all_that_it_knew(
    spark: SparkSession, open_broker: OpenBroker, path: str
) -> None:
    broker = open_broker()
    rows = await topic_with_files(broker)
    await broker.admin.delete_records(TOPIC, {1: 4})
    first = await append(broker, TOPIC, records(["once"], partition=0), producer=batch_of(7, 0))
    # Spark writes one after its own commits, every so many versions.
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    assert len(log_files(path, "checkpoint.parquet")) == 1
    for commit in log_files(path, "json"):
        commit.unlink()
    fresh = open_broker(ServerSettings(hot_tail_bytes_max=0))
    served = [row for row in rows if (row.partition, row.offset) >= (1, 4) or row.partition == 0]
    assert [row[:2] for row in await read_with_broker(fresh, TOPIC)] == in_order_of_places(served, (0, 15))
    again = await append(fresh, TOPIC, records(["once"], partition=0), producer=batch_of(7, 0))
    assert again.duplicate
    assert again.offsets.tolist() == first.offsets.tolist() == [15]


def in_order_of_places(rows: list[Row], *more: tuple[int, int]) -> list[tuple[int, int]]:
    return sorted([(row.partition, row.offset) for row in rows] + list(more))
