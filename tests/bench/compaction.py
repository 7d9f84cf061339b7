"""How fast a topic is compacted, how that grows with its size, and how fast Kafka's log cleaner does the same."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_jobs.context import Context
from compaction_jobs.runner import run_job
from lakelog.broker import Broker
from lakelog.clock import SystemClock
from lakelog.delta.store import open_store
from lakelog.spark import delta_session
from tests.bench.lines import RECORD_BYTES, Lines
from tests.bench.peers import Kafka, kafka
from tests.bench.report import MB, Stopwatch, figure, headline, rate, scratch_folder

SIZES = (2_000_000, 20_000_000)
RECORDS_A_KEY = 10
PARTITIONS = 2
TOPIC = "compacted"
WEEK_MS = 7 * 86_400_000
# Less than the records take up: who needs them all in memory gets no further.
SPARK_MEMORY = "1g"
PATIENCE_S = 600.0


class NextWeek(SystemClock):
    """By its time every file is older than segment.ms, and none is active."""

    def now_ms(self) -> int:
        return super().now_ms() + WEEK_MS


def run() -> None:
    headline(f"compaction: {RECORD_BYTES} bytes a record, {RECORDS_A_KEY} records a key, {PARTITIONS} partitions")
    spark = delta_session("lakelog-bench", settings={"spark.driver.memory": SPARK_MEMORY})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        _compacted(spark, SIZES[0] // 10)  # which warms Spark up
        took = {count: _compacted(spark, count) for count in SIZES}
    finally:
        spark.stop()
    for count, seconds in took.items():
        _tell(f"{count // 1_000_000} M records, Spark with {SPARK_MEMORY} of memory", count, seconds)
    small, large = SIZES
    growth = took[large] / took[small]
    figure(f"{large // small} times as many records take", f"{growth:.1f} times as long", aim="close to linear")
    with kafka({"log.cleaner.backoff.ms": "100"}) as broker:
        if broker is not None:
            cleaned, seconds = _cleaned(broker, SIZES[-1])
            _tell(f"Kafka's log cleaner, {cleaned / 1_000_000:.1f} M records", cleaned, seconds)


def _tell(name: str, count: int, seconds: float) -> None:
    speed = f"{count * RECORD_BYTES / seconds / MB:,.0f} MB/s, {seconds:.1f} s"
    figure(name, rate(count, seconds), against=speed)


def _compacted(spark: SparkSession, count: int) -> float:
    """Seconds that the job takes."""
    with scratch_folder() as folder:
        return asyncio.run(_compact(spark, folder, count))


async def _compact(spark: SparkSession, folder: Path, count: int) -> float:
    keys = count // RECORDS_A_KEY
    async with Broker.open(str(folder)) as leader:
        await leader.admin.create_topic(TOPIC, PARTITIONS, {"cleanup.policy": "compact"})
        for records in Lines(count, keys=keys).records():
            await leader.append(TOPIC, records)
        await leader.upkeep.settle()
    async with Broker(open_store(str(folder)), clock=NextWeek()) as broker:
        watch = Stopwatch()
        outcomes = await run_job(Context(broker, str(folder), session=spark), "compaction")
        seconds = watch.seconds
    assert [each.error for each in outcomes] == [None] * PARTITIONS
    assert sum(each.before.records for each in outcomes) == count
    assert sum(each.after.records for each in outcomes) <= keys
    return seconds


def _cleaned(broker: Kafka, count: int) -> tuple[int, float]:
    """How many records Kafka's cleaner went through, and for how long. Its active segments stay as they are."""
    segments = {"segment.bytes": str(128 * 1024**2)}
    broker.create_topic(TOPIC, PARTITIONS, {"cleanup.policy": "delete", **segments})
    broker.produce(TOPIC, Lines(count, keys=count // RECORDS_A_KEY).lines(), keyed=True)
    mark = broker.peers_dir / "kafka-run" / "data" / "cleaner-offset-checkpoint"
    broker.alter_config(TOPIC, {"cleanup.policy": "compact"})
    watch = Stopwatch()  # a moment late, to Kafka's advantage: the cleaner is at work when the tool returns
    while len(done := _cleaned_up_to(mark)) < PARTITIONS and watch.seconds < PATIENCE_S:
        time.sleep(0.05)
    return sum(done.values()), watch.seconds


def _cleaned_up_to(mark: Path) -> dict[int, int]:
    """By partition, out of the file in which the cleaner keeps it: a line with topic, partition and offset each."""
    if not mark.exists():
        return {}
    found = [line.split() for line in mark.read_text().splitlines()]
    return {int(each[1]): int(each[2]) for each in found if each[:1] == [TOPIC] and len(each) == 3}
