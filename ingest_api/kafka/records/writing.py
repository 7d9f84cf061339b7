"""Records out: columns of the log as the record batches of a fetch.

The numbers of all records are written at once, as binary columns of a few bytes each; Arrow then puts them and the
keys and values together row by row. The bytes of that one column, end to end, are the records of the batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest_api.kafka.records.compression import pack
from ingest_api.kafka.records.envelope import NO_TIMESTAMP, seal_batch
from ingest_api.kafka.records.varints import VarintRows, widths, zigzag
from lakelog.fetch import Fetched
from lakelog.model.batch import Int64s

# A client takes a batch whole: a long fetch is cut into several.
BATCH_RECORDS_MAX = 64 * 1024
DELTA_MOST = 2**31 - 1
_EMPTY = pa.scalar(b"", pa.binary())


def write_batches(fetched: Fetched, codec: int = 0) -> list[bytes | memoryview]:
    """The pieces of the batches, to be sent one after the other. They lead the reader on to `next_offset`."""
    rows = fetched.rows
    offsets: Int64s = _one(rows.column("offset")).to_numpy()
    pieces: list[bytes | memoryview] = []
    start, count = 0, len(offsets)
    while start < count:
        base_offset = int(offsets[start])
        # A batch counts its offsets from the first in 32 bits. Compaction may leave more than that between two records.
        end = min(start + BATCH_RECORDS_MAX, int(np.searchsorted(offsets, base_offset + DELTA_MOST, side="right")))
        part = rows.slice(start, end - start) if end - start < count else rows
        # As Kafka's own compaction does, the last one goes on to the end of a gap behind it.
        last_offset = int(offsets[end - 1]) if end < count else _last(base_offset, fetched.next_offset)
        pieces += _write_batch(part, offsets[start:end], last_offset, codec)
        start = end
    return pieces


def write_gap(first_offset: int, next_offset: int) -> list[bytes | memoryview]:
    """A batch of no records in the place of those that compaction has removed: it leads the reader past them, or as far
    as a batch reaches.
    """
    return seal_batch(
        b"",
        base_offset=first_offset,
        last_offset=_last(first_offset, next_offset),
        count=0,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


def _last(base_offset: int, next_offset: int) -> int:
    return min(next_offset - 1, base_offset + DELTA_MOST)


def _write_batch(rows: pa.Table, offsets: Int64s, last_offset: int, codec: int) -> list[bytes | memoryview]:
    times_ms: Int64s = _one(rows.column("timestamp")).cast(pa.int64()).to_numpy() // 1000
    records = _records(rows, times_ms - times_ms[0], offsets - offsets[0])
    return seal_batch(
        pack(records, codec),
        base_offset=int(offsets[0]),
        last_offset=last_offset,
        count=len(offsets),
        base_timestamp_ms=int(times_ms[0]),
        max_timestamp_ms=int(times_ms.max()),
        codec=codec,
    )


def _records(rows: pa.Table, deltas_ms: Int64s, offset_deltas: Int64s) -> memoryview:
    keys, values, headers = (_one(rows.column(name)) for name in ("key", "value", "headers"))
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    key_zigzags, value_zigzags = zigzag(key_lengths), zigzag(value_lengths)
    key_width, value_width = widths(key_zigzags), widths(value_zigzags)
    time_zigzags, offset_zigzags = zigzag(deltas_ms), zigzag(offset_deltas)
    time_width, offset_width = widths(time_zigzags), widths(offset_zigzags)
    tails = _header_rows(headers)
    sizes = time_width + offset_width + key_width + value_width + 1
    sizes = (
        sizes + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + (1 if tails is None else _lengths(tails))
    )
    size_zigzags = zigzag(sizes.astype(np.int64))
    size_width = widths(size_zigzags)

    heads = VarintRows(size_width + 1 + time_width + offset_width + key_width)
    heads.varint(size_zigzags, size_width)
    heads.byte(0)  # attributes
    heads.varint(time_zigzags, time_width)
    heads.varint(offset_zigzags, offset_width)
    heads.varint(key_zigzags, key_width)
    middles = VarintRows(value_width)
    middles.varint(value_zigzags, value_width)

    columns = [heads.column()]
    if keys.null_count < len(keys):
        columns.append(keys.fill_null(b"") if keys.null_count else keys)
    columns.append(middles.column())
    if values.null_count < len(values):
        columns.append(values.fill_null(b"") if values.null_count else values)
    columns.append(pa.scalar(b"\x00", pa.binary()) if tails is None else tails)
    return _bytes_of(pc.binary_join_element_wise(*columns, _EMPTY))


def _header_rows(headers: pa.Array) -> pa.Array | None:
    """For each record the number of its headers and the headers themselves; None if no record has any."""
    if headers.null_count == len(headers):
        return None
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    count_zigzags = zigzag(counts)
    count_rows = VarintRows(widths(count_zigzags))
    count_rows.varint(count_zigzags, widths(count_zigzags))
    entries = headers.flatten()
    names, values = entries.field("key").cast(pa.binary()), entries.field("value")
    pieces = []
    for column in (names, values):
        zigzags = zigzag(_lengths(column))
        lengths = VarintRows(widths(zigzags))
        lengths.varint(zigzags, widths(zigzags))
        pieces += [lengths.column(), column.fill_null(b"")]
    flat = pc.binary_join_element_wise(*pieces, _EMPTY)
    # The entries of a record lie side by side: what they come to is cut at the records' own bounds.
    edges = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=edges[1:])
    flat_offsets = np.frombuffer(flat.buffers()[1], dtype=np.int32)[flat.offset : flat.offset + len(flat) + 1]
    own = pa.Array.from_buffers(
        pa.binary(), len(counts), [None, pa.py_buffer(flat_offsets[edges].copy()), flat.buffers()[2]]
    )
    return pc.binary_join_element_wise(count_rows.column(), own, _EMPTY)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _lengths(column: pa.Array) -> Int64s:
    """-1 for null."""
    if column.null_count == len(column):
        return np.full(len(column), -1, dtype=np.int64)
    lengths: Int64s = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _bytes_of(column: pa.Array) -> memoryview:
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[len(column)])]
