"""A group's lag is one query over two Delta tables: as the README gives it, in Spark and in DuckDB."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from consumer_groups.assignors import TopicPartition
from consumer_groups.service import GroupService
from lakelog.broker import Broker
from tests.contract.group_members import commit_simply
from tests.contract.records import append, records

pytestmark = pytest.mark.spark

README = (Path(__file__).parents[2] / "consumer_groups" / "README.md").read_text()
QUERY = re.findall(r"```sql\n(.*?)```", README, re.DOTALL)[0]
TOPIC = "orders"


async def _groups(warehouse: str) -> list[tuple[str, int, int, int, int]]:
    """Some that read and one that was deleted; what the service says of their lags."""
    first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    async with Broker.open(warehouse) as broker, GroupService(broker) as service:
        await broker.admin.create_topic(TOPIC, 2)
        await append(broker, TOPIC, records(["x"] * 10, partition=0))
        await append(broker, TOPIC, records(["x"] * 5, partition=1))
        await commit_simply(service, {first: 1, second: 5}, group_id="slow")
        await commit_simply(service, {first: 4}, group_id="slow")
        await commit_simply(service, {first: 10}, group_id="quick")
        # Beyond the last record that is left, as a group is that has read records which compaction took away.
        await commit_simply(service, {first: 12}, group_id="ahead")
        await commit_simply(service, {first: 3}, group_id="gone")
        await service.delete_group("gone")
        return [
            (each.group_id, lag.partition, lag.committed or 0, lag.end_offset, lag.lag or 0)
            for each in await service.list_groups()
            for lag in await service.lag(each.group_id)
        ]


def _rows(table: pa.Table) -> list[tuple[int | str, ...]]:
    columns = [
        table.column(name).to_pylist() for name in ("group_id", "partition_id", "committed", "end_offset", "lag")
    ]
    return sorted(zip(*columns, strict=True))


async def test_the_query_says_what_the_service_says(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    expected = sorted(await _groups(warehouse))
    assert expected == [("ahead", 0, 12, 10, 0), ("quick", 0, 10, 10, 0), ("slow", 0, 4, 10, 6), ("slow", 1, 5, 5, 0)]
    tables = {"consumer_offsets": f"{warehouse}/__consumer_offsets", "orders": f"{warehouse}/{TOPIC}"}
    for name, path in tables.items():
        spark.read.format("delta").load(path).createOrReplaceTempView(name)
    assert _rows(spark.sql(QUERY).toArrow()) == expected
    with duckdb.connect() as connection:
        for name, path in tables.items():
            connection.register(name, DeltaTable(path).to_pyarrow_dataset())
        assert _rows(connection.sql(QUERY).to_arrow_table()) == expected
