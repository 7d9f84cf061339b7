"""One Spark session for the whole run, and warehouses on the local disk, where Spark and the broker meet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.spark import SparkUnavailable, delta_session
from tests.conftest import Warehouse


def kafka_source_jars() -> list[str]:
    """Spark's Kafka source, of the jars that were fetched with it those that Spark does not have itself; or nothing."""
    folder = Path(sys.prefix) / "kafka-tools" / "spark"
    wanted = ("spark-*.jar", "kafka-clients-*.jar", "commons-pool2-*.jar")
    return [str(jar) for pattern in wanted for jar in folder.glob(pattern)]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    for_short_lived = os.environ.pop("SPARK_SUBMIT_OPTS")  # this one lives long enough for code to be compiled well
    try:
        settings = {"spark.driver.memory": "1g", "spark.master": "local[2,3]"}
        if jars := kafka_source_jars():
            settings["spark.jars"] = ",".join(jars)
        session = delta_session("lakelog-tests", settings=settings)
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    finally:
        os.environ["SPARK_SUBMIT_OPTS"] = for_short_lived
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"), {})
