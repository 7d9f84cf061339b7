"""`format("lakelog")` as a sink: rows of a batch or a stream become records of topics.

Exactly once, and how:

- Spark runs a task again when it fails, and may run two copies of one at the same time; a query that is restarted runs
  its last batch again, perhaps over another number of partitions and in another order. So tasks must not append. They
  stage their records in the warehouse, and Spark tells the driver which attempt of each task counts.
- The driver freezes the batch (`staging`) under the query's id and the batch's number. From then on the batch is those
  records, also for the next driver, whatever its tasks bring.
- The driver appends the frozen batch as an idempotent producer (`delivery`): the topic's own log knows how far it got.

The query's id and the batch's number come to the tasks as properties of Spark's job; the API gives the driver the
number alone. A batch write has neither. It is exactly once within the job, and over jobs if the user names it with
txnAppId and txnVersion, as for a Delta table: a version that was written already to this topic is passed over.

Offsets are given out by the driver, because they are dense and nobody knows them before the commit. The records of a
batch become visible append by append, as with Kafka; consumers never see one twice.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from lakelog.broker import Broker
from lakelog.delta.store import open_store
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.producers import ProducerStates
from lakelog.log.stamp import LogEnd, Request, stamp
from lakelog.model.batch import Records
from lakelog.spark import delivery, staging
from lakelog.spark.options import Address, SinkOptions, check_sink_topic, parse_sink
from lakelog.spark.staging import PIECE_BYTES, UNNAMED, BatchId, Piece

QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"

RECORD_COLUMNS = ("key", "value", "headers", "partition", "timestamp")


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged, and for which batch."""

    batch: BatchId
    task: int
    pieces: tuple[Piece, ...]


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """The columns of Spark's Kafka sink and their types, and a timestamp. Others are left out of the records."""
    types = {field.name: field.dataType for field in schema}
    if "value" not in types:
        raise _refused("there is no column 'value'; a record is a value, and may have a key, headers and a partition")
    if options.topic is None and "topic" not in types:
        raise _refused("which topic? Set option topic, or give the rows a column 'topic'")
    text, whole = (StringType, BinaryType), (ByteType, ShortType, IntegerType, LongType)
    allowed: dict[str, tuple[type[DataType], ...]] = {
        "topic": (StringType,),
        "key": text,
        "value": text,
        "partition": whole,
        "timestamp": (TimestampType,),
    }
    for name, kinds in allowed.items():
        if name in types and not isinstance(types[name], kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise _refused(f"column {name} is {types[name].simpleString()}; it should be {wanted}")
    if "headers" in types and not _are_headers(types["headers"]):
        raise _refused(
            f"column headers is {types['headers'].simpleString()}; it should be array<struct<key:string,value:binary>>"
        )


def _are_headers(kind: DataType) -> bool:
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and [(field.name, type(field.dataType)) for field in kind.elementType]
        == [("key", StringType), ("value", BinaryType)]
    )


def _refused(message: str) -> LakelogError:
    return LakelogError(ErrorCode.INVALID_CONFIG, message)


class BatchSink(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = parse_sink(options)
        check_columns(schema, self._options)
        if overwrite:
            raise _refused("a topic can't be overwritten, only appended to: use mode append")
        app, version = self._options.txn_app_id, self._options.txn_version
        self._repeatable = app is not None
        if app is None or version is None:
            self._batch = BatchId(f"{UNNAMED}{uuid.uuid4()}", 0)
        else:
            self._batch = BatchId(app, version, self._options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _stage(self._options, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _deliver(self._options.address, messages, repeatable=self._repeatable)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _drop(self._options.address, messages)


class StreamSink(DataSourceStreamArrowWriter):
    """Every output mode appends: a topic keeps what it was told before, as Kafka's does."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_sink(options)
        check_columns(schema, self._options)
        if self._options.txn_app_id is not None:
            raise _refused("txnAppId and txnVersion are for batch writes; a stream has its query id and batch number")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _stage(self._options, _batch_of_task(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _deliver(self._options.address, messages, repeatable=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _drop(self._options.address, messages)


def _batch_of_task() -> BatchId:
    context = _task()
    query, batch = context.getLocalProperty(QUERY_ID_PROPERTY), context.getLocalProperty(BATCH_ID_PROPERTY)
    if query is None or batch is None:
        raise LakelogError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Spark did not tell the task its query and batch ({QUERY_ID_PROPERTY}, {BATCH_ID_PROPERTY})",
        )
    return BatchId(query, int(batch))


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "records are staged by tasks"
    return context


# -- tasks -----------------------------------------------------------------------------------------------------


def _stage(options: SinkOptions, batch: BatchId, rows: Iterator[pa.RecordBatch]) -> Staged:
    context = _task()
    attempt = f"{context.partitionId():06d}-{context.taskAttemptId()}"

    async def stage() -> tuple[Piece, ...]:
        async with _open(options.address) as broker:
            return await Stager(broker, batch, attempt).stage(rows_by_topic(rows, options.topic))

    return Staged(batch, context.partitionId(), asyncio.run(stage()))


def rows_by_topic(batches: Iterator[pa.RecordBatch], topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    """The rows for each topic, in their order. The option goes before the column, as in Kafka's sink."""
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        rows = table.select([name for name in RECORD_COLUMNS if name in table.column_names])
        if topic is not None:
            yield topic, rows
            continue
        topics = table.column("topic")
        for name in topics.unique().to_pylist():
            if name is None:
                raise LakelogError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a row has no topic: its column 'topic' is null")
            check_sink_topic(name)
            yield name, rows.filter(pc.equal(topics, name))


class Stager:
    """Gathers one task's records by topic and puts them into the warehouse in pieces."""

    def __init__(self, broker: Broker, batch: BatchId, attempt: str) -> None:
        self._broker = broker
        self._batch = batch
        self._attempt = attempt
        self._held: dict[str, list[pa.Table]] = {}
        self._held_bytes: dict[str, int] = {}
        self._pieces: list[Piece] = []
        self._ends: dict[str, LogEnd | None] = {}

    async def stage(self, rows: Iterator[tuple[str, pa.Table]]) -> tuple[Piece, ...]:
        for topic, some in rows:
            self._held.setdefault(topic, []).append(some)
            self._held_bytes[topic] = self._held_bytes.get(topic, 0) + some.nbytes
            if self._held_bytes[topic] >= PIECE_BYTES:
                await self._put(topic)
        for topic in list(self._held):
            await self._put(topic)
        return tuple(self._pieces)

    async def _put(self, topic: str) -> None:
        held = self._held.pop(topic)
        del self._held_bytes[topic]
        for records in staging.cut(pa.concat_tables(held)):
            await self._check(topic, records)
            path = f"{self._batch.folder}/{self._attempt}-{len(self._pieces):06d}.arrow"
            await self._broker.store.put(path, staging.encode_piece(records))
            self._pieces.append(Piece(topic, path, len(records), records.size_bytes))

    async def _check(self, topic: str, records: Records) -> None:
        """Refuse what the topic would refuse while the task is at it: a batch that is frozen can't be mended."""
        if topic not in self._ends:
            self._ends[topic] = await self._log_end(topic)
        end = self._ends[topic]
        if end is not None:
            (outcome,) = stamp([Request(records)], end, self._broker.clock.now_ms()).outcomes
            if isinstance(outcome, LakelogError):
                raise LakelogError(outcome.code, f"topic {topic!r}: {outcome.message}")

    async def _log_end(self, topic: str) -> LogEnd | None:
        """What the topic's records are judged by; None if it will be created with the first of them."""
        try:
            state = (await self._broker.topics.get(topic)).state
        except LakelogError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise
        return LogEnd(state.next_offsets, ProducerStates(), state.config)


# -- the driver ------------------------------------------------------------------------------------------------


def _deliver(address: Address, messages: Sequence[WriterCommitMessage | None], *, repeatable: bool) -> None:
    staged = _in_order(messages)
    if staged:
        asyncio.run(_delivered(address, staged, repeatable=repeatable))


async def _delivered(address: Address, staged: Sequence[Staged], *, repeatable: bool) -> None:
    async with _open(address) as broker:
        pieces = [piece for each in staged for piece in each.pieces]
        await delivery.deliver(broker, staged[0].batch, pieces, repeatable=repeatable)
        # There may be no gateway to tidy up after what was appended here.
        await broker.upkeep.settle()


def _drop(address: Address, messages: Sequence[WriterCommitMessage | None]) -> None:
    staged = _in_order(messages)
    if staged:
        asyncio.run(_dropped(address, staged))


async def _dropped(address: Address, staged: Sequence[Staged]) -> None:
    async with _open(address) as broker:
        await delivery.drop(broker, staged[0].batch, [piece for each in staged for piece in each.pieces])


def _in_order(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return sorted((each for each in messages if isinstance(each, Staged)), key=lambda each: each.task)


def _open(address: Address) -> Broker:
    return Broker(open_store(address.warehouse, dict(address.storage), fsync=address.fsync))
