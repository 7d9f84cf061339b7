"""One Spark session for the whole run, and warehouses on the local disk, where Spark and the broker meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.spark import SparkUnavailable, delta_session
from tests.conftest import Warehouse


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        session = delta_session("lakelog-tests", settings={"spark.driver.memory": "1g", "spark.master": "local[2,3]"})
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"), {})
