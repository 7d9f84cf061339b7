"""From what a program has in its hands to what the gateway takes: records as Arrow, cut into requests.

Takes single values, records with keys and headers, and tables of Arrow, pandas or polars, none of which has to be
installed for the others. It must not know requests or topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import index
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakelog.client.encoding import encode, encode_column, encode_rows
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.model.batch import (
    PARTITION_MOST,
    RECORD_OVERHEAD_BYTES,
    TIMESTAMP_MOST_MS,
    AnyRecords,
    ListRecords,
    Records,
    combine,
    from_arrow,
    record_bytes,
)

Headers: TypeAlias = Sequence[tuple[str, bytes | str | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """One record to send. Bytes go as they are, text as UTF-8, None as none, anything else as its JSON."""

    value: Any
    key: Any = None
    headers: Headers = ()
    timestamp: datetime | int | None = None  # a number is milliseconds since 1970
    partition: int | None = None


def timestamp_ms(time: datetime | int) -> int:
    try:
        milliseconds = index(_since_1970_ms(time) if isinstance(time, datetime) else time)
    except TypeError:
        raise LakelogError(ErrorCode.INVALID_TIMESTAMP, f"{time!r} is neither a datetime nor milliseconds") from None
    if not -TIMESTAMP_MOST_MS <= milliseconds < TIMESTAMP_MOST_MS:
        raise LakelogError(ErrorCode.INVALID_TIMESTAMP, f"the timestamp {milliseconds} is beyond the year 294247")
    return milliseconds


def _since_1970_ms(time: datetime) -> int:
    try:
        # Counted in whole steps: a float of seconds would lose the last millisecond.
        since = (time.astimezone(UTC) if time.utcoffset() is None else time) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise LakelogError(ErrorCode.INVALID_TIMESTAMP, f"{time} is too far away for a local time: {error}") from None
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


class RecordList:
    """Records that are gathered one by one, as columns."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._headers: list[Sequence[tuple[str, bytes | None]] | None] = []
        self._timestamps_ms: list[int | None] = []
        self._partitions: list[int | None] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, record: Record) -> int:
        """Take a record in; returns its size. One that cannot be sent is refused, and leaves no trace: the others here
        may be of other senders.
        """
        value, key, headers = encode(record.value), encode(record.key), _checked_headers(record.headers)
        time_ms = None if record.timestamp is None else timestamp_ms(record.timestamp)
        partition = None if record.partition is None else _checked_partition(record.partition)
        size = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        size += sum(len(name.encode()) + len(content or b"") for name, content in headers)
        self._values.append(value)
        self._keys.append(key)
        self._headers.append(headers or None)
        self._timestamps_ms.append(time_ms)
        self._partitions.append(partition)
        self.size_bytes += size
        return size

    def to_table(self) -> pa.Table:
        columns = ListRecords(
            self._values,
            self.size_bytes,
            keys=_unless_all_none(self._keys),
            headers=_unless_all_none(self._headers),
            timestamps_ms=_unless_all_none(self._timestamps_ms),
        )
        partitions = _unless_all_none(self._partitions)
        return _record_table(columns, None if partitions is None else pa.array(partitions, type=pa.int32()))


def to_table(records: Any) -> pa.Table:
    """The records that a program gives, as a table with the columns of records.

    A table (Arrow, pandas, polars, or whatever speaks Arrow's C interface) that has a column `value` or `key` is one of
    records; of any other, each row becomes the JSON of a value. Everything else is a record or a value, or several.
    """
    if isinstance(records, (str, bytes, bytearray, memoryview, dict, Record)):
        records = [records]
    if hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__"):
        table = _without_index(pa.table(records))
        return _checked(table) if {"key", "value"} & set(table.column_names) else rows_as_records(table)
    if not isinstance(records, Iterable):
        records = [records]
    gathered = RecordList()
    for record in records:
        gathered.add(record if isinstance(record, Record) else Record(record))
    return gathered.to_table()


def rows_as_records(
    table: pa.Table, *, key: str | None = None, value: str | None = None, first_row: int = 1
) -> pa.Table:
    """Records of rows that are none yet.

    `value` names the column that becomes the value; without one each row becomes a JSON object. `key` names the column
    of the key, which stays in that object too. `first_row` is what the first one counts as where a row is refused.
    """
    twice = [name for name, times in Counter(table.column_names).items() if times > 1]
    if twice:
        raise LakelogError(ErrorCode.INVALID_REQUEST, f"the column {twice[0]!r} is there twice")
    for column in (key, value):
        if column is not None and column not in table.column_names:
            raise LakelogError(
                ErrorCode.INVALID_REQUEST, f"no column {column!r}; there are {', '.join(table.column_names)}"
            )
    columns = {"value": encode_rows(table, first_row) if value is None else encode_column(table, value, first_row)}
    if key is not None:
        columns["key"] = encode_column(table, key, first_row)
    return _checked(pa.table(columns))


def split(table: pa.Table, bytes_max: int) -> Iterator[pa.Table]:
    """The same records in pieces of at most so many bytes each, or of one record that is larger."""
    ends = np.cumsum(record_bytes(table) + RECORD_OVERHEAD_BYTES)
    start, before = 0, 0
    while start < table.num_rows:
        end = max(int(np.searchsorted(ends, before + bytes_max, side="right")), start + 1)
        yield table.slice(start, end - start)
        start, before = end, int(ends[end - 1])


def to_ipc(table: pa.Table, compression: str | None = None) -> bytes:
    """A table as an Arrow IPC stream, its buffers compressed with lz4 or zstd where asked."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        # A slice of a batch carries the whole batch along unless it is copied to its own buffers.
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def _checked(table: pa.Table) -> pa.Table:
    """Refused here with the gateway's own words, before anything is sent."""
    partitions = table.column("partition") if "partition" in table.column_names else None
    return _record_table(from_arrow(table), partitions)


def _record_table(records: AnyRecords, partitions: pa.Array | pa.ChunkedArray | None) -> pa.Table:
    batch = records.batch if isinstance(records, Records) else combine([records]).batch
    # What is null throughout says nothing, and is not sent.
    said = [name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows or name == "value"]
    table = pa.Table.from_batches([batch]).select(said)
    return table if partitions is None else table.append_column("partition", partitions)


def _without_index(table: pa.Table) -> pa.Table:
    """pandas sends its index along as a column; it is no part of a record."""
    kept = [name for name in table.column_names if not name.startswith("__index_level_")]
    return table.select(kept).replace_schema_metadata(None)


def _checked_headers(headers: Iterable[Any]) -> list[tuple[str, bytes | None]]:
    checked = []
    for header in headers:
        # No bare unpacking: a text of two letters would come apart as well.
        if not (isinstance(header, (tuple, list)) and len(header) == 2 and isinstance(header[0], str)):
            raise LakelogError(ErrorCode.INVALID_RECORD, f"a header is a pair of a name and a value, not {header!r}")
        name, content = header
        encode(name)
        checked.append((name, encode(content)))
    return checked


def _checked_partition(number: int) -> int:
    try:
        whole = index(number)
    except TypeError:
        raise UnknownPartition(f"{number!r} is no number of a partition") from None
    if not 0 <= whole <= PARTITION_MOST:
        raise UnknownPartition(f"the partition number {whole} is out of range")
    return whole


def _unless_all_none(column: list[Any]) -> list[Any] | None:
    return None if all(each is None for each in column) else column
