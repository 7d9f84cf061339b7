"""`format("lakelog")` in short: DataFrames over a test's warehouse, and a stream that can be started again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lakelog.broker import Broker
from tests.conftest import Warehouse
from tests.spark.readers import Row, rows_of


def batch(spark: SparkSession, warehouse: Warehouse, **options: object) -> DataFrame:
    reader = spark.read.format("lakelog").option("warehouse", warehouse.url)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def stream(spark: SparkSession, warehouse: Warehouse, **options: object) -> DataFrame:
    reader = spark.readStream.format("lakelog").option("warehouse", warehouse.url)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def rows(frame: DataFrame) -> list[Row]:
    """As plain rows, in the order of partitions and offsets; `includeHeaders` has to be on."""
    return rows_of(frame.toArrow())


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and offset of each row, in the order in which Spark gives them."""
    table: pa.Table = frame.select("partition", "offset").toArrow()
    return list(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))


class CollectedStream:
    """Keeps what each batch of a stream gave, by the number of the batch: one that is run again takes its own place."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.batches: dict[int, list[Row]] = {}
        self._frame = frame
        self._checkpoint = checkpoint

    def run(self) -> list[Row]:
        """Start where it stopped, read what is available now, stop. Returns all rows so far, as they came."""
        query = self.start(available_now=True)
        query.awaitTermination()
        return self.rows

    def start(self, *, available_now: bool = False) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def _take(self, frame: DataFrame, number: int) -> None:
        # Not sorted by offset: the order in which they come is what is looked at.
        table = frame.toArrow()
        self.batches[number] = [row for piece in table.to_batches() for row in rows_of(pa.Table.from_batches([piece]))]
        found = list(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))
        assert [(row.partition, row.offset) for row in self.batches[number]] == found


def in_order_per_partition(found: list[Row]) -> bool:
    by_partition: dict[int, list[int]] = {}
    for row in found:
        by_partition.setdefault(row.partition, []).append(row.offset)
    return all(each == sorted(set(each)) for each in by_partition.values())


def forget_last_commit(checkpoint: Path) -> None:
    """As if Spark had died after a batch was through and before it said so: the last batch will be run again."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


async def vacuum(broker: Broker, topic: str) -> None:
    """Everything that the table has removed up to its last commit is deleted, and so are the commits."""
    await broker.admin.alter_config(topic, {"max.message.bytes": "1048588"})
    table = (await broker.topics.get(topic)).table
    await table.checkpoint()
    await table.clean_log(before_ms=1 << 62)
