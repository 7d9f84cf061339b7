"""Spark's own Kafka source reads a topic of ours, and its sink writes one.

In batches: the newest source that there is was made for Spark 4.1, and on 4.2 a stream of it ends in an error.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.gateway_process import gateway as gateway_process
from tests.spark.conftest import kafka_source_jars

pytestmark = pytest.mark.spark


def test_sparks_kafka_source_and_sink(spark: SparkSession, tmp_path: Path):
    if not kafka_source_jars():
        pytest.skip("Spark's Kafka source is not there: `make kafka-clients` fetches it where Maven is installed")
    with gateway_process(tmp_path, {"access_log": "off", "num_partitions": "3"}) as server:
        address = {"kafka.bootstrap.servers": server.kafka}
        rows = spark.range(1_000).select(
            F.concat(F.lit("k"), F.col("id")).alias("key"), F.concat(F.lit("v"), F.col("id")).alias("value")
        )
        rows.write.format("kafka").options(**address).option("topic", "events").save()

        read = spark.read.format("kafka").options(**address).option("subscribe", "events").load()
        found = read.select(F.col("key").cast("string"), F.col("value").cast("string"), "partition", "offset").collect()
        assert sorted(row.value for row in found) == sorted(f"v{n}" for n in range(1_000))
        assert {row.partition for row in found} == {0, 1, 2}
        for partition in range(3):
            offsets = sorted(row.offset for row in found if row.partition == partition)
            assert offsets == list(range(len(offsets)))
