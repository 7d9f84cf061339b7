"""A record batch in: the bytes that a producer sent, as columns.

Where each record begins is only known from the one before, so that much is a loop; all else is read from all records
at once. Keys and values are cut out of the batch by Arrow: a binary column whose elements are in turn a key and what
lies between it and the next one needs no copy, and `take` leaves the keys. Small batches are read into lists by
aiokafka's compiled codec: an array's calls cost the same for few records as for many.
"""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from ingest_api.kafka.records.compression import unpack
from ingest_api.kafka.records.envelope import NO_TIMESTAMP, Envelope, open_batch, plain_header
from ingest_api.kafka.records.varints import Bytes, TooLong, read_varint, read_varints
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.batch import (
    HEADERS,
    RECORD_SCHEMA,
    RECORDS_MAX,
    TIMESTAMP,
    TIMESTAMP_MOST_MS,
    AnyRecords,
    Int64s,
    ListRecords,
    Records,
)

# Up to so many records, lists are the faster way.
FEW_RECORDS = 256
_PARTS = attrgetter("offset", "timestamp", "key", "value", "headers")
# The codec reads numbers without a look at where the batch ends, and looks after them: so far they may go.
_PADDING = bytes(16)
# A record takes 7 bytes at the least: its length, attributes, two deltas, two lengths and the number of headers.
_RECORD_BYTES_LEAST = 7
# Headers are read from all records at once, the first of each, then the second; for the few records that have very many
# of them that would be a pass each.
_HEADER_PASSES = 16


_UNREADABLE = (
    IndexError,
    TooLong,
    UnicodeDecodeError,
    pa.ArrowInvalid,
    CorruptRecordException,
    # Of the codec, for keys and values of lengths that no memory has.
    OverflowError,
    MemoryError,
)


def read_batch(data: memoryview, partition: int, bytes_max: int) -> tuple[Envelope, AnyRecords]:
    """The records of the one batch in `data`, all of them for `partition`; refuses whatever is wrong with it."""
    envelope, packed = open_batch(data)
    body = unpack(packed, envelope.codec, bytes_max)
    if envelope.count > RECORDS_MAX or envelope.count * _RECORD_BYTES_LEAST > len(body):
        raise _corrupt(f"{envelope.count} records in {len(body)} bytes")
    try:
        if envelope.count <= FEW_RECORDS:
            return envelope, _as_lists(body, envelope, partition)
        return envelope, _as_columns(body, envelope, partition)
    except _UNREADABLE as error:
        raise _corrupt(f"its records can't be read: {error or type(error).__name__}") from None


def _corrupt(reason: str) -> LakelogError:
    return LakelogError(ErrorCode.CORRUPT_MESSAGE, f"not a record batch: {reason}")


def _wrong_numbers() -> LakelogError:
    return LakelogError(ErrorCode.INVALID_RECORD, "the records of the batch are not numbered 0, 1, 2 and so on")


# In columns.


def _as_columns(body: bytes | memoryview, envelope: Envelope, partition: int) -> Records:
    starts, ends = _record_bounds(body, envelope.count)
    data: Bytes = np.frombuffer(body, dtype=np.uint8)
    _, at = read_varints(data, starts)  # the attributes, which say nothing yet
    deltas_ms, at = read_varints(data, at)
    offset_deltas, at = read_varints(data, at)
    keys, at = _Spans.read(data, at)
    values, at = _Spans.read(data, at)
    header_counts, at = read_varints(data, at)
    if not np.array_equal(offset_deltas, np.arange(envelope.count)):
        raise _wrong_numbers()
    size_bytes = keys.size_bytes + values.size_bytes
    if header_counts.any():
        headers, header_bytes, at = _headers(body, data, at, header_counts)
        size_bytes += header_bytes
    else:
        headers = pa.nulls(envelope.count, HEADERS)
    # Positions only ever grow, so one that ever left its record is not at the record's end now.
    if not np.array_equal(at, ends):
        raise _corrupt("the parts of a record are not as long as the record")
    columns = [_timestamps(deltas_ms, envelope), keys.column(body), values.column(body), headers]
    return Records(
        pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA),
        size_bytes=size_bytes,
        partitions=np.full(envelope.count, partition, dtype=np.int32),
    )


def _record_bounds(body: bytes | memoryview, count: int) -> tuple[Int64s, Int64s]:
    """Where each record begins after its length, and where it ends. The last one ends with the batch."""
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    for _ in range(count):
        # The lengths of most records take one byte or two.
        raw = body[at]
        at += 1
        if raw >= 0x80:
            byte = body[at]
            if byte < 0x80:
                raw += (byte - 1) << 7
                at += 1
            else:
                length, at = read_varint(body, at - 1)
                raw = length << 1
        starts.append(at)
        at += raw >> 1
        ends.append(at)
        if raw < 0 or raw & 1:  # a negative length
            raise IndexError
    if at != len(body):
        raise _corrupt(f"its records take {at} of {len(body)} bytes")
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


class _Spans:
    """Pieces of the batch in the order in which they stand there; one of a negative length is null."""

    __slots__ = ("ends", "missing", "size_bytes", "starts")

    def __init__(self, starts: Int64s, lengths: Int64s, limit: int) -> None:
        self.missing: npt.NDArray[np.bool_] | None = None
        if int(lengths.min()) < 0:
            self.missing = lengths < 0
            lengths = np.maximum(lengths, 0)
        if int(lengths.max()) > limit:
            raise _corrupt("a length past the end")
        self.starts = starts
        self.ends = starts + lengths
        self.size_bytes = int(lengths.sum())

    @classmethod
    def read(cls, data: Bytes, at: Int64s) -> tuple[_Spans, Int64s]:
        lengths, starts = read_varints(data, at)
        spans = cls(starts, lengths, len(data))
        return spans, spans.ends

    def column(self, body: bytes | memoryview, kind: pa.DataType | None = None) -> pa.Array:
        kind = kind or pa.binary()
        count = len(self.starts)
        if self.missing is not None and self.missing.all():
            return pa.nulls(count, kind)
        edges = np.empty(2 * count, dtype=np.int32)
        edges[0::2], edges[1::2] = self.starts, self.ends
        pieces = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(body)])
        return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=self.missing))


def _timestamps(deltas_ms: Int64s, envelope: Envelope) -> pa.Array:
    times_ms = deltas_ms + envelope.base_timestamp_ms
    if max(abs(int(times_ms.min())), abs(int(times_ms.max()))) >= TIMESTAMP_MOST_MS:
        raise _timestamp_out_of_range()
    return pa.array(times_ms * 1000, mask=times_ms == NO_TIMESTAMP).cast(TIMESTAMP)


def _timestamp_out_of_range() -> LakelogError:
    return LakelogError(ErrorCode.INVALID_TIMESTAMP, "a timestamp is beyond the year 294247")


def _headers(body: bytes | memoryview, data: Bytes, at: Int64s, counts: Int64s) -> tuple[pa.Array, int, Int64s]:
    """The headers of all records, the bytes that they come to, and the positions after them."""
    total = int(counts.clip(0, len(data)).sum())
    if int(counts.min()) < 0 or total > len(data):  # each takes two bytes at the least
        raise _corrupt("a wrong number of headers")
    firsts = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=firsts[1:])
    spans = np.empty((4, total), dtype=np.int64)  # where keys begin, their lengths, and the same of values
    at = at.copy()
    active = np.flatnonzero(counts)
    for turn in range(_HEADER_PASSES):
        if not len(active):
            break
        place = firsts[active] + turn
        for row in (0, 2):
            lengths, begins = read_varints(data, at[active])
            spans[row, place], spans[row + 1, place] = begins, lengths
            if int(lengths.max()) > len(data):
                raise _corrupt("a length past the end")
            at[active] = begins + np.maximum(lengths, 0)
        active = active[counts[active] > turn + 1]
    for record in active.tolist():
        at[record] = _more_headers(
            body, int(at[record]), spans, int(firsts[record]) + _HEADER_PASSES, firsts[record + 1]
        )
    keys, values = _Spans(spans[0], spans[1], len(data)), _Spans(spans[2], spans[3], len(data))
    if keys.missing is not None:
        raise LakelogError(ErrorCode.INVALID_RECORD, "a header has no key")
    if (keys.ends > len(data)).any() or (values.ends > len(data)).any():
        raise _corrupt("a length past the end")
    names = keys.column(body, pa.string())
    names.validate(full=True)  # that they are UTF-8
    entries = pa.StructArray.from_arrays([names, values.column(body)], fields=list(HEADERS.value_type))
    none = pa.array(counts == 0)
    lists = pa.ListArray.from_arrays(pa.array(firsts), entries, type=HEADERS, mask=none)
    return lists, keys.size_bytes + values.size_bytes, at


def _more_headers(body: bytes | memoryview, at: int, spans: Int64s, first: int, end: int) -> int:
    for place in range(first, end):
        for row in (0, 2):
            length, at = read_varint(body, at)
            spans[row, place], spans[row + 1, place] = at, length
            at += max(length, 0)
    return at


# One by one.


def _as_lists(body: bytes | memoryview, envelope: Envelope, partition: int) -> ListRecords:
    batch = memoryview(b"".join((plain_header(envelope, len(body)), body, _PADDING)))
    records = DefaultRecordBatch(batch[: -len(_PADDING)])
    offsets, times_ms, keys, values, headers = zip(*map(_PARTS, records), strict=True)
    if offsets != tuple(range(envelope.count)):
        raise _wrong_numbers()
    size_bytes = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
    some_headers = any(headers)
    if some_headers:
        size_bytes += sum(len(name.encode()) + len(value or b"") for each in headers for name, value in each)
    return ListRecords(
        list(values),
        size_bytes,
        keys=list(keys) if any(key is not None for key in keys) else None,
        headers=[each or None for each in headers] if some_headers else None,
        timestamps_ms=[None if time_ms == NO_TIMESTAMP else time_ms for time_ms in times_ms],
        partitions=[partition] * envelope.count,
    )
