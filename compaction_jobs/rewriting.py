"""One new segment out of several old ones, on whatever machine a Spark task runs: read, leave out, write.

Owns the bytes and nothing of Spark. Rows pass in the order of their offsets and are never changed. However large the
files are, no more than a few row groups are in memory. What is written counts for nothing until somebody commits it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compaction_jobs.throttle import Throttle
from lakelog.clock import Clock, SystemClock
from lakelog.delta.parquet import SegmentFile, timestamp_range_us
from lakelog.delta.reader import SegmentReader, offsets_of
from lakelog.delta.store import Store, open_store
from lakelog.model.batch import STORED_SCHEMA, Int64s
from lakelog.model.segment import segment_path

# Seconds to wait: a test moves its clock instead.
Sleep: TypeAlias = Callable[[float], Awaitable[None]]

# A row is known by its file's number and its place in the file. Files are numbered by offset, so within a partition
# the greater place is the later record.
ROW_BITS = 32
ROW_MASK = (1 << ROW_BITS) - 1


@dataclass(frozen=True, slots=True)
class Access:
    """What a task needs to reach the warehouse, and how fast it may do so; 0 is without a limit."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    bytes_per_second: float = 0.0
    fsync: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    path: str  # inside the warehouse
    bytes: int


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Neighbouring files of one partition that become one. `unique` marks the new file's name as this run's."""

    table: str
    partition: int
    sources: tuple[Source, ...]
    first_file: int  # the number of the first source
    codec: str
    unique: str
    tombstones_go_below: int = 0
    range_ends: tuple[int, ...] = ()  # tombstones are counted by these ranges of offsets


@dataclass(frozen=True, slots=True)
class Written:
    """The new file, as its `add` action is to describe it. Without records there is no file and `path` is empty."""

    path: str = ""
    base_offset: int = 0
    end_offset: int = 0
    records: int = 0
    bytes: int = 0
    min_timestamp_us: int = 0
    max_timestamp_us: int = 0
    tombstones: tuple[int, ...] = ()
    dropped: int = 0  # tombstones that had their time
    error: str | None = None


class Files:
    """Reads segments of a warehouse, row group by row group, no faster than the limit."""

    def __init__(self, access: Access, clock: Clock | None = None, sleep: Sleep = asyncio.sleep) -> None:
        self.store: Store = open_store(access.url, access.options, fsync=access.fsync)
        self._reader = SegmentReader(self.store, None, 0)
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._throttle = Throttle(access.bytes_per_second, self._clock.monotonic_ms())

    async def pay(self, size: int) -> None:
        wait_ms = self._throttle.wait_ms(size, self._clock.monotonic_ms())
        if wait_ms > 0:
            await self._sleep(wait_ms / 1000)

    async def groups(
        self, source: Source, columns: list[str], wants: Wants | None = None
    ) -> AsyncIterator[tuple[int, pa.RecordBatch]]:
        """The row groups of a file, each with the place of its first row. Those of which nothing is wanted are left
        unread.
        """
        footer = await self._reader.footer(source.path, source.bytes)
        first_row = 0
        for group in footer.groups:
            if wants is None or wants.any_before(first_row + group.rows):
                table = await self._reader.uncached_rows(source.path, footer, group, columns)
                await self.pay(sum(end - start for start, end in (group.column_ranges[name] for name in columns)))
                (batch,) = table.combine_chunks().to_batches()
                yield first_row, batch
            first_row += group.rows


class Wants:
    """The rows of one file that are to be kept, out of an ordered stream of the places of all kept rows."""

    def __init__(self, places: Iterator[Int64s]) -> None:
        self._places = places
        self._held: Int64s = np.empty(0, dtype=np.int64)
        self._file = 0

    def of_file(self, file: int) -> Wants:
        self._file = file
        return self

    def any_before(self, row: int) -> bool:
        limit = (self._file << ROW_BITS) + row
        return self._hold_one() and bool(self._held[0] < limit)

    def take_before(self, row: int) -> Int64s:
        """The kept rows of the file before `row`, which are taken off the stream."""
        limit = (self._file << ROW_BITS) + row
        taken: list[Int64s] = []
        while self._hold_one():
            count = int(np.searchsorted(self._held, limit))
            taken.append(self._held[:count])
            self._held = self._held[count:]
            if len(self._held):
                break
        return np.concatenate(taken) & ROW_MASK if taken else np.empty(0, dtype=np.int64)

    def _hold_one(self) -> bool:
        while not len(self._held):
            batch = next(self._places, None)
            if batch is None:
                return False
            self._held = batch
        return True


async def rewrite(files: Files, plan: Rewrite, wants: Wants | None) -> Written:
    """Write the rows that are wanted, or all of them, as one file. Without any there is none."""
    output = _Output(files, plan)
    for number, source in enumerate(plan.sources, start=plan.first_file):
        of_file = wants.of_file(number) if wants is not None else None
        async for first_row, rows in files.groups(source, STORED_SCHEMA.names, of_file):
            if of_file is not None:
                rows = rows.take(pa.array(of_file.take_before(first_row + rows.num_rows) - first_row))
            kept = _without_old_tombstones(rows, plan.tombstones_go_below)
            output.dropped += rows.num_rows - kept.num_rows
            await output.write(kept)
    return output.close()


def _without_old_tombstones(rows: pa.RecordBatch, below: int) -> pa.RecordBatch:
    if rows.column("value").null_count == 0:
        return rows
    return rows.filter(pc.or_(pc.is_valid(rows.column("value")), pc.greater_equal(rows.column("offset"), below)))


class _Output:
    """The file that is written. It is begun with its first record, whose offset it is named by."""

    def __init__(self, files: Files, plan: Rewrite) -> None:
        self._files = files
        self._plan = plan
        self._file: SegmentFile | None = None
        self._path = ""
        self.dropped = 0
        self._base = self._end = self._records = 0
        self._times: list[int] = []
        self._tombstones = np.zeros(len(plan.range_ends), dtype=np.int64)

    async def write(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows == 0:
            return
        offsets = offsets_of(rows)
        if self._file is None:
            plan = self._plan
            self._base = int(offsets[0])
            # Tasks may be tried again: each try has a name of its own.
            self._path = segment_path(plan.partition, self._base, f"{plan.unique}{secrets.token_hex(4)}")
            place = f"{plan.table}/{self._path}"
            self._file = SegmentFile(lambda: self._files.store.writer(place), plan.codec)
        self._file.write(rows)
        await self._files.pay(rows.nbytes)
        self._end = int(offsets[-1]) + 1
        self._records += rows.num_rows
        self._times += timestamp_range_us(rows)
        self._times = [min(self._times), max(self._times)]
        if len(self._tombstones) and rows.column("value").null_count:
            dead = offsets[pc.is_null(rows.column("value")).to_numpy(zero_copy_only=False)]
            ranges = np.searchsorted(self._plan.range_ends, dead, side="right")
            self._tombstones += np.bincount(ranges, minlength=len(self._tombstones))

    def close(self) -> Written:
        if self._file is None:
            return Written(tombstones=tuple(self._tombstones.tolist()), dropped=self.dropped)
        size = self._file.close()
        return Written(
            path=self._path,
            base_offset=self._base,
            end_offset=self._end,
            records=self._records,
            bytes=size,
            min_timestamp_us=self._times[0],
            max_timestamp_us=self._times[1],
            tombstones=tuple(self._tombstones.tolist()),
            dropped=self.dropped,
        )
