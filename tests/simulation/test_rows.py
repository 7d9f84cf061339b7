"""The table of rows that anybody may append to: where the store fails, a row is there once or its writer is told."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from lakelog.delta.row_files import ON_ITS_WAY_MS, RowLog
from lakelog.delta.rows import FOLD_FILES, RowTable
from lakelog.errors import ErrorCode, LakelogError
from tests.simulation.faulty_store import Fate, FaultyStore, Warehouse
from tests.simulation.virtual_time import VirtualClock, in_virtual_time

SCHEMA = pa.schema([("number", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
COMMIT = ".json"


def table_on(store: FaultyStore) -> RowTable:
    return RowTable(store, "__rows", SCHEMA, store.warehouse.clock, time_column="at", kept_ms=3_600_000)


async def append(table: RowTable, number: int) -> None:
    await table.append([{"number": number, "at": VirtualClock().now_ms() * 1000}])


async def live_files(store: FaultyStore) -> set[str]:
    log = RowLog(store, "__rows", store.warehouse.clock, out_of_use_ms=0)
    await log.refresh()
    return set(map(log.path, log.state.live))


async def numbers(store: FaultyStore) -> list[int]:
    found: list[int] = (await table_on(store).read())["number"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("fate", [Fate.REPLY_LOST, Fate.NEVER_ARRIVES, Fate.LATE])
def test_a_commit_that_nobody_answers_for_is_made_once(fate: Fate) -> None:
    @in_virtual_time
    async def meet() -> None:
        store = FaultyStore(Warehouse(VirtualClock()))
        await append(table_on(store), 0)
        store.when("create", COMMIT, fate, times=2)
        await append(table_on(store), 1)
        await asyncio.sleep(60)  # until the late ones have arrived
        assert await numbers(store) == [0, 1]

    meet()


@in_virtual_time
async def test_who_makes_the_table_at_the_same_moment_appends_to_the_same_one() -> None:
    warehouse = Warehouse(VirtualClock())
    stores = [FaultyStore(warehouse) for _ in range(4)]
    await asyncio.gather(*(append(table_on(store), number) for number, store in enumerate(stores)))
    assert await numbers(stores[0]) == [0, 1, 2, 3]


@in_virtual_time
async def test_rows_that_come_while_others_are_folded_stay() -> None:
    warehouse = Warehouse(VirtualClock())
    ours, theirs = FaultyStore(warehouse), FaultyStore(warehouse)
    for number in range(FOLD_FILES - 1):
        await append(table_on(ours), number)
    ours.when("create", COMMIT)
    ours.when("create", COMMIT, meanwhile=lambda: append(table_on(theirs), FOLD_FILES))
    await append(table_on(ours), FOLD_FILES - 1)
    assert await numbers(ours) == list(range(FOLD_FILES + 1))


@in_virtual_time
async def test_a_file_whose_commit_never_came_goes_with_a_later_fold() -> None:
    store = FaultyStore(Warehouse(VirtualClock()))
    await append(table_on(store), 0)
    store.when("create", COMMIT, Fate.NEVER_ARRIVES, times=1_000)
    with pytest.raises(LakelogError):
        await append(table_on(store), 1)
    (orphan,) = {path for path in store.warehouse.files if path.endswith(".parquet")} - await live_files(store)
    store = FaultyStore(store.warehouse)
    await asyncio.sleep(ON_ITS_WAY_MS / 1000)
    assert orphan in store.warehouse.files
    for number in range(FOLD_FILES):
        await append(table_on(store), number)
    assert orphan not in store.warehouse.files
    assert await numbers(store) == list(range(FOLD_FILES))  # the first one is too old


@in_virtual_time
async def test_a_store_that_is_away_is_told_with_the_name_of_the_table() -> None:
    store = FaultyStore(Warehouse(VirtualClock()))
    store.when("put", "", Fate.NEVER_ARRIVES, times=1_000)
    with pytest.raises(LakelogError, match="writing __rows") as failed:
        await append(table_on(store), 0)
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
