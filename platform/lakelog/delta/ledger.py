"""A Delta table of typed rows that one process at a time writes: what the platform itself has to remember.

Owns the table: its files, who may write to it, and that it stays small. A writer claims it first, with a number (an
epoch) that stands in the log as a `txn`. Whoever claims it later has a higher one, and from that commit on nothing of
the earlier writer gets in: it is told so by `Fenced`. Rewrites of other processes (a compaction job) are no conflict.
What the rows mean, and which of them may be left out of a rewrite, must not be known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from lakelog.clock import Clock
from lakelog.delta import drafts
from lakelog.delta.actions import Action, Add, Txn
from lakelog.delta.row_files import (
    RowLog,
    RowState,
    add_of_rows,
    decode_rows,
    encode_rows,
    first_key_of,
    remove_of_rows,
    rows_in,
    rows_path,
)
from lakelog.delta.state import Changes
from lakelog.delta.store import Store
from lakelog.delta.table import DraftOn, Stale

T = TypeVar("T")
Run = Callable[[Callable[[], T]], Awaitable[T]]

WRITER_APP = "lakelog/writer"
CHECKPOINT_COMMITS = 100
CLEAN_INTERVAL_MS = 600_000
# Readers of an older snapshot have this long before its files and commits go.
OUT_OF_USE_MS = 3_600_000
HELD_ROWS_MAX = 1_000


class Fenced(Exception):
    """Another process writes the table now."""


@dataclass(frozen=True, slots=True)
class LedgerFile:
    path: str
    rows: int
    bytes: int


class Ledger:
    """`run` does work that computes, off the event loop if it likes."""

    def __init__(self, store: Store, name: str, schema: pa.Schema, clock: Clock, run: Run[Any]) -> None:
        self.name = name
        self._store = store
        self._schema = schema
        self._clock = clock
        self._run = run
        self._log = RowLog(store, name, clock, out_of_use_ms=OUT_OF_USE_MS)
        self._epoch = 0
        self._held: dict[str, pa.Table] = {}  # small files of our own: a rewrite need not read them back
        self._log.on_changes = self._changed
        self._cleaned_ms = clock.monotonic_ms()

    @property
    def files(self) -> list[LedgerFile]:
        """The table's files, oldest rows first."""
        live = self._log.state.live
        return [LedgerFile(path, rows_in(live[path]), live[path].size) for path in sorted(live)]

    async def exists(self) -> bool:
        await self._follow()
        return self._log.state.version >= 0

    async def claim(self) -> None:
        """Become the one who writes; make the table if there is none. Read it after this, not before."""
        await self._follow()
        while True:
            state, now_ms = self._log.state, self._clock.now_ms()
            epoch = _epoch_of(state) + 1
            commit_id = drafts.new_commit_id()
            actions = [
                drafts.commit_info(commit_id, "CLAIM", now_ms, parameters={"epoch": str(epoch)}),
                *(self._log.terms(self._schema) if state.metadata is None else ()),
                Action(txn=Txn(WRITER_APP, epoch)),
            ]
            before, fresh = _epoch_of(state), state.metadata is None

            def holds(now: RowState, before: int = before, fresh: bool = fresh) -> bool:
                return _epoch_of(now) == before and (now.metadata is None) == fresh

            try:
                await self._commit(DraftOn(commit_id, actions, holds))
            except Fenced:
                continue  # somebody else claimed it at the same moment; we come after
            self._epoch = epoch
            return

    async def check_claim(self) -> None:
        """Raises Fenced if another process has claimed the table since we did: who only reads hears of it by this."""
        await self._follow()
        if _epoch_of(self._log.state) != self._epoch:
            raise Fenced(self.name)

    async def read(self) -> pa.Table:
        """All rows, in no order."""
        while True:
            await self._follow()
            tables = await self._rows_of(sorted(self._log.state.live))
            if tables is not None:
                return pa.concat_tables(tables) if tables else self._schema.empty_table()

    async def append(self, first_key: int, rows: pa.Table) -> None:
        """Add rows as one file and one commit. `first_key` orders the files: it is that of the first row."""
        commit_id = drafts.new_commit_id()
        add = await self._write(first_key, rows, commit_id, data_change=True)
        info = drafts.commit_info(
            commit_id, "APPEND", self._clock.now_ms(), blind=True, metrics={"numOutputRows": str(rows.num_rows)}
        )
        epoch = self._epoch
        draft: DraftOn[RowState] = DraftOn(commit_id, [info, Action(add=add)], lambda now: _epoch_of(now) == epoch)
        await self._commit(draft, add)

    async def rewrite(
        self, files: Sequence[LedgerFile], make: Callable[[pa.Table], pa.Table], *, claimed: bool = True
    ) -> bool:
        """One file in the place of these; `make` says what is left of their rows. False if another rewrote them first.

        Who has not claimed the table may do it too, with `claimed=False`: then appends go on meanwhile.
        """
        tables = await self._rows_of([file.path for file in files])
        if not tables:
            return False
        rows = await self._run(lambda: make(pa.concat_tables(tables)))
        commit_id, now_ms, epoch = drafts.new_commit_id(), self._clock.now_ms(), self._epoch
        removes = [Action(remove=remove_of_rows(file.path, file.bytes, now_ms)) for file in files]
        adds = []
        if rows.num_rows:
            adds.append(await self._write(first_key_of(files[0].path), rows, commit_id, data_change=False))
        metrics = {"numRemovedFiles": str(len(files)), "numOutputRows": str(rows.num_rows)}
        info = drafts.commit_info(commit_id, "COMPACT", now_ms, metrics=metrics)
        actions = [info, *removes, *(Action(add=add) for add in adds)]

        def holds(now: RowState) -> bool:
            return (not claimed or _epoch_of(now) == epoch) and all(file.path in now.live for file in files)

        try:
            await self._commit(DraftOn(commit_id, actions, holds), *adds)
        except Fenced:
            if claimed and _epoch_of(self._log.state) != epoch:
                raise
            return False
        return True

    async def cut_log(self) -> None:
        """Write a checkpoint and let go of what is out of use, when it is time to."""
        if self._log.state.version - self._log.checkpoint_version >= CHECKPOINT_COMMITS:
            await self._log.doing("a checkpoint of", self._log.checkpoint())
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._cleaned_ms >= CLEAN_INTERVAL_MS:
            self._cleaned_ms = now_ms
            await self._log.doing("cleaning", self._log.clean())

    async def _follow(self) -> None:
        await self._log.doing("reading", self._log.refresh())
        self._log.state.require_sound()

    def _changed(self, changes: Changes) -> None:
        for path in changes.removed:
            self._held.pop(path, None)

    async def _rows_of(self, paths: Sequence[str]) -> list[pa.Table] | None:
        """None if one of the files is gone, because another process rewrote it."""
        missing = [path for path in paths if path not in self._held]
        reads = asyncio.gather(*(self._store.get(self._log.path(path)) for path in missing))
        found = zip(missing, await self._log.doing("reading", reads), strict=True)
        data = {path: content for path, content in found if content is not None}
        if len(data) < len(missing):
            return None
        held = dict(self._held)
        decode = partial(decode_rows, schema=self._schema, table=self.name)
        tables: list[pa.Table] = await self._run(
            lambda: [held[path] if path in held else decode(data[path]) for path in paths]
        )
        return tables

    async def _write(self, first_key: int, rows: pa.Table, commit_id: str, *, data_change: bool) -> Add:
        data: pa.Buffer = await self._run(lambda: encode_rows(rows))
        path = rows_path(first_key, commit_id)
        await self._log.doing("writing", self._store.put(self._log.path(path), data))
        if rows.num_rows <= HELD_ROWS_MAX:
            self._held[path] = rows
        return add_of_rows(path, rows.num_rows, data.size, self._clock.now_ms(), data_change=data_change)

    async def _commit(self, draft: DraftOn[RowState], *written: Add) -> None:
        landed = False
        try:
            await self._log.doing("a commit to", self._log.commit(draft))
            landed = True
        except Stale:
            await self._store.delete([self._log.path(add.path) for add in written])
            raise Fenced(self.name) from None
        finally:
            if not landed:  # or nobody can say: then whoever wants the rows finds them in the file
                for add in written:
                    self._held.pop(add.path, None)


def plan_fold(rows_by_file: Sequence[int], files_max: int) -> int:
    """How many of the newest files, oldest first in the list, are worth rewriting as one; 0 while they are few.

    A file is taken along while it is not much larger than all the newer ones together, so that however many rows there
    are, each is rewritten a few times only.
    """
    if len(rows_by_file) < files_max:
        return 0
    taken, total = 0, 0
    for rows in reversed(rows_by_file):
        if taken >= files_max // 2 and rows > 2 * total:
            break
        taken, total = taken + 1, total + rows
    return taken


def _epoch_of(state: RowState) -> int:
    """The number of the one who writes now; 0 before anybody has."""
    return state.txns.get(WRITER_APP, 0)
