"""Tables of rows keep their folders clean by themselves: no job visits them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog.delta.row_files import ON_ITS_WAY_MS
from lakelog.delta.rows import FOLD_FILES, RowTable
from lakelog.delta.store import open_store
from lakelog.errors import ErrorCode, LakelogError
from tests.contract.records import MovedClock

SCHEMA = pa.schema([("number", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


async def test_files_that_a_killed_writer_began_on_a_disk_go_too(tmp_path: Path) -> None:
    clock = MovedClock()
    rows = RowTable(open_store(str(tmp_path)), "__rows", SCHEMA, clock, time_column="at", kept_ms=ON_ITS_WAY_MS)

    async def fill() -> None:
        for number in range(FOLD_FILES):
            await rows.append([{"number": number, "at": clock.now_ms() * 1000}])

    await fill()
    begun = [tmp_path / "__rows" / "1.parquet#1", tmp_path / "__rows" / "_delta_log" / "9.json#12"]
    for path in begun:
        path.write_bytes(b"half of a")
    fresh = tmp_path / "__rows" / "2.parquet#1"
    fresh.write_bytes(b"another half")
    clock.ahead_ms += ON_ITS_WAY_MS + 1_000
    os.utime(fresh, times=(clock.now_ms() / 1000,) * 2)
    await fill()
    assert [path.exists() for path in (*begun, fresh)] == [False, False, True]
    assert (await rows.read()).num_rows == FOLD_FILES


async def test_rows_of_somebody_else_are_told_for_what_they_are(tmp_path: Path) -> None:
    store, clock = open_store(str(tmp_path)), MovedClock()
    others = pa.schema([("word", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    theirs, ours = (RowTable(store, "__rows", of, clock, time_column="at", kept_ms=1) for of in (others, SCHEMA))
    await theirs.append([{"word": "hello", "at": clock.now_ms() * 1000}])
    with pytest.raises(LakelogError, match=r"'__rows' is the platform's own.* without a column 'number'") as caught:
        await ours.read()
    assert caught.value.code is ErrorCode.UNSUPPORTED_TABLE
