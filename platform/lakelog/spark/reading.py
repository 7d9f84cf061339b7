"""Read a slice in a task: only the row groups and columns that it needs, as Arrow batches in Spark's shape.

Promises the records of the slice's offsets in their order, each once, whatever happens to the table meanwhile. Files
may be merged, compacted, expired and vacuumed between plan and read: one that is gone is looked up anew, by the offsets
that are still to be read. What is no longer there at all is data loss, and the options say what that means.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from lakelog.broker import Broker
from lakelog.delta.reader import Footer, RowGroup, SegmentReader, offsets_of
from lakelog.delta.store import FileMissing, Store, StoreRefused, StoreUnavailable, open_store
from lakelog.delta.table import storage_error
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.model.batch import STORED_SCHEMA
from lakelog.spark.options import Address
from lakelog.spark.planning import OffsetRange, PlannedFile, Slice, files_of
from lakelog.spark.ranges import data_loss

# Row groups that are fetched together: enough to make a request to an object store worth its while.
READ_BYTES = 8 * 1024 * 1024
CREATE_TIME, LOG_APPEND_TIME = 0, 1


class Shape:
    """Turns stored rows into the columns that Spark asked for."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.stored = tuple(name for name in schema.names if name in STORED_SCHEMA.names)

    def batch(self, rows: pa.RecordBatch, range_: OffsetRange, timestamp_type: int) -> pa.RecordBatch:
        constants = {"topic": range_.topic, "partition": range_.partition, "timestampType": timestamp_type}
        columns = [
            pa.repeat(pa.scalar(constants[field.name], field.type), rows.num_rows)
            if field.name in constants
            else _of_type(rows.column(field.name), field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _of_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)


def read_slice(
    address: Address, whole: Slice, schema: pa.Schema, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a slice. While Spark takes one batch, the next one is read."""
    store = open_store(address.warehouse, dict(address.storage))
    shape = Shape(schema)
    timestamp_type = LOG_APPEND_TIME if whole.log_append_time else CREATE_TIME
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="lakelog-read"))
        rows = SliceReader(store, whole, shape.stored, fail_on_data_loss=fail_on_data_loss).rows()
        ahead = thread.submit(_next_of(runner, rows))
        while (table := ahead.result()) is not None:
            ahead = thread.submit(_next_of(runner, rows))
            for batch in table.to_batches():
                yield shape.batch(batch, whole.range, timestamp_type)


def _next_of(runner: asyncio.Runner, rows: AsyncIterator[pa.Table]) -> Callable[[], pa.Table | None]:
    async def step() -> pa.Table | None:
        return await anext(rows, None)

    return lambda: runner.run(step())


class SliceReader:
    """Reads the stored columns of a slice. `position` is the first offset that was not given out yet."""

    def __init__(self, store: Store, whole: Slice, columns: Sequence[str], *, fail_on_data_loss: bool) -> None:
        self.position = whole.range.start_offset
        self._store = store
        self._whole = whole
        self._range = whole.range
        self._columns = tuple(columns)
        self._fail_on_data_loss = fail_on_data_loss
        self._reader = SegmentReader(store, None, cache_bytes_max=0)

    async def rows(self) -> AsyncIterator[pa.Table]:
        files: Sequence[PlannedFile] = self._whole.files
        while True:
            try:
                for file in files:
                    async for table in self._rows_of(file):
                        yield table
                    self.position = max(self.position, file.end_offset)
                return
            except FileMissing as missing:
                files = await self._look_again(missing)
            except (StoreUnavailable, StoreRefused) as error:
                raise storage_error(error, f"reading {self._range.topic}-{self._range.partition}") from error

    async def _rows_of(self, file: PlannedFile) -> AsyncIterator[pa.Table]:
        path = f"{self._range.topic}/{file.path}"
        footer = await self._reader.footer(path, file.bytes)
        wanted = [
            group
            for group in footer.groups
            if group.last_offset >= self.position
            and group.first_offset < self._range.end_offset
            and self._whole.times_us.overlaps(group.min_timestamp_us, group.max_timestamp_us)
        ]
        for some in _together(wanted):
            for group, table in zip(some, await self._tables(path, footer, some), strict=True):
                rows = self._within(group, table)
                self.position = max(self.position, group.last_offset + 1)
                if rows.num_rows:
                    yield rows

    async def _tables(self, path: str, footer: Footer, groups: Sequence[RowGroup]) -> list[pa.Table]:
        """Offsets are read where they are asked for, where rows have to be cut off by them, and to count rows by."""
        names = self._columns
        if "offset" not in names and (not names or not all(self._is_whole(group) for group in groups)):
            names = ("offset", *names)
        return await self._reader.rows_of(path, footer, groups, names)

    def _is_whole(self, group: RowGroup) -> bool:
        """Whether all rows of a row group are still to be given out."""
        return group.first_offset >= self.position and group.last_offset < self._range.end_offset

    def _within(self, group: RowGroup, rows: pa.Table) -> pa.Table:
        if self._is_whole(group):
            return rows
        first, last = np.searchsorted(offsets_of(rows), (self.position, self._range.end_offset)).tolist()
        return rows.slice(first, last - first)

    async def _look_again(self, missing: FileMissing) -> Sequence[PlannedFile]:
        """Where the rest of the slice lies now."""
        topic_name, number = self._range.topic, self._range.partition
        async with Broker(self._store) as broker:
            try:
                topic = await broker.topics.get(topic_name, max_age_ms=0)
                partition = topic.partition(number)
            except LakelogError as error:
                gone = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or isinstance(error, UnknownPartition)
                if not gone or self._fail_on_data_loss:
                    raise data_loss(f"{topic_name}-{number} is gone") if gone else error from None
                return ()
            if any(topic.table.path(path) == str(missing) for path in topic.state.live):
                raise storage_error(missing, "a segment that the table names is not there")
            if partition.log_start_offset > self.position and self.position < self._range.end_offset:
                if self._fail_on_data_loss:
                    raise data_loss(
                        f"{topic_name}-{number} begins at offset {partition.log_start_offset} now, "
                        f"and {self.position} was to be read"
                    )
                self.position = min(partition.log_start_offset, self._range.end_offset)
            return files_of(partition.segments, self.position, self._range.end_offset, self._whole.times_us)


def _together(groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
    held: list[RowGroup] = []
    held_bytes = 0
    for group in groups:
        if held and held_bytes + group.bytes > READ_BYTES:
            yield held
            held, held_bytes = [], 0
        held.append(group)
        held_bytes += group.bytes
    if held:
        yield held
