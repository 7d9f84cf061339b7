"""A plain Delta table of rows, for what the platform writes down about itself: append and read, by any process.

It has no offsets, no partitions and no leader. Appends of several processes never conflict. Every FOLD_FILES appends
its files become one, rows that are too old are left out, the log is cut, and what writers that died have left goes: so
it stays small for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.clock import Clock
from lakelog.delta import drafts
from lakelog.delta.actions import Action, Add
from lakelog.delta.row_files import (
    RowLog,
    RowState,
    add_of_rows,
    decode_rows,
    encode_rows,
    remove_of_rows,
    rows_path,
)
from lakelog.delta.store import Store
from lakelog.delta.table import DraftOn, Stale

FOLD_FILES = 64
# Readers of an older snapshot have this long before its files and commits go.
OUT_OF_USE_MS = 86_400_000


class RowTable:
    """`time_column` is the one that says how old a row is; rows are kept for `kept_ms`."""

    def __init__(
        self, store: Store, name: str, schema: pa.Schema, clock: Clock, *, time_column: str, kept_ms: int
    ) -> None:
        self._store = store
        self._schema = schema
        self._clock = clock
        self._time_column = time_column
        self._kept_ms = kept_ms
        self._log = RowLog(store, name, clock, out_of_use_ms=OUT_OF_USE_MS)

    async def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, which other processes may do at the same time. Makes the table if there is none."""
        commit_id = drafts.new_commit_id()
        add = await self._write(commit_id, pa.Table.from_pylist(list(rows), schema=self._schema), data_change=True)
        await self._log.doing("reading", self._log.refresh())
        if self._log.state.metadata is None:
            await self._make()
        info = drafts.commit_info(commit_id, "APPEND", self._clock.now_ms(), blind=True)
        # Nothing that others do can be in the way of another row.
        await self._commit(commit_id, [info, Action(add=add)], lambda now: True)
        if len(self._log.state.live) >= FOLD_FILES:
            await self._fold()

    async def version(self) -> int:
        """The newest there is: rows that were read stay all there are for as long as it does."""
        await self._log.doing("reading", self._log.refresh())
        return self._log.state.version

    async def read(self) -> pa.Table:
        """All rows, in no order."""
        await self._log.doing("reading", self._log.refresh())
        return await self._rows_of(list(self._log.state.live))

    async def _make(self) -> None:
        commit_id, now_ms = drafts.new_commit_id(), self._clock.now_ms()
        actions = [drafts.commit_info(commit_id, "CREATE TABLE", now_ms), *self._log.terms(self._schema)]
        with suppress(Stale):  # somebody else has made it at the same moment
            await self._commit(commit_id, actions, lambda now: now.metadata is None)

    async def _commit(self, commit_id: str, actions: list[Action], holds: Callable[[RowState], bool]) -> None:
        await self._log.doing("a commit to", self._log.commit(DraftOn(commit_id, actions, holds)))

    async def _rows_of(self, paths: Sequence[str]) -> pa.Table:
        tables = []
        for path in paths:
            data = await self._log.doing("reading", self._store.get(self._log.path(path)))
            if data is not None:  # folded into another this moment, and its rows are old enough to be gone
                tables.append(decode_rows(data, self._schema, self._log.name))
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    async def _write(self, commit_id: str, rows: pa.Table, *, data_change: bool) -> Add:
        data, now_ms = encode_rows(rows), self._clock.now_ms()
        path = rows_path(now_ms, commit_id)
        await self._log.doing("writing", self._store.put(self._log.path(path), data))
        return add_of_rows(path, rows.num_rows, data.size, now_ms, data_change=data_change)

    async def _fold(self) -> None:
        """One file in the place of many. If somebody else folds them meanwhile it is left to the next append."""
        old = list(self._log.state.live.values())
        rows = await self._rows_of([each.path for each in old])
        since_us = (self._clock.now_ms() - self._kept_ms) * 1000
        rows = rows.filter(pc.greater_equal(rows.column(self._time_column).cast(pa.int64()), since_us))
        commit_id, now_ms = drafts.new_commit_id(), self._clock.now_ms()
        add = await self._write(commit_id, rows, data_change=False)
        removes = [Action(remove=remove_of_rows(each.path, each.size, now_ms)) for each in old]
        info = drafts.commit_info(commit_id, "FOLD", now_ms, metrics={"numRemovedFiles": str(len(old))})

        def holds(now: RowState) -> bool:
            return all(each.path in now.live for each in old)

        try:
            await self._commit(commit_id, [info, *removes, Action(add=add)], holds)
        except Stale:
            await self._log.doing("cleaning", self._store.delete([self._log.path(add.path)]))
            return
        await self._log.doing("a checkpoint of", self._log.checkpoint())
        await self._log.doing("cleaning", self._log.clean())
