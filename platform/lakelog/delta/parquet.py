"""Segments as Parquet: how rows are laid out in a file, and how a file is cut into row groups.

Owns the encoding and nothing else. Row groups are small (ROW_GROUP_BYTES) and carry the range of their offsets, so an
old record is found by reading one of them and not the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.delta.store import FileWriter
from lakelog.model.batch import RECORD_OVERHEAD_BYTES, STORED_SCHEMA, microseconds, payload_bytes

ROW_GROUP_BYTES = 2 * 1024 * 1024

# What "producer" stands for: the tail is written fast as it arrives, what merges write is there to stay.
TAIL_CODEC = "lz4"
MERGED_CODEC = "zstd"


def codec_for(compression_type: str, *, merged: bool) -> str:
    if compression_type == "producer":
        return MERGED_CODEC if merged else TAIL_CODEC
    return "none" if compression_type == "uncompressed" else compression_type


def encode_segment(rows: pa.RecordBatch, codec: str) -> pa.Buffer:
    """One file of rows that are in memory. It is encoded without the interpreter's lock, so a thread can do it well."""
    sink = pa.BufferOutputStream()
    with _writer(sink, codec) as writer:
        writer.write_batch(rows, row_group_size=rows_per_group(rows))
    return sink.getvalue()


class SegmentFile:
    """One file of rows that come piece by piece, however many: no more than a row group is held in memory.

    It is opened when there is something to write, so only `flush` and `close` wait for the store.
    """

    def __init__(self, open_writer: Callable[[], FileWriter], codec: str) -> None:
        self._open_writer = open_writer
        self._codec = codec
        self._opened: tuple[_CountingSink, pq.ParquetWriter] | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def hold(self, rows: pa.RecordBatch) -> bool:
        """Take rows in. True when they are enough for a row group, and it is time to flush."""
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        return self._held_bytes >= ROW_GROUP_BYTES

    def write(self, rows: pa.RecordBatch) -> None:
        if self.hold(rows):
            self.flush()

    def flush(self) -> None:
        rows = pa.Table.from_batches(self._held, schema=STORED_SCHEMA)
        _, parquet = self._open()
        parquet.write_table(rows, row_group_size=rows_per_group(rows))
        self._held, self._held_bytes = [], 0

    def close(self) -> int:
        """Finish the file, which appears with this, and return its size."""
        if self._held:
            self.flush()
        sink, parquet = self._open()
        parquet.close()
        sink.finish()
        return sink.written

    def _open(self) -> tuple[_CountingSink, pq.ParquetWriter]:
        if self._opened is None:
            sink = _CountingSink(self._open_writer())
            self._opened = sink, _writer(pa.PythonFile(sink, mode="w"), self._codec)
        return self._opened


class _CountingSink:
    """A store's writer as the file that pyarrow expects, which may close it: the store's file closes with `finish`."""

    closed = False

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self.written = 0

    def write(self, data: Any) -> int:
        # Copied, because pyarrow uses its buffer again as soon as this returns.
        piece = bytes(data)
        self._writer.write(piece)
        self.written += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def finish(self) -> None:
        self._writer.close()


def _writer(sink: Any, codec: str) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        STORED_SCHEMA,
        compression=codec,
        use_dictionary=False,  # keys and values rarely repeat, and building one costs more than writing
        write_statistics=["offset", "timestamp"],
        store_schema=False,
    )


def rows_per_group(rows: pa.RecordBatch | pa.Table) -> int:
    """Row groups of about the same size, so that none is left with a few rows at the end."""
    size = payload_bytes(rows) + RECORD_OVERHEAD_BYTES * rows.num_rows
    groups = max(1, min(rows.num_rows, round(size / ROW_GROUP_BYTES)))
    return -(-rows.num_rows // groups) or 1


def timestamp_range_us(rows: pa.RecordBatch) -> tuple[int, int]:
    times_us = microseconds(rows.column("timestamp"))
    return int(times_us.min()), int(times_us.max())
