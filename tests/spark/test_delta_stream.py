"""A plain Delta stream over a topic sees every record once, whatever merges, checkpoints and deletions come between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lakelog.broker import Broker
from lakelog.log.tiers import FAN
from tests.conftest import Warehouse
from tests.spark.readers import Row, in_order, rows_of, write, write_files

pytestmark = pytest.mark.spark

TOPIC = "orders"


class Sink:
    """Takes in the batches of a stream, which may be stopped and started again where it was."""

    def __init__(self, spark: SparkSession, path: str, checkpoint: Path) -> None:
        self.rows: list[Row] = []
        self._start: Callable[[], StreamingQuery] = lambda: (
            spark.readStream.format("delta")
            .option("maxFilesPerTrigger", 8)
            .load(path)
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        self.query = self._start()

    def _take(self, batch: DataFrame, _: int) -> None:
        self.rows += rows_of(batch.toArrow())

    def restart(self) -> None:
        self.query.stop()
        self.query = self._start()

    def caught_up(self) -> list[Row]:
        self.query.processAllAvailable()
        return in_order(self.rows)


async def test_a_stream_goes_on_past_everything_that_the_broker_does(
    spark: SparkSession, broker: Broker, warehouse: Warehouse, tmp_path: Path
) -> None:
    await broker.admin.create_topic(TOPIC, 2)
    # It starts in a snapshot of several batches, with merged files and small ones in it.
    rows = await write_files(broker, TOPIC, [0], files=FAN + 3)
    rows += await write_files(broker, TOPIC, [1], files=FAN - 1)
    sink = Sink(spark, f"{warehouse.url}/{TOPIC}", tmp_path / "checkpoint")
    try:
        # The files of that snapshot are merged away under it.
        rows += await write(broker, TOPIC, 1, 0, 3)
        await broker.upkeep.settle()
        assert sink.caught_up() == in_order(rows)

        rows += await write_files(broker, TOPIC, [0, 1], files=FAN)
        table = (await broker.topics.get(TOPIC)).table
        await table.checkpoint()
        assert sink.caught_up() == in_order(rows)

        # What the stream has seen may go from the log and from the table.
        await table.clean_log(before_ms=1 << 62)
        await broker.admin.delete_records(TOPIC, {0: -1})
        await broker.admin.alter_config(TOPIC, {"retention.ms": "1000"})
        await broker.admin.add_partitions(TOPIC, 3)
        rows += await write(broker, TOPIC, 0, 0, 2)
        rows += await write(broker, TOPIC, 2, 0, 2)
        assert sink.caught_up() == in_order(rows)

        sink.query.stop()
        rows += await write_files(broker, TOPIC, [2], files=FAN)
        sink.restart()
        assert sink.caught_up() == in_order(rows)
        merges = [line for line in table.state.live.values() if line.tier > 0]
        assert len(merges) >= 2
    finally:
        sink.query.stop()
