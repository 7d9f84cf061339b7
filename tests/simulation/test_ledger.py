"""A ledger whose commits fail holds on to nothing that they would have written, neither in memory nor in its folder."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakelog.delta.ledger import CLEAN_INTERVAL_MS, Ledger
from lakelog.delta.row_files import ON_ITS_WAY_MS
from lakelog.errors import LakelogError
from tests.simulation.faulty_store import Fate, FaultyStore, Warehouse
from tests.simulation.virtual_time import VirtualClock, in_virtual_time

SCHEMA = pa.schema({"name": pa.string()})


async def in_place(work: Callable[[], Any]) -> Any:
    return work()


@pytest.mark.parametrize("fate", [Fate.NEVER_ARRIVES, Fate.REPLY_LOST, Fate.REFUSED])
def test_rows_whose_commit_failed_are_let_go_of(fate: Fate) -> None:
    @in_virtual_time
    async def fail() -> None:
        store = FaultyStore(Warehouse(VirtualClock()))
        ledger = Ledger(store, "__names", SCHEMA, VirtualClock(), in_place)
        await ledger.claim()
        rows = pa.table({"name": ["a"]}, schema=SCHEMA)
        kept = weakref.ref(rows)
        # Neither the put nor the look whether it landed gets through, for longer than anybody tries.
        commits = [store.when("create", ".json", fate, times=1_000), store.when("get", ".json", fate, times=1_000)]
        with pytest.raises(LakelogError):
            await ledger.append(0, rows)
        for each in commits:
            each.times = 0
        del rows
        gc.collect()
        assert kept() is None
        assert (await ledger.read()).num_rows == (1 if fate is Fate.REPLY_LOST else 0)

    fail()


@in_virtual_time
async def test_files_whose_commit_never_came_go_when_it_can_come_no_more() -> None:
    store = FaultyStore(Warehouse(VirtualClock()))
    died = Ledger(store, "__names", SCHEMA, VirtualClock(), in_place)
    await died.claim()
    store.when("create", ".json", Fate.NEVER_ARRIVES, times=1_000)
    with pytest.raises(LakelogError):
        await died.append(0, pa.table({"name": ["lost"]}, schema=SCHEMA))
    left = files_of(store)
    assert len(left) == 1
    await store.put("__names/somebody else's.parquet", b"")

    store = FaultyStore(store.warehouse)
    ledger = Ledger(store, "__names", SCHEMA, VirtualClock(), in_place)
    await ledger.claim()
    for name in "ab":
        await ledger.append(1, pa.table({"name": [name]}, schema=SCHEMA))
    await asyncio.sleep((ON_ITS_WAY_MS - 60_000) / 1000)
    await ledger.cut_log()
    assert left < files_of(store)
    await asyncio.sleep(CLEAN_INTERVAL_MS / 1000)
    await ledger.rewrite(ledger.files, lambda rows: rows)  # readers of what was before still have their time
    await ledger.cut_log()
    assert len(files_of(store)) == 4
    assert files_of(store).isdisjoint(left)
    assert sorted((await ledger.read())["name"].to_pylist()) == ["a", "b"]


def files_of(store: FaultyStore) -> set[str]:
    return {path for path in store.warehouse.files if path.endswith(".parquet")}
