"""A ledger whose commits fail holds on to nothing that they would have written."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakelog.delta.ledger import Ledger
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
