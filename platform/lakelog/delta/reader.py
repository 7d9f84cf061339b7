"""Read records out of segments: only the row groups and columns that are asked for, through a bounded cache.

Files never change once they are committed, so what is cached is never wrong, and a footer that was read once is good
for as long as the file is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.delta.store import Store
from lakelog.model.batch import STORED_SCHEMA, Int64s

T = TypeVar("T")

# A row group's rows: the file, the row group in it, and the columns.
RowsKey: TypeAlias = tuple[str, int, tuple[str, ...]]

FOOTER_GUESS_BYTES = 64 * 1024
# What a footer costs in memory, as measured: pyarrow's own account of the file, and of each row group with its columns.
FOOTER_BYTES = 8 * 1024
FOOTER_BYTES_PER_GROUP = 7 * 1024
FOOTERS_BYTES_MAX = 32 * 1024 * 1024
# Nobody reads ahead while so many row groups are being read already.
READINGS_MAX = 16


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Where one row group's records lie: their offsets, and the bytes of each column in the file."""

    index: int
    first_offset: int
    last_offset: int
    rows: int
    bytes: int  # decoded
    min_timestamp_us: int
    max_timestamp_us: int
    column_ranges: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Footer:
    metadata: pq.FileMetaData
    groups: tuple[RowGroup, ...]
    file_bytes: int

    @property
    def held_bytes(self) -> int:
        return FOOTER_BYTES + FOOTER_BYTES_PER_GROUP * len(self.groups)


class SegmentReader:
    """Shared by all topics of a process. Decoding happens in the executor, or in place where there is none."""

    def __init__(
        self,
        store: Store,
        executor: Executor | None,
        cache_bytes_max: int,
        footers_bytes_max: int = FOOTERS_BYTES_MAX,
    ) -> None:
        self._store = store
        self._executor = executor
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._rows: OrderedDict[RowsKey, pa.Table] = OrderedDict()
        self._footer_readings: dict[str, asyncio.Task[Footer]] = {}
        self._readings: dict[RowsKey, asyncio.Task[pa.Table]] = {}
        self._aheads: dict[str, asyncio.Task[None]] = {}
        self._rows_bytes = 0
        self._cache_bytes_max = cache_bytes_max
        self._footers_bytes = 0
        self._footers_bytes_max = footers_bytes_max

    async def footer(self, path: str, file_bytes: int) -> Footer:
        """What a file says of its row groups: read once, however many wait for it."""
        footer = self._footers.get(path)
        if footer is not None:
            self._footers.move_to_end(path)
            return footer
        reading = self._footer_readings.get(path)
        if reading is None:
            reading = asyncio.create_task(self._read_footer(path, file_bytes))
            self._footer_readings[path] = reading
            reading.add_done_callback(lambda done: self._footer_was_read(path, done))
        return await asyncio.shield(reading)

    async def _read_footer(self, path: str, file_bytes: int) -> Footer:
        start = max(0, file_bytes - FOOTER_GUESS_BYTES)
        (tail,) = await self._store.read_ranges(path, [(start, file_bytes)])
        length = int.from_bytes(tail[-8:-4].to_pybytes(), "little") + 8
        if length > tail.size:
            (tail,) = await self._store.read_ranges(path, [(file_bytes - length, file_bytes)])
        return await self._run(lambda: _parse_footer(tail, file_bytes))

    def _footer_was_read(self, path: str, reading: asyncio.Task[Footer]) -> None:
        del self._footer_readings[path]
        if not reading.cancelled() and reading.exception() is None:
            self._remember_footer(path, reading.result())

    def _remember_footer(self, path: str, footer: Footer) -> None:
        self._footers[path] = footer
        self._footers_bytes += footer.held_bytes
        while self._footers_bytes > self._footers_bytes_max and self._footers:
            _, oldest = self._footers.popitem(last=False)
            self._footers_bytes -= oldest.held_bytes

    def read_ahead(self, path: str, file_bytes: int, columns: Sequence[str], bytes_wanted: int) -> None:
        """Begin to read the first row groups of a file that a reader will come to next, as far as there is room."""
        if path not in self._aheads and len(self._readings) + len(self._aheads) < READINGS_MAX:
            ahead = asyncio.create_task(self._read_ahead(path, file_bytes, tuple(columns), bytes_wanted))
            self._aheads[path] = ahead
            ahead.add_done_callback(lambda done: self._went_ahead(path, done))

    async def _read_ahead(self, path: str, file_bytes: int, names: tuple[str, ...], bytes_wanted: int) -> None:
        footer = await self.footer(path, file_bytes)
        for group in footer.groups[: enough_for(footer.groups, bytes_wanted)]:
            if len(self._readings) < READINGS_MAX:
                self._rows_or_reading(path, footer, group, names)

    def _went_ahead(self, path: str, ahead: asyncio.Task[None]) -> None:
        del self._aheads[path]
        if not ahead.cancelled():
            ahead.exception()  # for the one who comes to that file, if anybody does

    async def rows(self, path: str, footer: Footer, group: RowGroup, columns: Sequence[str]) -> pa.Table:
        """The rows of one row group, from the cache if it has them."""
        return (await self.rows_of(path, footer, [group], columns))[0]

    async def rows_of(
        self,
        path: str,
        footer: Footer,
        groups: Sequence[RowGroup],
        columns: Sequence[str],
        ahead: Sequence[RowGroup] = (),
    ) -> list[pa.Table]:
        """The rows of several row groups, read side by side where they are not cached.

        `ahead` are those that a reader who goes on will ask for next: to read them is begun too.
        """
        names = tuple(columns)
        pending = [self._rows_or_reading(path, footer, group, names) for group in groups]
        for group in ahead:
            if len(self._readings) < READINGS_MAX:
                self._rows_or_reading(path, footer, group, names)
        # Shielded: others may wait for the same rows.
        return [table if isinstance(table, pa.Table) else await asyncio.shield(table) for table in pending]

    async def uncached_rows(self, path: str, footer: Footer, group: RowGroup, columns: Sequence[str]) -> pa.Table:
        """For those who read a whole file once: they shall not push out what readers come back to."""
        return await self._read(path, footer, group, tuple(columns))

    def _rows_or_reading(
        self, path: str, footer: Footer, group: RowGroup, names: tuple[str, ...]
    ) -> pa.Table | asyncio.Task[pa.Table]:
        """The rows if they are cached, else the one read of them that is under way, however many wait for it."""
        key = (path, group.index, names)
        table = self._rows.get(key)
        if table is not None:
            return table
        reading = self._readings.get(key)
        if reading is None:
            reading = asyncio.create_task(self._read(path, footer, group, names))
            self._readings[key] = reading
            reading.add_done_callback(lambda done: self._was_read(key, done))
        return reading

    def _was_read(self, key: RowsKey, reading: asyncio.Task[pa.Table]) -> None:
        del self._readings[key]
        # An error is for those who wait; where nobody does, the next one who asks will meet it.
        if not reading.cancelled() and reading.exception() is None:
            self._remember(key, reading.result())

    async def _read(self, path: str, footer: Footer, group: RowGroup, names: tuple[str, ...]) -> pa.Table:
        ranges = [group.column_ranges[name] for name in names]
        buffers = await self._store.read_ranges(path, ranges)
        pieces = {start: buffer for (start, _), buffer in zip(ranges, buffers, strict=True)}
        sparse = SparseFile(footer.file_bytes, pieces)
        return await self._run(lambda: _decode(sparse, footer, group, names))

    def _remember(self, key: RowsKey, table: pa.Table) -> None:
        self._rows[key] = table
        self._rows_bytes += table.nbytes
        while self._rows_bytes > self._cache_bytes_max and self._rows:
            _, oldest = self._rows.popitem(last=False)
            self._rows_bytes -= oldest.nbytes

    async def _run(self, work: Callable[[], T]) -> T:
        if self._executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def enough_for(groups: Sequence[RowGroup], bytes_wanted: int) -> int:
    """How many row groups probably hold what is wanted: these are read together."""
    expected = 0
    for count, group in enumerate(groups):
        if count and expected >= bytes_wanted:
            return count
        expected += group.bytes
    return len(groups)


class SparseFile:
    """A file of which only some ranges were fetched, for pyarrow to read from. Asking for another byte is a bug."""

    closed = False

    def __init__(self, size: int, pieces: dict[int, pa.Buffer]) -> None:
        self._size = size
        self._starts = sorted(pieces)
        self._pieces = pieces
        self._position = 0

    def read_buffer(self, count: int = -1) -> pa.Buffer:
        start = self._starts[int(np.searchsorted(self._starts, self._position, side="right")) - 1]
        begin = self._position - start
        piece = self._pieces[start]
        if begin + count > piece.size:
            raise EOFError(f"bytes {self._position} to {self._position + count} were not fetched")
        self._position += count
        return piece.slice(begin, count)

    def read(self, count: int = -1) -> bytes:
        return self.read_buffer(count).to_pybytes()  # type: ignore[no-any-return]

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self._pieces = {}


def _parse_footer(tail: pa.Buffer, file_bytes: int) -> Footer:
    file = SparseFile(file_bytes, {file_bytes - tail.size: tail})
    metadata = pq.read_metadata(pa.PythonFile(file, mode="r"))
    return Footer(metadata, tuple(_row_group(metadata, i) for i in range(metadata.num_row_groups)), file_bytes)


def _row_group(metadata: pq.FileMetaData, index: int) -> RowGroup:
    group = metadata.row_group(index)
    ranges: dict[str, tuple[int, int]] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        start = column.data_page_offset
        if column.dictionary_page_offset is not None:
            start = min(start, column.dictionary_page_offset)
        end = start + column.total_compressed_size
        name = column.path_in_schema.split(".", 1)[0]
        if name in ranges:  # headers are two columns of the file
            start, end = min(start, ranges[name][0]), max(end, ranges[name][1])
        ranges[name] = (start, end)
        if name == "offset":
            offsets = column.statistics
        elif name == "timestamp":
            times = column.statistics
    return RowGroup(
        index,
        offsets.min_raw,
        offsets.max_raw,
        group.num_rows,
        group.total_byte_size,
        times.min_raw,
        times.max_raw,
        ranges,
    )


def _decode(sparse: SparseFile, footer: Footer, group: RowGroup, names: tuple[str, ...]) -> pa.Table:
    file = pq.ParquetFile(pa.PythonFile(sparse, mode="r"), metadata=footer.metadata, pre_buffer=False)
    schema = pa.schema([STORED_SCHEMA.field(name) for name in names])
    table = file.read_row_group(group.index, columns=list(names), use_threads=False).select(list(names))
    return table if table.schema.equals(schema) else table.cast(schema)


def offsets_of(rows: pa.Table | pa.RecordBatch) -> Int64s:
    column = rows.column("offset")
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
