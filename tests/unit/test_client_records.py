"""What a program hands to the client, as the records that it sends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakelog.client.records import Record, rows_as_records, split, timestamp_ms, to_ipc, to_table
from lakelog.errors import LakelogError

ROWS = {"id": [1, 2], "name": ["x", None]}
AS_JSON = [b'{"id":1,"name":"x"}', b'{"id":2,"name":null}']


@pytest.mark.parametrize("table", [pa.table(ROWS), pl.DataFrame(ROWS), pa.RecordBatch.from_pydict(ROWS)], ids=type)
def test_rows_that_are_no_records_become_json(table: Any) -> None:
    assert to_table(table).to_pydict() == {"value": AS_JSON}


def test_the_index_of_a_frame_is_no_part_of_its_records() -> None:
    frame = pd.DataFrame({"value": ["a", "b", "c"], "key": ["k", "k", "l"]})
    assert to_table(frame[frame["key"] == "k"]).to_pydict() == {"key": [b"k", b"k"], "value": [b"a", b"b"]}


def test_columns_that_say_nothing_are_not_sent() -> None:
    assert to_table(["a", None]).column_names == ["value"]
    assert to_table([Record("a", partition=1), "b"]).to_pydict() == {"value": [b"a", b"b"], "partition": [1, None]}


def test_a_generator_is_as_good_as_a_list() -> None:
    assert to_table(str(number) for number in range(3)).to_pydict() == {"value": [b"0", b"1", b"2"]}
    assert to_table([]).num_rows == 0


def test_columns_can_be_named_for_key_and_value() -> None:
    table = pa.table(ROWS)
    assert rows_as_records(table, key="id", value="name").to_pydict() == {"key": [b"1", b"2"], "value": [b"x", None]}
    assert rows_as_records(table, key="name").to_pydict() == {"key": [b"x", None], "value": AS_JSON}
    with pytest.raises(LakelogError, match="no column 'nome'; there are id, name"):
        rows_as_records(table, key="nome")


def test_a_table_is_cut_into_requests_of_a_size() -> None:
    table = to_table([b"x" * size for size in (10, 10, 500, 10, 10, 10)])
    pieces = [piece["value"].to_pylist() for piece in split(table, 100)]
    assert [[len(value) for value in piece] for piece in pieces] == [[10, 10], [500], [10, 10, 10]]
    assert list(split(table.slice(0, 0), 100)) == []


def test_a_piece_carries_no_more_than_its_own_records() -> None:
    table = to_table([b"x" * 100_000, b"y"])
    assert len(to_ipc(table.slice(1))) < 1000


@pytest.mark.parametrize("time", [datetime(2023, 11, 14, 22, 13, 20, 123_999, tzinfo=UTC), 1_700_000_000_123])
def test_times_are_milliseconds(time: datetime | int) -> None:
    assert timestamp_ms(time) == 1_700_000_000_123
    if isinstance(time, datetime):
        assert timestamp_ms(time.astimezone(timezone(timedelta(hours=5)))) == 1_700_000_000_123


def test_a_local_time_that_no_clock_shows_is_refused() -> None:
    with pytest.raises(LakelogError, match="too far away"):
        timestamp_ms(datetime.min)


def test_the_first_and_the_last_time_there_are_count_in_every_zone() -> None:
    for hours in (-12, 0, 12):
        zone = timezone(timedelta(hours=hours))
        first, last = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
        assert timestamp_ms(first) == -62_135_596_800_000 - hours * 3_600_000
        assert timestamp_ms(last) == 253_402_300_799_999 - hours * 3_600_000


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(LakelogError, match="list has no JSON"):
        to_table([Record(value)])
