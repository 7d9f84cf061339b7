"""How fast Spark reads a whole topic, by both formats, beside Spark's own Kafka source on the same records."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog.broker import Broker
from lakelog.spark import delta_session
from tests.bench.lines import VALUE_BYTES, Lines
from tests.bench.peers import kafka
from tests.bench.report import Stopwatch, figure, headline, scratch_folder

RECORDS = 10_000_000
PARTITIONS = 2
CORES = 2
REPEATS = 5
TOPIC = "scanned"


def run() -> None:
    headline(f"scan: count and sum of lengths of {RECORDS:,} records of {VALUE_BYTES} bytes, Spark on {CORES} cores")
    theirs = _kafka_source()
    if theirs:
        figure("Spark's Kafka source (K)", _spread(theirs))
    with scratch_folder() as folder:
        asyncio.run(_fill(folder))
        spark = delta_session(
            "lakelog-bench", settings={"spark.master": f"local[{CORES}]", "spark.driver.memory": "2g"}
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            for name, frame, factor in _formats(spark, folder):
                ours = [_scan(frame()) for _ in range(REPEATS)]
                against = f"{statistics.median(ours) / statistics.median(theirs):.1f} K" if theirs else ""
                figure(name, _spread(ours), against=against, aim=f"at least {factor} K")
        finally:
            spark.stop()


def _formats(spark: SparkSession, folder: Path) -> list[tuple[str, Callable[[], DataFrame], int]]:
    topic = spark.read.format("lakelog").option("warehouse", str(folder)).option("subscribe", TOPIC)
    return [
        ('format("delta")', lambda: spark.read.format("delta").load(str(folder / TOPIC)), 5),
        ('format("lakelog")', topic.load, 3),
        ('format("lakelog"), schema("value BINARY")', topic.schema("value BINARY").load, 3),
    ]


def _scan(frame: DataFrame) -> float:
    """Records a second."""
    watch = Stopwatch()
    found = frame.agg(F.count("*"), F.sum(F.length("value"))).first()
    seconds = watch.seconds
    assert tuple(found or ()) == (RECORDS, RECORDS * VALUE_BYTES)
    return RECORDS / seconds


async def _fill(folder: Path) -> None:
    async with Broker.open(str(folder)) as broker:
        await broker.admin.create_topic(TOPIC, PARTITIONS)
        for records in Lines(RECORDS).records():
            await broker.append(TOPIC, records)
        await broker.upkeep.settle()


def _kafka_source() -> list[float]:
    with kafka() as broker:
        if broker is None:
            return []
        broker.create_topic(TOPIC, PARTITIONS)
        broker.produce(TOPIC, Lines(RECORDS).lines())
        runs = broker.measure_spark("batch", "--topic", TOPIC, "--cores", str(CORES), "--repeat", str(REPEATS))
    assert all((each["records"], each["bytes"]) == (RECORDS, RECORDS * VALUE_BYTES) for each in runs)
    return [each["rec_s"] for each in runs]


def _spread(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} records/s [{min(rates):,.0f} to {max(rates):,.0f}]"
