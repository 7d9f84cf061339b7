"""A record batch in: the bytes that a producer sent, as columns.

Where each record begins is only known from the one before, so that much is a loop; all else is read from all records
at once. Keys and values are cut out of the batch by Arrow: a binary column whose elements are in turn a key and what
lies between it and the next one needs no copy, and `take` leaves the keys. Small batches are read into lists by
aiokafka's compiled codec: an array's calls cost the same for few records as for many.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from ingest_api.kafka.records.compression import Body, unpacking
from ingest_api.kafka.records.envelope import NO_TIMESTAMP, Envelope, is_compressed, open_batch, plain_header
from ingest_api.kafka.records.varints import Bytes, TooLong, read_varint, read_varints
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.batch import (
    HEADERS,
    RECORD_OVERHEAD_BYTES,
    RECORD_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_MOST_MS,
    AnyRecords,
    Int64s,
    ListRecords,
    Records,
)

# Up to so many records, lists are the faster way. The codec holds the interpreter's lock for a whole record, however
# many headers it has: what may take long goes the other way.
FEW_RECORDS = 256
FEW_BYTES = 128 * 1024
# What is read from all records at once takes ten times what it comes to in the end, so not from more than these.
CHUNK_RECORDS = 16 * 1024
# The codec reads numbers without a look at where the batch ends, and looks after them: so far they may go.
_PADDING = bytes(16)
# A record takes 7 bytes at the least: its length, attributes, two deltas, two lengths and the number of headers.
_RECORD_BYTES_LEAST = 7
# Headers are read from all records at once, the first of each, then the second; for the few records that have very many
# of them that would be a pass each.
_HEADER_PASSES = 16
# A compressed batch is unpacked into so much at first, or into so many times its bytes.
_FIRST_BYTES = 64 * 1024
_FIRST_TIMES = 8


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


@dataclass(frozen=True, slots=True)
class Limits:
    """What is taken in one batch: its bytes once they are unpacked, and its records, and their headers."""

    bytes_max: int
    records_max: int


Read: TypeAlias = tuple[Envelope, AnyRecords]


class Reading:
    """The reading of the one batch in `data`, all of it for `partition`. It refuses whatever is wrong with it.

    A few bytes may stand for very many, and that shows only while they are read. So it goes on as far as there is room:
    `wants` is how many bytes it will hold beside `data` at the end of its next step.
    """

    def __init__(self, data: memoryview, partition: int, limits: Limits) -> None:
        self._steps = _reading(data, partition, limits)
        self.wants = next(self._steps)

    def go_on(self, room: int) -> Read | None:
        """The records, or None if it takes more room to go on."""
        try:
            while self.wants <= room:
                self.wants = next(self._steps)
        except StopIteration as done:
            read: Read = done.value
            return read
        return None


def _reading(data: memoryview, partition: int, limits: Limits) -> Generator[int, None, Read]:
    first, unpacked = 2 * len(data), 0
    if is_compressed(data):
        first = min(max(_FIRST_BYTES, _FIRST_TIMES * len(data)), limits.bytes_max + 1)
    yield first
    envelope, packed = open_batch(data)
    body = yield from unpacking(packed, envelope.codec, limits.bytes_max, first)
    if envelope.count * _RECORD_BYTES_LEAST > len(body):
        raise _corrupt(f"{envelope.count} records in {len(body)} bytes")
    _check_count(envelope.count, "records", limits)
    if body is not packed:
        unpacked = len(body)
    copies = 1 if envelope.count <= CHUNK_RECORDS else 2  # the records, and the chunks that they are put together of
    yield unpacked + copies * len(body) + RECORD_OVERHEAD_BYTES * envelope.count
    try:
        if envelope.count <= FEW_RECORDS and len(body) <= FEW_BYTES:
            return envelope, _as_lists(body, envelope, partition, limits)
        return envelope, _as_columns(body, envelope, partition, limits)
    except _UNREADABLE as error:
        raise _corrupt(f"its records can't be read: {error or type(error).__name__}") from None


def _check_count(count: int, things: str, limits: Limits) -> None:
    if count > limits.records_max:
        raise LakelogError(
            ErrorCode.MESSAGE_TOO_LARGE, f"{count} {things} in a batch; request_records_max is {limits.records_max}"
        )


def _corrupt(reason: str) -> LakelogError:
    return LakelogError(ErrorCode.CORRUPT_MESSAGE, f"not a record batch: {reason}")


def _wrong_numbers() -> LakelogError:
    return LakelogError(ErrorCode.INVALID_RECORD, "the records of the batch are not numbered 0, 1, 2 and so on")


# In columns.


def _as_columns(body: Body, envelope: Envelope, partition: int, limits: Limits) -> Records:
    data: Bytes = np.frombuffer(body, dtype=np.uint8)
    chunks: list[pa.RecordBatch] = []
    at, size_bytes, header_count = 0, 0, 0
    for first in range(0, envelope.count, CHUNK_RECORDS):
        starts, ends = _record_bounds(body, at, min(CHUNK_RECORDS, envelope.count - first))
        parts = _Parts(data, starts)
        if not np.array_equal(parts.offset_deltas, np.arange(first, first + len(starts))):
            raise _wrong_numbers()
        header_count += parts.count_headers(len(data))
        _check_count(header_count, "headers", limits)
        headers, header_bytes, after = _headers(body, data, parts.at, parts.header_counts)
        # Positions only ever grow, so one that ever left its record is not at the record's end now.
        if not np.array_equal(after, ends):
            raise _corrupt("the parts of a record are not as long as the record")
        columns = [_timestamps(parts.deltas_ms, envelope), parts.keys.column(body), parts.values.column(body), headers]
        chunks.append(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA))
        size_bytes += parts.keys.size_bytes + parts.values.size_bytes + header_bytes
        at = int(ends[-1])
    if at != len(body):
        raise _corrupt(f"its records take {at} of {len(body)} bytes")
    return Records(
        chunks[0] if len(chunks) == 1 else pa.concat_batches(chunks),
        size_bytes=size_bytes,
        partitions=np.full(envelope.count, partition, dtype=np.int32),
    )


class _Parts:
    """The parts of records up to their headers, which begin at `at`."""

    __slots__ = ("at", "deltas_ms", "header_counts", "keys", "offset_deltas", "values")

    def __init__(self, data: Bytes, starts: Int64s) -> None:
        _, at = read_varints(data, starts)  # the attributes, which say nothing yet
        self.deltas_ms, at = read_varints(data, at)
        self.offset_deltas, at = read_varints(data, at)
        self.keys, at = _Spans.read(data, at)
        self.values, at = _Spans.read(data, at)
        self.header_counts, self.at = read_varints(data, at)

    def count_headers(self, most: int) -> int:
        """How many there are in all, if there can be so many: each takes two bytes at the least."""
        total = int(self.header_counts.clip(0, most).sum())
        if int(self.header_counts.min()) < 0 or total > most:
            raise _corrupt("a wrong number of headers")
        return total


def _record_bounds(body: Body, at: int, count: int) -> tuple[Int64s, Int64s]:
    """Where each of the next records begins after its length, and where it ends."""
    starts: list[int] = []
    ends: list[int] = []
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

    def column(self, body: Body, kind: pa.DataType | None = None) -> pa.Array:
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


def _headers(body: Body, data: Bytes, at: Int64s, counts: Int64s) -> tuple[pa.Array, int, Int64s]:
    """The headers of all records, the bytes that they come to, and the positions after them."""
    total = int(counts.sum())
    if not total:
        return pa.nulls(len(counts), HEADERS), 0, at
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


def _more_headers(body: Body, at: int, spans: Int64s, first: int, end: int) -> int:
    for place in range(first, end):
        for row in (0, 2):
            length, at = read_varint(body, at)
            spans[row, place], spans[row + 1, place] = at, length
            at += max(length, 0)
    return at


# One by one.


def _as_lists(body: Body, envelope: Envelope, partition: int, limits: Limits) -> ListRecords:
    count = envelope.count
    batch = memoryview(b"".join((plain_header(envelope, len(body)), body, _PADDING)))
    records = list(DefaultRecordBatch(batch[: -len(_PADDING)]))
    if [each.offset for each in records] != list(range(count)):
        raise _wrong_numbers()
    # Most often nobody has a key or headers, and everybody has a time: that is seen without a look at each.
    values, keys, headers = (
        [each.value for each in records],
        [each.key for each in records],
        [each.headers for each in records],
    )
    size_bytes = sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys)))
    some_headers = any(headers)
    if some_headers:
        _check_count(sum(map(len, headers)), "headers", limits)
        size_bytes += sum(len(name.encode()) + len(value or b"") for each in headers for name, value in each)
    times_ms: list[int | None] = [each.timestamp for each in records]
    if NO_TIMESTAMP in times_ms:
        times_ms = [None if time_ms == NO_TIMESTAMP else time_ms for time_ms in times_ms]
    return ListRecords(
        values,
        size_bytes,
        keys=None if keys[0] is None and keys.count(None) == count else keys,
        headers=[each or None for each in headers] if some_headers else None,
        timestamps_ms=times_ms,
        partitions=[partition] * count,
    )
