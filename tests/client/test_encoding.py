"""Rows become JSON whatever the types of their columns, and what has no JSON is named by its column and row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakelog.client import LakelogClient, Record, rows_as_records
from lakelog.client.records import RecordList
from lakelog.errors import ErrorCode, LakelogError

AT_NS = 1_769_860_800_123_456_789
FAR = 2**62


def times(kind: pa.DataType) -> pa.Array:
    return pa.array([AT_NS], pa.int64()).cast(kind)


@pytest.mark.parametrize(
    ("column", "json"),
    [
        (times(pa.timestamp("ns")), '"2026-01-31T12:00:00.123456"'),
        (times(pa.timestamp("ns", "UTC")), '"2026-01-31T12:00:00.123456Z"'),
        (pa.array([1_000_001_999], pa.duration("ns")), '"PT1.000001S"'),
        (pa.array([[AT_NS]], pa.list_(pa.timestamp("ns"))), '["2026-01-31T12:00:00.123456"]'),
        (pa.array([[AT_NS]], pa.large_list(pa.timestamp("ns"))), '["2026-01-31T12:00:00.123456"]'),
        (
            pa.array([{"at": AT_NS, "n": 1}], pa.struct([("at", pa.timestamp("ns")), ("n", pa.int8())])),
            '{"at":"2026-01-31T12:00:00.123456","n":1}',
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_times_of_nanoseconds_are_told_in_microseconds(column: pa.Array, json: str) -> None:
    table = pa.table({"x": column})
    assert rows_as_records(table)["value"].to_pylist() == [f'{{"x":{json}}}'.encode()]
    assert rows_as_records(table, value="x")["value"].to_pylist() == [json.encode()]
    assert rows_as_records(table, key="x")["key"].to_pylist() == [json.encode()]


FRAMES = [
    pd.DataFrame({"at": pd.to_datetime([AT_NS], utc=True), "took": pd.to_timedelta([1], unit="ns").as_unit("ns")}),
    pl.DataFrame({"at": [AT_NS], "took": [1]}, schema={"at": pl.Datetime("ns", "UTC"), "took": pl.Duration("us")}),
]


@pytest.mark.parametrize("frame", FRAMES, ids=type)
def test_a_frame_with_times_is_sent(client: LakelogClient, topic: str, frame: Any) -> None:
    client.produce(topic, frame)
    (record,) = client.fetch(topic)
    assert record.json()["at"] == "2026-01-31T12:00:00.123456Z"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, FAR], pa.timestamp("us")),
        pa.array([0, FAR], pa.timestamp("s")),
        pa.array([0, FAR], pa.duration("s")),
        pa.array([0, 2**30], pa.date32()),
        pa.array([{"at": 0}, {"at": FAR}], pa.struct([("at", pa.timestamp("us"))])),
    ],
    ids=lambda column: str(column.type),
)
def test_what_python_has_no_room_for_is_named_by_its_place(column: pa.Array) -> None:
    table = pa.table({"id": [1, 2], "x": column})
    for options in ({}, {"key": "x"}, {"value": "x"}):
        with pytest.raises(LakelogError, match=r"column 'x', row 102: this .* is out of range") as caught:
            rows_as_records(table, first_row=101, **options)
        assert caught.value.code is ErrorCode.INVALID_RECORD


def test_what_has_no_json_is_named_by_its_place() -> None:
    broken = pa.array([b"fine", b"\xff"]).view(pa.string())
    with pytest.raises(LakelogError, match="column 'x', row 2: "):
        rows_as_records(pa.table({"x": broken}))


def test_no_column_hides_another() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(LakelogError, match="the column 'id' is there twice"):
        rows_as_records(table)


@pytest.mark.parametrize(
    "wrong",
    [
        Record("x", headers=[(1, b"a")]),  # type: ignore[list-item]
        Record("x", headers=["ab"]),  # type: ignore[list-item]
        Record("x", headers={"name": "value"}),  # type: ignore[arg-type]
        Record("x", headers=[("\ud800", b"a")]),
        Record("x", headers=[("a", object())]),  # type: ignore[list-item]
        Record("\ud800"),
        Record("x", partition=-1),
        Record("x", partition=2**31),
        Record("x", partition="0"),  # type: ignore[arg-type]
        Record("x", timestamp=2**62),
        Record("x", timestamp=1.5),  # type: ignore[arg-type]
        Record("x", timestamp=pd.NaT),
    ],
    ids=repr,
)
def test_a_record_that_is_refused_leaves_no_trace_among_the_others(wrong: Record) -> None:
    gathered = RecordList()
    size = gathered.add(Record("a", headers=[("h", "1")], partition=0, timestamp=1))
    with pytest.raises(LakelogError):
        gathered.add(wrong)
    size += gathered.add(Record("b"))
    assert (len(gathered), gathered.size_bytes) == (2, size)
    assert gathered.to_table()["value"].to_pylist() == [b"a", b"b"]


def test_numbers_may_be_those_of_numpy() -> None:
    gathered = RecordList()
    gathered.add(Record("a", partition=np.int64(1), timestamp=np.int64(5)))  # type: ignore[arg-type]
    assert gathered.to_table()["partition"].to_pylist() == [1]
