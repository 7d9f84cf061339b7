"""`format("lakelog")` as a sink: every row becomes one record, whatever fails and is run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.broker import Broker
from lakelog.log.partitioner import partition_by_key
from tests.conftest import Warehouse
from tests.contract.records import append, append_each, read_all, records, values_of
from tests.spark.lakelog_frames import batch, forget_last_commit, rows, stream
from tests.spark.readers import read_with_broker, write

pytestmark = pytest.mark.spark

TOPIC = "counts"


def save(frame: DataFrame, warehouse: Warehouse, **options: object) -> None:
    writer = frame.write.format("lakelog").option("warehouse", warehouse.url)
    writer.options(**{name: str(value) for name, value in options.items()}).mode("append").save()


def staged_files(warehouse: Warehouse) -> list[Path]:
    return [path for path in Path(warehouse.url, "__spark_sink").rglob("*") if path.is_file()]


# -- batch -----------------------------------------------------------------------------------------------------


async def test_a_topic_written_from_another_is_its_copy(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    for name in ("from", "to"):
        await broker.admin.create_topic(name, 2)
    written = await write(broker, "from", 0, 0, 7) + await write(broker, "from", 1, 3, 5)
    save(batch(spark, warehouse, subscribe="from", includeHeaders=True), warehouse, topic="to")
    assert await read_with_broker(broker, "to") == written
    assert rows(batch(spark, warehouse, subscribe="to", includeHeaders=True)) == written
    assert staged_files(warehouse) == []


async def test_keys_go_where_a_kafka_client_puts_them_and_text_is_bytes(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    await broker.admin.create_topic(TOPIC, 4)
    frame = spark.range(50).selectExpr("concat('k', id) key", "concat('v', id) value")
    save(frame, warehouse, topic=TOPIC)
    found = await read_with_broker(broker, TOPIC)
    assert {row.value for row in found} == {f"v{n}".encode() for n in range(50)}
    assert len(found) == 50
    keys = pa.array([row.key for row in found], pa.binary())
    assert [row.partition for row in found] == partition_by_key(keys, 4, -1).tolist()


async def test_rows_say_their_topic_and_the_option_goes_before(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    frame = spark.createDataFrame([("a", "1"), ("b", "2"), ("a", "3")], "topic STRING, value STRING").coalesce(1)
    save(frame, warehouse)
    assert await values_of(broker, "a") == ["1", "3"]
    assert await values_of(broker, "b") == ["2"]
    save(frame, warehouse, topic="all")
    assert await values_of(broker, "all") == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("select", "options", "told"),
    [
        ("id", {"topic": TOPIC}, "no column 'value'"),
        ("'x' value", {}, "which topic"),
        ("id value", {"topic": TOPIC}, "column value is bigint"),
        ("'x' value; 'y' headers", {"topic": TOPIC}, "column headers is string"),
        ("'x' value", {"topic": "__maintenance"}, "platform's own"),
        ("'x' value", {"topics": TOPIC}, "did you mean topic"),
        ("'x' value; CAST(NULL AS STRING) topic", {}, "a row has no topic"),
        ("'x' value; 9 partition", {"topic": TOPIC}, "partition that is not there"),
        ("repeat('x', 2000) value", {"topic": TOPIC}, "larger than max.message.bytes"),
    ],
)
async def test_mistakes_are_told_and_write_nothing(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, select: str, options: dict[str, str], told: str
) -> None:
    await broker.admin.create_topic(TOPIC, 2, {"max.message.bytes": "1000"})
    with pytest.raises(PySparkException, match=told):
        save(spark.range(3).selectExpr(*select.split("; ")), warehouse, **options)
    assert await read_with_broker(broker, TOPIC) == []


async def test_a_topic_is_not_overwritten(spark: SparkSession, broker: Broker, warehouse: Warehouse) -> None:
    await append_each(broker, TOPIC, ["a"])
    writer = spark.range(1).selectExpr("'x' value").write.format("lakelog").mode("overwrite")
    with pytest.raises(PySparkException, match="use mode append"):
        writer.option("warehouse", warehouse.url).option("topic", TOPIC).save()


async def test_a_named_write_that_is_repeated_is_passed_over(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    frame = spark.range(5).selectExpr("CAST(id AS STRING) value").coalesce(1)
    for version in (1, 1, 2, 1):
        save(frame, warehouse, topic=TOPIC, txnAppId="nightly", txnVersion=version)
    assert await values_of(broker, TOPIC) == ["0", "1", "2", "3", "4"] * 2


async def test_one_batch_of_a_stream_goes_to_two_topics_under_one_name(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) value").coalesce(1)
    for _ in range(2):  # the second time as after a restart
        for topic in ("first", "second"):
            save(frame, warehouse, topic=topic, txnAppId="twice", txnVersion=0)
    assert await values_of(broker, "first") == ["0", "1", "2"]
    assert await values_of(broker, "second") == ["0", "1", "2"]


async def test_tasks_that_fail_are_run_again_without_duplicates(
    spark: SparkSession, broker: Broker, warehouse: Warehouse
) -> None:
    def fail_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The first attempt of each task fails at its end, when it has staged a piece already."""
        for some in batches:
            for number in some.column("id").to_pylist():
                yield pa.record_batch({"value": pa.array([b"%d|" % number + b"x" * 900_000])})
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt of this task fails")

    frame = spark.range(0, 12, numPartitions=2).mapInArrow(fail_first, "value BINARY")
    save(frame, warehouse, topic=TOPIC)
    values = [row["value"] for row in await read_all(broker, TOPIC)]
    assert [int(value.split(b"|")[0]) for value in values] == list(range(12))
    assert staged_files(warehouse) == []


# -- streams ---------------------------------------------------------------------------------------------------


def run_to_topic(frame: DataFrame, warehouse: Warehouse, checkpoint: Path, *, mode: str = "append") -> None:
    """Start where the checkpoint says, write what is available now to TOPIC, stop."""
    query = (
        frame.writeStream.format("lakelog")
        .option("warehouse", warehouse.url)
        .option("topic", TOPIC)
        .option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


async def test_a_stream_to_a_topic_is_exactly_once_under_restarts(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = stream(spark, warehouse, subscribe="from", startingOffsets="earliest", maxOffsetsPerTrigger=25)
    frame = frame.select("key", "value")
    sent: list[str] = []
    for turn in range(4):
        more = [f"{turn}-{n}" for n in range(60)]
        await append(broker, "from", records(more))
        sent += more
        run_to_topic(frame, warehouse, checkpoint)
        assert await values_of(broker, TOPIC) == sent
        forget_last_commit(checkpoint)
    run_to_topic(frame, warehouse, checkpoint)
    assert await values_of(broker, TOPIC) == sent


async def test_a_query_that_fails_in_the_middle_of_a_batch_and_is_mended(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await append(broker, "from", records([f"{n}" for n in range(40)]))
    source = stream(spark, warehouse, subscribe="from", startingOffsets="earliest", maxOffsetsPerTrigger=15)
    failing = source.select(
        F.expr("IF(CAST(value AS STRING) = '20', raise_error('a bad record'), value)").cast("binary").alias("value")
    )
    with pytest.raises(PySparkException, match="a bad record"):
        run_to_topic(failing, warehouse, tmp_path / "checkpoint")
    assert await values_of(broker, TOPIC) == [f"{n}" for n in range(15)]
    run_to_topic(source.select("value"), warehouse, tmp_path / "checkpoint")
    assert await values_of(broker, TOPIC) == [f"{n}" for n in range(40)]


@pytest.mark.parametrize("mode", ["complete", "update"])
async def test_word_count_with_state_is_exactly_once_under_restarts(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path, mode: str
) -> None:
    await broker.admin.create_topic("lines", 2)
    await broker.admin.create_topic(TOPIC, 2)
    words = (
        stream(spark, warehouse, subscribe="lines", startingOffsets="earliest", maxOffsetsPerTrigger=20)
        .select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("key"))
        .groupBy("key")
        .count()
        .select("key", F.col("count").cast("string").alias("value"))
    )
    checkpoint = tmp_path / "checkpoint"
    expected: dict[str, int] = {}
    for turn in range(3):
        lines = [f"the {n % 3} of {turn}" for n in range(30)]
        for number in (0, 1):
            await append(broker, "lines", records(lines[number::2], partition=number))
        for word in " ".join(lines).split():
            expected[word] = expected.get(word, 0) + 1
        count_words(words, warehouse, checkpoint, mode)
        forget_last_commit(checkpoint)
    count_words(words, warehouse, checkpoint, mode)

    counts: dict[str, list[int]] = {}
    for row in await read_with_broker(broker, TOPIC):
        assert row.key is not None
        assert row.value is not None
        counts.setdefault(row.key.decode(), []).append(int(row.value))
    assert {word: each[-1] for word, each in counts.items()} == expected
    # A word of every line is counted once in every batch.
    batches = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    assert counts["the"] == sorted(set(counts["the"]))
    assert len(counts["the"]) == len(batches)


def count_words(words: DataFrame, warehouse: Warehouse, checkpoint: Path, mode: str) -> None:
    if mode == "complete":
        run_to_topic(words, warehouse, checkpoint, mode=mode)
        return

    # Spark gives no sink in Python the update mode. A batch write is as good, if it is told which one it is.
    def write_counts(frame: DataFrame, number: int) -> None:
        save(frame, warehouse, topic=TOPIC, txnAppId="word-count", txnVersion=number)

    writer = words.writeStream.foreachBatch(write_counts).option("checkpointLocation", str(checkpoint))
    writer.outputMode(mode).trigger(availableNow=True).start().awaitTermination()
