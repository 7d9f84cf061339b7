"""`format("lakelog")`: a topic as a batch or a stream of Spark, with the columns of Spark's Kafka source.

The driver plans from the tables' logs; tasks read Parquet row groups and hand Arrow batches to Spark. No gateway takes
part. Positions are Kafka offsets, so a stream goes on across merges, compaction, retention and vacuum. Only offsets
that stand in a commit are ever planned, which is to say offsets below the high watermark.

A stream's first position is not kept in its checkpoint before its first batch is, and "latest" is another offset when
it is asked for again. So a stream that begins at a place that moves has an empty first batch: it writes the position
down, and from then on nothing can be missed.

Filters are pushed down where `filterPushdown` is set, and not by default. Spark keeps one plan per `load()` and lets
the last pushed filters stand in it for every query over the same DataFrame, also for one without filters: what is cut
out of the plan would be missing there. So only who loads a DataFrame for one query can have its filters pushed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.errors import ErrorCode, LakelogError
from lakelog.spark.filters import push
from lakelog.spark.options import SourceOptions, parse_source
from lakelog.spark.planning import Slice, TopicView, Wanted, plan
from lakelog.spark.positions import Offsets, OffsetsJson, admit, from_json, furthest, moves, to_json
from lakelog.spark.ranges import between, check_not_behind, ends, high_watermarks, log_starts, require_topics, resolved
from lakelog.spark.reading import read_slice
from lakelog.spark.sink import BatchSink, StreamSink
from lakelog.spark.warehouse import Warehouse

COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


class LakelogDataSource(DataSource):
    """What Spark knows the format by. A schema that the user gives picks columns: only those are read."""

    @classmethod
    def name(cls) -> str:
        return "lakelog"

    def schema(self) -> StructType:
        options = parse_source(self.options)
        return full_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source(self.options)
        return PushingBatchReader(options, schema) if options.filter_pushdown else BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse_source(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchSink(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamSink(self.options, schema)


def full_schema(*, include_headers: bool) -> StructType:
    return StructType([*COLUMNS, HEADERS] if include_headers else list(COLUMNS))


def check_schema(schema: StructType) -> None:
    """A schema of the user's own may leave columns out, and have them in another order."""
    known = {field.name: field.dataType for field in full_schema(include_headers=True)}
    for field in schema:
        if field.name not in known:
            raise LakelogError(
                ErrorCode.INVALID_CONFIG, f"there is no column {field.name!r}; a topic has {', '.join(known)}"
            )
        if field.dataType != known[field.name]:
            raise LakelogError(
                ErrorCode.INVALID_CONFIG,
                f"column {field.name} is {known[field.name].simpleString()}, not {field.dataType.simpleString()}",
            )


class SlicePartition(InputPartition):
    def __init__(self, value: Slice) -> None:
        super().__init__(value)


class _TaskSide:
    """What tasks do, for batch and stream alike."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self.options = options
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's own, where there is nothing to read
            return iter(())
        return read_slice(
            self.options.address,
            partition.value,
            self.arrow_schema,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )


class BatchReader(_TaskSide, DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._start, self._end = options.batch_start(), options.batch_end()
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        with Warehouse(options.address) as warehouse:
            topics = warehouse.topics(options.subscription)
            require_topics(options, topics)
            start = resolved(
                self._start,
                topics,
                warehouse.offset_at,
                "startingOffsets",
                latest_when_no_record=options.latest_when_no_record,
            )
            end = ends(self._end, topics, warehouse.offset_at)
        ranges = between(start, end, topics, fail_on_data_loss=options.fail_on_data_loss)
        slices = plan(ranges, topics, self._wanted, min_partitions=options.min_partitions)
        return [SlicePartition(each) for each in slices]


class PushingBatchReader(BatchReader):
    """A class of its own, because Spark goes by whether there is such a method."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted, left = push(filters)
        return left


class StreamReader(_TaskSide, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._start = options.stream_start()
        self._warehouse: Warehouse | None = None
        self._first: Offsets | None = None  # where a new stream stands, until that is written down
        self._target: Offsets | None = None  # where a stream that reads what is available now ends

    def initialOffset(self) -> OffsetsJson:
        topics = self._topics()
        require_topics(self.options, topics)
        start = resolved(
            self._start,
            topics,
            self._open().offset_at,
            "startingOffsets",
            latest_when_no_record=self.options.latest_when_no_record,
        )
        self._first = start if moves(self._start, start, high_watermarks(topics)) else None
        return to_json(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        position = from_json(start)
        first, self._first = self._first, None
        if position == first:
            return start
        topics = self._topics()
        latest = high_watermarks(topics)
        if self.options.fail_on_data_loss:
            check_not_behind(position, latest)
        if self._target is not None:
            # Spark fixes the target before it asks where a new stream begins, which may be further on by then.
            latest = furthest(self._target, position)
        if isinstance(limit, ReadMaxRows):
            begins = log_starts(topics)
            known = {topic: {**begins.get(topic, {}), **position.get(topic, {})} for topic in latest}
            latest = admit(known, latest, limit.max_rows)
        return to_json(latest)

    def reportLatestOffset(self) -> OffsetsJson:
        return to_json(high_watermarks(self._topics()))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = high_watermarks(self._topics())

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        topics = self._topics()
        ranges = between(from_json(start), from_json(end), topics, fail_on_data_loss=self.options.fail_on_data_loss)
        slices = plan(ranges, topics, Wanted(), min_partitions=self.options.min_partitions)
        return [SlicePartition(each) for each in slices]

    def stop(self) -> None:
        if self._warehouse is not None:
            self._warehouse.close()
            self._warehouse = None

    def _topics(self) -> dict[str, TopicView]:
        return self._open().topics(self.options.subscription)

    def _open(self) -> Warehouse:
        # On first use: Spark also makes readers that are only sent to tasks.
        if self._warehouse is None:
            self._warehouse = Warehouse(self.options.address)
        return self._warehouse
