"""Records as columns: whatever shape they come in, they are the same records, of the same size, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.batch import (
    HEADERS,
    NO_PARTITION,
    RECORD_SCHEMA,
    SPARE_BYTES,
    ListRecords,
    Records,
    combine,
    from_arrow,
    held_bytes,
    payload_bytes,
    record_bytes,
)

BYTES = st.none() | st.binary(max_size=12)
HEADER_LISTS = st.none() | st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)
ROWS = st.lists(st.tuples(st.none() | st.integers(0, 2**42), BYTES, BYTES, HEADER_LISTS), max_size=12)
Plain = tuple[int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def arrow(rows: list[Plain]) -> pa.Table:
    return pa.table(
        {
            "timestamp": pa.array([row[0] for row in rows], pa.int64()),
            "key": pa.array([row[1] for row in rows], pa.binary()),
            "value": pa.array([row[2] for row in rows], pa.binary()),
            "headers": pa.array([row[3] for row in rows], HEADERS),
        }
    )


def plain(batch: pa.RecordBatch) -> list[Plain]:
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [
        None if each is None else [(header["key"], header["value"]) for header in each]
        for each in batch.column("headers").to_pylist()
    ]
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    milliseconds = [None if time is None else time // 1000 for time in times]
    return list(zip(milliseconds, keys, values, headers, strict=True))


def size_of(row: Plain) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in row[3] or [])
    return len(row[1] or b"") + len(row[2] or b"") + headers


def as_lists(rows: list[Plain]) -> ListRecords:
    return ListRecords(
        values=[row[2] for row in rows],
        size_bytes=sum(map(size_of, rows)),
        keys=[row[1] for row in rows],
        headers=[row[3] for row in rows],
        timestamps_ms=[row[0] for row in rows],
    )


@given(ROWS)
def test_arrow_goes_through_unchanged_and_is_measured(rows: list[Plain]):
    records = from_arrow(arrow(rows))
    assert records.batch.schema.equals(RECORD_SCHEMA)
    assert plain(records.batch) == rows
    assert records.size_bytes == sum(map(size_of, rows))
    assert record_bytes(records.batch).tolist() == [size_of(row) for row in rows]


@given(ROWS, st.integers(0, 6), st.integers(0, 6))
def test_a_slice_is_measured_by_its_own_records(rows: list[Plain], skip: int, drop: int):
    batch = from_arrow(arrow(rows)).batch
    part = batch.slice(skip, max(0, len(rows) - skip - drop))
    kept = rows[skip : max(skip, len(rows) - drop)]
    assert record_bytes(part).tolist() == [size_of(row) for row in kept]
    assert payload_bytes(part) == sum(map(size_of, kept))


@given(st.lists(st.tuples(st.booleans(), ROWS), min_size=1, max_size=5))
def test_requests_of_both_kinds_are_combined_in_their_order(requests: list[tuple[bool, list[Plain]]]):
    combined = combine([from_arrow(arrow(rows)) if in_arrow else as_lists(rows) for in_arrow, rows in requests])
    everything = [row for _, rows in requests for row in rows]
    assert plain(combined.batch) == everything
    assert combined.size_bytes == sum(map(size_of, everything))
    assert combined.partitions is None


def test_lists_may_leave_columns_out_beside_others_that_have_them():
    combined = combine(
        [ListRecords([b"a", None], 1), as_lists([(7, b"k", b"b", [("h", None)])]), ListRecords([b"c"], 1)]
    )
    assert plain(combined.batch) == [
        (None, None, b"a", None),
        (None, None, None, None),
        (7, b"k", b"b", [("h", None)]),
        (None, None, b"c", None),
    ]


def test_partitions_that_only_some_requests_name():
    named = from_arrow(pa.table({"value": [b"a", b"b"], "partition": pa.array([3, None], pa.int64())}))
    combined = combine([ListRecords([b"x"], 1), named, ListRecords([b"y"], 1, partitions=[2])])
    assert combined.partitions is not None
    assert combined.partitions.dtype == np.int32
    assert combined.partitions.tolist() == [NO_PARTITION, 3, NO_PARTITION, 2]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", None]),
        pa.array(["a", "b", None], pa.large_string()),
        pa.array([b"a", b"b", None], pa.large_binary()),
        pa.array([b"a", b"b", None], pa.binary_view()),
        pa.array([b"a", b"b", None], pa.binary(1)),
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.chunked_array([pa.array([b"a"]), pa.array([b"b", None])]),
    ],
    ids=lambda column: str(column.type),
)
def test_bytes_are_taken_in_every_form_that_arrow_has_for_them(column: Any):
    records = from_arrow(pa.table({"key": column, "value": column}))
    assert [row[1:3] for row in plain(records.batch)] == [(b"a", b"a"), (b"b", b"b"), (None, None)]
    # Of a fixed width also the nulls carry bytes, which are held in memory and therefore count.
    assert records.size_bytes == (6 if pa.types.is_fixed_size_binary(column.type) else 4)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_000, None]),
        pa.array([1_000, None], pa.int32()),
        pa.array([1, None], pa.timestamp("s")),
        pa.array([1_000, None], pa.timestamp("ms", tz="Europe/Oslo")),
        pa.array([1_000_000_999, None], pa.timestamp("ns", tz="UTC")),
    ],
    ids=lambda column: str(column.type),
)
def test_times_are_taken_in_every_unit(column: pa.Array):
    records = from_arrow(pa.table({"value": [b"a", b"b"], "timestamp": column}))
    assert [row[0] for row in plain(records.batch)] == [1_000, None]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"vlaue": [b"a"]}), "unknown column 'vlaue'"),
        (pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["key", "key"]), "twice"),
        (pa.table({"timestamp": [1]}), "neither a column 'key' nor a column 'value'"),
        (pa.table({"value": [1.5]}), "column 'value' is double"),
        (pa.table({"value": [b"a"], "timestamp": ["noon"]}), "column 'timestamp' is string"),
        (pa.table({"value": [b"a"], "headers": [b"h"]}), "column 'headers' is binary"),
        (pa.table({"value": [b"a"], "partition": [0.5]}), "column 'partition' is double"),
    ],
)
def test_a_batch_of_another_shape_is_refused_with_the_reason(table: pa.Table, reason: str):
    with pytest.raises(LakelogError, match=reason) as caught:
        from_arrow(table)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("header", [(None, b"v"), None], ids=["no key", "no header"])
def test_a_header_without_a_key_is_refused(header: tuple[None, bytes] | None):
    table = pa.table({"value": [b"a", b"b"], "headers": pa.array([None, [("k", b"v"), header]], HEADERS)})
    with pytest.raises(LakelogError) as caught:
        from_arrow(table)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_null_list_may_hide_a_header_without_a_key():
    """Arrow lets a null entry cover any bytes; they are not the record's."""
    hidden = pa.array([("seen", b"v"), (None, b"hidden")], HEADERS.value_type)
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2]), hidden, type=HEADERS, mask=pa.array([False, True]))
    records = from_arrow(pa.table({"value": [b"a", b"b"], "headers": headers}))
    assert [row[3] for row in plain(records.batch)] == [[("seen", b"v")], None]


MIB = 1024 * 1024
MUCH = b"x" * MIB


def sparse(kind: pa.DataType, shown: bytes | None) -> pa.Array:
    """One entry, over far more bytes than it shows: they lie before it, or it is null and covers them."""
    bounds = [0, len(MUCH)] if shown is None else [len(MUCH) - len(shown), len(MUCH)]
    validity = None if shown else pa.py_buffer(b"\0")
    buffers = [validity, pa.py_buffer(np.array(bounds, dtype=np.int32)), pa.py_buffer(MUCH)]
    return pa.Array.from_buffers(kind, 1, buffers)


def header(key: pa.Array, value: pa.Array) -> pa.Array:
    entries = pa.StructArray.from_arrays([key, value], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), entries, type=HEADERS)


@pytest.mark.parametrize(
    "columns",
    [
        {"value": sparse(pa.binary(), b"xx")},
        {"value": sparse(pa.binary(), None)},
        {"value": [b"a"], "key": sparse(pa.binary(), b"x")},
        {"value": [b"a"], "headers": header(sparse(pa.string(), b"xxx"), pa.array([b"v"]))},
        {"value": [b"a"], "headers": header(pa.array(["k"]), sparse(pa.binary(), None))},
        {"value": pa.array([b"12345678"] * MIB).slice(5, 1)},
    ],
    ids=["value", "null value", "key", "header's name", "header's null value", "slice"],
)
def test_what_is_kept_of_records_is_about_what_they_are_counted_as(columns: dict[str, Any]):
    table = pa.table(columns)
    records = from_arrow(table)
    assert records.batch.get_total_buffer_size() <= 2 * held_bytes(records) + SPARE_BYTES
    again = records.batch.select(table.column_names)
    assert again.to_pylist() == table.to_pylist()


def test_records_that_are_about_as_large_as_their_memory_are_not_copied():
    values = pa.array([b"12345678"] * 1_000)
    kept = from_arrow(pa.table({"value": values})).batch.column("value")
    assert kept.buffers()[2].address == values.buffers()[2].address


@given(ROWS)
def test_records_made_by_themselves_are_never_copied(rows: list[Plain]):
    table = arrow(rows)
    kept = from_arrow(table).batch
    for name in ("key", "value"):
        ours, theirs = kept.column(name).buffers()[2], table.column(name).chunk(0).buffers()[2]
        assert (ours and ours.address) == (theirs and theirs.address)


@pytest.mark.parametrize("number", [-1, -(2**31), 2**31, 2**40])
def test_a_partition_number_that_no_topic_has_is_refused(number: int):
    with pytest.raises(LakelogError) as caught:
        from_arrow(pa.table({"value": [b"a"], "partition": pa.array([number], pa.int64())}))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("time_ms", [2**62, -(2**62), 2**63 // 1000 + 1])
def test_a_time_beyond_what_microseconds_reach_is_refused(time_ms: int):
    with pytest.raises(LakelogError) as caught:
        combine([ListRecords([b"a"], 1, timestamps_ms=[time_ms])])
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_no_records_are_no_bytes():
    empty = from_arrow(pa.table({"value": pa.array([], pa.binary())}))
    assert (len(empty), empty.size_bytes) == (0, 0)
    assert isinstance(empty, Records)
    assert record_bytes(empty.batch).tolist() == []
