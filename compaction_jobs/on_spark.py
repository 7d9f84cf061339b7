"""The Spark side of the jobs: which rows survive, and new files out of old ones, over the whole cluster.

Keys pass a shuffle once; values pass none. A task reads keys with their places, Spark finds the last place of every
key, and the places of survivors go, sorted, to the task that reads the old files once more and writes the new one. So
the size of a partition is a matter of time and of Spark's disks, and not of anybody's memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from compaction_jobs.rewriting import ROW_BITS, Access, Files, Rewrite, Source, Wants, Written, rewrite
from lakelog.model.batch import Int64s

# How many bytes of files one task reads keys from, and how many of them one task of the shuffle is given.
CHUNK_BYTES = 64 * 1024 * 1024

_KEYS = pa.schema([("unit", pa.int32()), ("key", pa.binary()), ("place", pa.int64())])
_KEYS_SQL = "unit int, key binary, place long"
_WRITTEN = pa.schema(
    [
        ("number", pa.int32()),
        ("path", pa.string()),
        ("base_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("min_timestamp_us", pa.int64()),
        ("max_timestamp_us", pa.int64()),
        ("tombstones", pa.list_(pa.int64())),
        ("dropped", pa.int64()),
        ("error", pa.string()),
    ]
)
_WRITTEN_SQL = (
    "number int, path string, base_offset long, end_offset long, records long, bytes long, "
    "min_timestamp_us long, max_timestamp_us long, tombstones array<long>, dropped long, error string"
)
Batches: TypeAlias = Iterator[pa.RecordBatch]
Task: TypeAlias = Callable[[Batches], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file whose keys are to be read. Keys of different units, which are partitions, have nothing to do with each
    other. Records below `log_start` are none any more.
    """

    number: int
    unit: int
    source: Source
    log_start: int


class Survivors:
    """The places of the last record of every key. Found once and kept on Spark's disks until closed."""

    def __init__(self, session: SparkSession, access: Access, files: Sequence[KeyFile]) -> None:
        chunks = list(_chunks(files))
        # As many tasks for the shuffle as for the reading, so that each has its fill however much there is.
        self._session = session.newSession()
        self._session.conf.set("spark.sql.shuffle.partitions", str(max(len(chunks), tasks_at_once(session))))
        ids = self._session.range(0, len(chunks), 1, len(chunks))
        keys = ids.mapInArrow(_key_reader(access, chunks), _KEYS_SQL)
        last = keys.groupBy("unit", "key").agg(F.max("place").alias("place"))
        self._places = last.select("place").persist(StorageLevel.DISK_ONLY)

    def close(self) -> None:
        self._places.unpersist()

    def counts(self) -> dict[int, int]:
        """How many records of each file survive, by its number. Files of which none does are not there."""
        counted = self._places.groupBy(self._file().alias("file")).count().collect()
        return {row["file"]: row["count"] for row in counted}

    def write(self, access: Access, rewrites: Sequence[Rewrite]) -> list[Written]:
        """The survivors of each rewrite's files in a file of its own."""
        numbers = [
            (plan.first_file + position, number)
            for number, plan in enumerate(rewrites)
            for position in range(len(plan.sources))
        ]
        by_file = F.broadcast(self._session.createDataFrame(numbers, "file long, number int"))
        places = (
            self._places.withColumn("file", self._file())
            .join(by_file, "file")
            .select("number", "place")
            .repartitionById(len(rewrites), "number")
            .sortWithinPartitions("place")
        )
        return _collect(places.mapInArrow(_survivor_writer(access, rewrites), _WRITTEN_SQL), len(rewrites))

    def _file(self) -> Column:
        return F.shiftright("place", ROW_BITS)


def write_all(session: SparkSession, access: Access, rewrites: Sequence[Rewrite]) -> list[Written]:
    """Every record of each rewrite's files in a file of its own."""
    numbers = session.range(0, len(rewrites), 1, len(rewrites))
    return _collect(numbers.mapInArrow(_whole_writer(access, rewrites), _WRITTEN_SQL), len(rewrites))


def tasks_at_once(session: SparkSession) -> int:
    return session.sparkContext.defaultParallelism


def _chunks(files: Sequence[KeyFile]) -> Iterator[list[KeyFile]]:
    chunk: list[KeyFile] = []
    size = 0
    for file in files:
        if chunk and size + file.source.bytes > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += file.source.bytes
    if chunk:
        yield chunk


# -- what runs in the tasks ------------------------------------------------------------------------------------


def _key_reader(access: Access, chunks: Sequence[Sequence[KeyFile]]) -> Task:
    async def keys_of(files: Files, chunk: Sequence[KeyFile]) -> AsyncIterator[pa.RecordBatch]:
        for file in chunk:
            async for first_row, rows in files.groups(file.source, ["offset", "key"]):
                first_place = (file.number << ROW_BITS) + first_row
                places = pa.array(np.arange(first_place, first_place + rows.num_rows, dtype=np.int64))
                units = pa.array(np.full(rows.num_rows, file.unit, dtype=np.int32))
                batch = pa.RecordBatch.from_arrays([units, rows.column("key"), places], schema=_KEYS)
                # As in Kafka, a record without a key has no place in a compacted log.
                served = pc.greater_equal(rows.column("offset"), file.log_start)
                yield batch.filter(pc.and_(pc.is_valid(rows.column("key")), served))

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        files = Files(access)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _driven(keys_of(files, chunks[number]))

    return task


def _survivor_writer(access: Access, rewrites: Sequence[Rewrite]) -> Task:
    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        number = first.column(0)[0].as_py()  # a task has the places of one rewrite

        def places() -> Iterator[Int64s]:
            yield np.asarray(first.column(1))
            for batch in batches:
                yield np.asarray(batch.column(1))

        yield _attempt(access, number, rewrites[number], Wants(places()))

    return task


def _whole_writer(access: Access, rewrites: Sequence[Rewrite]) -> Task:
    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _attempt(access, number, rewrites[number], None)

    return task


def _attempt(access: Access, number: int, plan: Rewrite, wants: Wants | None) -> pa.RecordBatch:
    """A failure is an answer, too: it must not take the other partitions of the job with it."""
    try:
        written = asyncio.run(rewrite(Files(access), plan, wants))
    except Exception as error:
        written = Written(error=f"{type(error).__name__}: {error}")
    return pa.RecordBatch.from_pylist([{"number": number, **asdict(written)}], schema=_WRITTEN)


def _driven(batches: AsyncIterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """An asynchronous stream, for those who can't await."""

    async def following() -> pa.RecordBatch | None:
        return await anext(batches, None)

    with asyncio.Runner() as runner:
        while (batch := runner.run(following())) is not None:
            yield batch


def _collect(answers: DataFrame, count: int) -> list[Written]:
    """One per rewrite, in their order. A rewrite without an answer had nothing to write."""
    written = [Written()] * count
    for row in answers.collect():
        found = row.asDict()
        number = found.pop("number")
        written[number] = Written(**{**found, "tombstones": tuple(found["tombstones"] or ())})
    return written
