"""A topic's table as others read it, and the records to put there: everything in the same plain rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from lakelog.broker import Broker
from lakelog.model.batch import HEADERS, TIMESTAMP, from_arrow
from tests.contract.records import append, read_all

LOG = "_delta_log"
COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
EPOCH_US = 1_790_000_000_000_000


class Row(NamedTuple):
    partition: int
    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


def rows_of(table: pa.Table) -> list[Row]:
    """In the order of partitions and offsets. A row that is there twice stays so, and shows."""
    times = table.column("timestamp").cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    columns = [table.column(name).to_pylist() for name in COLUMNS if name not in ("timestamp", "headers")]
    headers = [_pairs(value) for value in table.column("headers").to_pylist()]
    rows = [
        Row(partition, offset, time, _bytes(key), _bytes(value), pairs)
        for partition, offset, key, value, time, pairs in zip(*columns, times, headers, strict=True)
    ]
    return in_order(rows)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def _pairs(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...] | None:
    return None if headers is None else tuple((each["key"], _bytes(each["value"])) for each in headers)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def data_files(path: str) -> dict[str, int]:
    """Every data file in a table's folder, whether the table names it or not, and its size."""
    return {str(file.relative_to(path)): file.stat().st_size for file in Path(path).glob("partition=*/*.parquet")}


def log_files(path: str, kind: str) -> list[Path]:
    return sorted(Path(path, LOG).glob(f"*.{kind}"))


def delta_frame(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("delta").load(path)


def read_with_spark(spark: SparkSession, path: str, where: str = "true") -> list[Row]:
    return rows_of(delta_frame(spark, path).where(where).toArrow())


def read_with_delta_rs(path: str, where: str = "true") -> list[Row]:
    """By its own query engine, DataFusion."""
    engine = QueryBuilder().register("topic", DeltaTable(path))
    return rows_of(pa.table(engine.execute(f"SELECT * FROM topic WHERE {where}").read_all()))


def read_with_duckdb(path: str, where: str = "true") -> list[Row]:
    """Over delta-rs's Arrow dataset: DuckDB's own delta_scan is an extension that has to be downloaded."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("topic", DeltaTable(path).to_pyarrow_dataset())
        return rows_of(connection.sql(f"SELECT * FROM topic WHERE {where}").to_arrow_table())


def read_with_delta_scan(path: str, where: str = "true") -> list[Row]:
    """By DuckDB's own extension, where it can be had. Raises duckdb.IOException where it can't."""
    with duckdb.connect() as connection:
        connection.install_extension("delta")
        connection.load_extension("delta")
        connection.execute("SET TimeZone = 'UTC'")
        return rows_of(connection.sql(f"SELECT * FROM delta_scan('{path}') WHERE {where}").to_arrow_table())


def read_with_polars(path: str, where: str = "true") -> list[Row]:
    return rows_of(pl.scan_delta(path).filter(pl.sql_expr(where)).collect().to_arrow())


async def read_with_broker(broker: Broker, topic: str) -> list[Row]:
    """What consumers get, in the order in which they get it."""
    found: list[Row] = []
    for partition in (await broker.admin.describe_topic(topic)).partitions:
        for row in await read_all(broker, topic, partition.partition):
            time_us = pa.scalar(row["timestamp"], TIMESTAMP).cast(pa.int64()).as_py()
            headers = _pairs(row["headers"])
            found.append(Row(partition.partition, row["offset"], time_us, row["key"], row["value"], headers))
    return found


def batch(first: int, count: int) -> list[tuple[int, bytes | None, bytes | None, Any]]:
    """Time, key, value and headers of `count` records: every kind of null, of nothing, and of bytes."""
    kinds: list[tuple[bytes | None, bytes | None, Any]] = [
        (b"key", b"value", None),
        (None, b"without a key", []),
        (b"", b"", [("", b"")]),
        (b"tombstone", None, [("why", None), ("why", b"twice")]),
        (b"\x00\xff\xfe", bytes(range(256)), [("größe", b"\x80")]),
        (None, None, None),
    ]
    return [(EPOCH_US + n * 1_000_001, *kinds[n % len(kinds)]) for n in range(first, first + count)]


async def write(broker: Broker, topic: str, partition: int, first: int, count: int) -> list[Row]:
    """One commit, and so one file. Returns the rows that every reader has to find."""
    rows = batch(first, count)
    table = pa.table(
        {
            "timestamp": pa.array([row[0] for row in rows], pa.int64()).cast(TIMESTAMP),
            "key": pa.array([row[1] for row in rows], pa.binary()),
            "value": pa.array([row[2] for row in rows], pa.binary()),
            "headers": pa.array([row[3] for row in rows], HEADERS),
            "partition": pa.array([partition] * count, pa.int32()),
        }
    )
    appended = await append(broker, topic, from_arrow(table))
    assert appended.partitions.tolist() == [partition] * count
    return [
        Row(partition, offset, time, key, value, None if headers is None else tuple(headers))
        for offset, (time, key, value, headers) in zip(appended.offsets.tolist(), rows, strict=True)
    ]


async def write_files(broker: Broker, topic: str, partitions: Iterable[int], files: int, count: int = 3) -> list[Row]:
    """`files` commits to each of the partitions in turn, and then what upkeep makes of them."""
    written: list[Row] = []
    for number in range(files):
        for partition in partitions:
            written += await write(broker, topic, partition, number * count, count)
    await broker.upkeep.settle()
    return in_order(written)
