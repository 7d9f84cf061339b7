"""Records as columns: what an append brings and what a fetch gives.

Owns the Arrow schema of records, before and after they have a place in the log, and the checks on their shape. Records
come in as Arrow, which is never touched one by one, or as Python lists, which small requests are cheaper in: `combine`
makes one Arrow batch of many requests at once. How records get their places must not be known here, nor what a topic's
configuration says of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import ErrorCode, LakelogError, UnknownPartition

Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
# What a record is before it has a place in the log, and after.
RECORD_SCHEMA = pa.schema(
    [("timestamp", TIMESTAMP), ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)]
)
STORED_SCHEMA = pa.schema([pa.field("offset", pa.int64(), nullable=False), *RECORD_SCHEMA])

# What a record costs beside its key, value and headers, in a reply and on its way in: its offset and its timestamp.
RECORD_OVERHEAD_BYTES = 16
# Of one request. How many bytes it may have is for the door to say.
RECORDS_MAX = 10_000_000
# What may lie unused under a batch however small it is, as its columns are rounded up.
SPARE_BYTES = 1024
NO_PARTITION = -1
PARTITION_MOST = 2**31 - 1
TIMESTAMP_MOST_MS = 2**63 // 1000  # in microseconds it is 64 bits long

_COLUMNS = frozenset({"timestamp", "key", "value", "headers", "partition"})


@dataclass(frozen=True, slots=True)
class Records:
    """Records in Arrow, of RECORD_SCHEMA; `partitions` says where each belongs, NO_PARTITION where it may be chosen."""

    batch: pa.RecordBatch
    size_bytes: int
    partitions: Int32s | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)


@dataclass(frozen=True, slots=True)
class ListRecords:
    """The same as Python lists, all of one length; a column that is None is null throughout."""

    values: list[bytes | None]
    size_bytes: int
    keys: list[bytes | None] | None = None
    headers: list[Sequence[tuple[str, bytes | None]] | None] | None = None
    timestamps_ms: list[int | None] | None = None
    partitions: list[int] | None = None

    def check(self) -> None:
        """Refuse numbers that no column holds, before the request meets others: `combine` would refuse them all."""
        if self.partitions and not NO_PARTITION <= min(self.partitions) <= max(self.partitions) <= PARTITION_MOST:
            raise UnknownPartition("a partition number is out of range")
        times = [each for each in self.timestamps_ms if each is not None] if self.timestamps_ms else ()
        if times and not -TIMESTAMP_MOST_MS <= min(times) <= max(times) < TIMESTAMP_MOST_MS:
            raise LakelogError(ErrorCode.INVALID_TIMESTAMP, "a timestamp is beyond the year 294247")

    def __len__(self) -> int:
        return len(self.values)


AnyRecords: TypeAlias = Records | ListRecords


def from_arrow(data: pa.RecordBatch | pa.Table) -> Records:
    """Check an Arrow batch's columns and bring them to RECORD_SCHEMA. Nothing is copied where types agree and the batch
    takes up about as much memory as its records need.
    """
    unknown = [name for name in data.schema.names if name not in _COLUMNS]
    if unknown:
        raise _wrong_shape(f"unknown column {unknown[0]!r}; known are {', '.join(sorted(_COLUMNS))}")
    if len(set(data.schema.names)) != len(data.schema.names):
        raise _wrong_shape("a column is there twice")
    if "key" not in data.schema.names and "value" not in data.schema.names:
        raise _wrong_shape("neither a column 'key' nor a column 'value'")
    if data.num_rows > RECORDS_MAX:
        raise LakelogError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{data.num_rows} records in one batch; at most {RECORDS_MAX}"
        )
    columns = {name: _one_array(data.column(name)) for name in data.schema.names}
    batch = pa.RecordBatch.from_arrays(
        [_as_column(columns.get(field.name), field, data.num_rows) for field in RECORD_SCHEMA],
        schema=RECORD_SCHEMA,
    )
    _check_headers(batch.column("headers"))
    partitions = _explicit_partitions(columns["partition"]) if "partition" in columns else None
    return _compact(Records(batch, size_bytes=payload_bytes(batch), partitions=partitions))


def combine(requests: Sequence[AnyRecords]) -> Records:
    """One batch of many requests, in their order. Neighbouring list requests become Arrow together."""
    batches: list[pa.RecordBatch] = []
    lists: list[ListRecords] = []
    for request in requests:
        if isinstance(request, ListRecords):
            lists.append(request)
            continue
        if lists:
            batches.append(_arrow_of(lists))
            lists = []
        batches.append(request.batch)
    if lists:
        batches.append(_arrow_of(lists))
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return Records(
        batch,
        size_bytes=sum(request.size_bytes for request in requests),
        partitions=_combined_partitions(requests),
    )


def held_bytes(records: AnyRecords) -> int:
    """What records take up in memory, about. A million of them without a byte of payload are not nothing, nor is one
    with a million empty headers.
    """
    return records.size_bytes + RECORD_OVERHEAD_BYTES * (len(records) + _header_count(records))


def microseconds(timestamps: pa.Array) -> Int64s:
    """The times of a column that has them all, without a copy."""
    return np.asarray(timestamps.view(pa.int64()).to_numpy(), dtype=np.int64)


def record_bytes(batch: pa.RecordBatch | pa.Table) -> Int64s:
    """Bytes of key, value and headers of each record."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in ("key", "value"):
        if name in batch.schema.names:
            sizes += _lengths(_one_array(batch.column(name)))
    if "headers" in batch.schema.names:
        headers = _one_array(batch.column("headers"))
        if headers.null_count < len(headers):
            sizes += _header_bytes(headers)
    return sizes


def payload_bytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Bytes of all keys, values and headers together, without looking at each record."""
    total = 0
    for name in ("key", "value"):
        if name in batch.schema.names:
            total += _total_length(_one_array(batch.column(name)))
    if "headers" in batch.schema.names:
        headers = _one_array(batch.column("headers"))
        if headers.null_count < len(headers):
            total += sum(map(_total_length, _header_columns(headers)))
    return total


def _wrong_shape(reason: str) -> LakelogError:
    return LakelogError(ErrorCode.INVALID_REQUEST, f"not a batch of records: {reason}")


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _as_column(array: pa.Array | None, field: pa.Field, length: int) -> pa.Array:
    if array is None or pa.types.is_null(array.type):
        return pa.nulls(length, field.type)
    if array.type == field.type:
        return array
    try:
        if field.name == "timestamp":
            return _as_timestamp(array)
        if field.name in ("key", "value") and not _is_bytes_like(array.type):
            raise pa.ArrowInvalid("only binary and string columns hold bytes")
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise _wrong_shape(f"column {field.name!r} is {array.type}, it should be {field.type} ({error})") from None


def _check_headers(headers: pa.Array) -> None:
    if headers.null_count == len(headers):
        return
    entries = headers.flatten()  # without what lies under a null list
    if entries.null_count or entries.field("key").null_count:
        raise LakelogError(ErrorCode.INVALID_RECORD, "a header has no key")


def _compact(records: Records) -> Records:
    """The same on memory of their own, if that which they stand on is far more than what they are counted as: whoever
    keeps some records keeps all that lies under them.
    """
    if records.batch.get_total_buffer_size() <= 2 * held_bytes(records) + SPARE_BYTES:
        return records
    batch = records.batch.take(pa.array(np.arange(len(records))))  # other ways to copy take along what nulls cover
    return replace(records, batch=batch, size_bytes=payload_bytes(batch))


def _is_bytes_like(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_bytes_like(kind.value_type)
    checks = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
    )
    return any(check(kind) for check in checks)


def _as_timestamp(array: pa.Array) -> pa.Array:
    if pa.types.is_integer(array.type):  # Kafka's: milliseconds since the epoch
        array = array.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    if not pa.types.is_timestamp(array.type):
        raise pa.ArrowInvalid("only timestamps and whole milliseconds are times")
    return pc.cast(array, options=pc.CastOptions(TIMESTAMP, allow_time_truncate=True))


def _explicit_partitions(array: pa.Array) -> Int32s:
    if not pa.types.is_integer(array.type) and not pa.types.is_null(array.type):
        raise _wrong_shape(f"column 'partition' is {array.type}, it should be an integer")
    try:
        whole = array.cast(pa.int32())
    except pa.ArrowException:
        raise UnknownPartition("a partition number is out of range") from None
    numbers = whole.fill_null(NO_PARTITION).to_numpy(zero_copy_only=False)
    if len(numbers) and whole.null_count < len(whole) and pc.min(whole).as_py() < 0:
        raise UnknownPartition("a partition number is negative")
    return np.asarray(numbers, dtype=np.int32)


def _arrow_of(requests: Sequence[ListRecords]) -> pa.RecordBatch:
    count = sum(len(request) for request in requests)

    def column(name: str, kind: pa.DataType) -> pa.Array:
        parts: list[list[Any] | None] = [getattr(request, name) for request in requests]
        if all(part is None for part in parts):
            return pa.nulls(count, kind)
        if len(parts) == 1:
            return pa.array(parts[0], type=kind)
        joined: list[Any] = []
        for request, part in zip(requests, parts, strict=True):
            joined.extend(part if part is not None else [None] * len(request))
        return pa.array(joined, type=kind)

    milliseconds = column("timestamps_ms", pa.timestamp("ms", tz="UTC"))
    try:
        timestamps = milliseconds.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        raise LakelogError(ErrorCode.INVALID_TIMESTAMP, "a timestamp is beyond the year 294247") from None
    return pa.RecordBatch.from_arrays(
        [timestamps, column("keys", pa.binary()), column("values", pa.binary()), column("headers", HEADERS)],
        schema=RECORD_SCHEMA,
    )


def _combined_partitions(requests: Sequence[AnyRecords]) -> Int32s | None:
    if all(request.partitions is None for request in requests):
        return None
    return np.concatenate(
        [
            np.full(len(request), NO_PARTITION, dtype=np.int32)
            if request.partitions is None
            else np.asarray(request.partitions, dtype=np.int32)
            for request in requests
        ]
    )


def _offsets_of(array: pa.Array) -> Int32s:
    """The offsets buffer of a binary, string or list array, as far as the array reaches."""
    if len(array) == 0:
        return np.zeros(1, dtype=np.int32)
    raw = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return raw[array.offset : array.offset + len(array) + 1]


def _lengths(array: pa.Array) -> Int32s:
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.int32)
    offsets = _offsets_of(array)
    return offsets[1:] - offsets[:-1]


def _total_length(array: pa.Array) -> int:
    if array.null_count == len(array):
        return 0
    offsets = _offsets_of(array)
    return int(offsets[-1]) - int(offsets[0])


def _header_count(records: AnyRecords) -> int:
    if isinstance(records, ListRecords):
        return sum(map(len, filter(None, records.headers or ())))
    return _total_length(records.batch.column("headers"))


def _header_columns(headers: pa.Array) -> list[pa.Array]:
    """Names and values of all headers, as far as the array reaches."""
    offsets = _offsets_of(headers)
    columns: list[pa.Array] = headers.values.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0])).flatten()
    return columns


def _header_bytes(headers: pa.Array) -> Int64s:
    offsets = _offsets_of(headers)
    keys, values = _header_columns(headers)
    running = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum(_lengths(keys).astype(np.int64) + _lengths(values), out=running[1:])
    return np.asarray(np.diff(running[offsets - offsets[0]]))
