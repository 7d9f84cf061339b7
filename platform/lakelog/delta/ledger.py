"""A Delta table of typed rows that one process at a time writes: what the platform itself has to remember.

Owns the table: its files, who may write to it, and that it stays small. A writer claims it first, with a number (an
epoch) that stands in the log as a `txn`. Whoever claims it later has a higher one, and from that commit on nothing of
the earlier writer gets in: it is told so by `Fenced`. Rewrites of other processes (a compaction job) are no conflict.
What the rows mean, and which of them may be left out of a rewrite, must not be known here.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.clock import Clock
from lakelog.delta import drafts
from lakelog.delta.actions import Action, Add, Metadata, Protocol, Remove, Txn
from lakelog.delta.state import Changes, check_protocol
from lakelog.delta.store import Store, StoreRefused, StoreUnavailable
from lakelog.delta.table import CommitLog, DraftOn, OutcomeUnknown, Stale, storage_error

T = TypeVar("T")
Run = Callable[[Callable[[], T]], Awaitable[T]]

WRITER_APP = "lakelog/writer"
CHECKPOINT_COMMITS = 100
CLEAN_INTERVAL_MS = 600_000
# Readers of an older snapshot have this long before its files and commits go.
OUT_OF_USE_MS = 3_600_000
HELD_ROWS_MAX = 1_000

_DELTA_TYPES = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


class Fenced(Exception):
    """Another process writes the table now."""


class LedgerState:
    """Like that of a topic, but for what rows and files mean."""

    def __init__(self) -> None:
        self.version = -1
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.live: dict[str, Add] = {}
        self.txns: dict[str, int] = {}
        self.tombstones: OrderedDict[str, int] = OrderedDict()

    @property
    def epoch(self) -> int:
        """The number of the one who writes now; 0 before anybody has."""
        return self.txns.get(WRITER_APP, 0)

    def require_sound(self) -> None:
        if self.protocol is not None:
            check_protocol(self.protocol)

    def apply(self, version: int, actions: Sequence[Action]) -> Changes:
        changes = Changes(commits=1)
        for action in actions:
            if action.protocol is not None:
                self.protocol = action.protocol
            elif action.metaData is not None:
                self.metadata = action.metaData
            elif action.txn is not None:
                self.txns[action.txn.appId] = action.txn.version
            elif action.remove is not None:
                self.tombstones[action.remove.path] = action.remove.deletionTimestamp or 0
                if self.live.pop(action.remove.path, None) is not None:
                    changes.removed.add(action.remove.path)
        for action in actions:  # in one commit a file may leave the table and another come in its place
            if action.add is not None:
                self.live[action.add.path] = action.add
        self.version = version
        return changes


class _LedgerLog(CommitLog[LedgerState]):
    def empty_state(self) -> LedgerState:
        return LedgerState()

    def checkpoint_actions(self) -> list[Action]:
        state, since_ms = self.state, self._clock.now_ms() - OUT_OF_USE_MS
        while state.tombstones and next(iter(state.tombstones.values())) < since_ms:
            state.tombstones.popitem(last=False)
        actions = [Action(protocol=state.protocol), Action(metaData=state.metadata)]
        actions += [Action(txn=Txn(app, version)) for app, version in state.txns.items()]
        actions += [Action(add=msgspec.structs.replace(add, dataChange=False)) for add in state.live.values()]
        actions += [Action(remove=Remove(path, False, removed_ms)) for path, removed_ms in state.tombstones.items()]
        return actions


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
        self._log = _LedgerLog(store, name, clock)
        self._epoch = 0
        self._held: dict[str, pa.Table] = {}  # small files of our own: a rewrite need not read them back
        self._log.on_changes = self._changed
        self._cleaned_ms = clock.monotonic_ms()

    @property
    def files(self) -> list[LedgerFile]:
        """The table's files, oldest rows first."""
        live = self._log.state.live
        return [LedgerFile(path, _row_count(live[path]), live[path].size) for path in sorted(live)]

    async def exists(self) -> bool:
        await self._follow()
        return self._log.state.version >= 0

    async def claim(self) -> None:
        """Become the one who writes; make the table if there is none. Read it after this, not before."""
        await self._follow()
        while True:
            state, now_ms = self._log.state, self._clock.now_ms()
            epoch = state.epoch + 1
            commit_id = drafts.new_commit_id()
            actions = [
                drafts.commit_info(commit_id, "CLAIM", now_ms, parameters={"epoch": str(epoch)}),
                *(self._terms(now_ms) if state.metadata is None else ()),
                Action(txn=Txn(WRITER_APP, epoch)),
            ]
            before, fresh = state.epoch, state.metadata is None

            def holds(now: LedgerState, before: int = before, fresh: bool = fresh) -> bool:
                return now.epoch == before and (now.metadata is None) == fresh

            try:
                await self._commit(DraftOn(commit_id, actions, holds))
            except Fenced:
                continue  # somebody else claimed it at the same moment; we come after
            self._epoch = epoch
            return

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
        draft: DraftOn[LedgerState] = DraftOn(commit_id, [info, Action(add=add)], lambda now: now.epoch == epoch)
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
        removes = [Action(remove=Remove(file.path, False, now_ms, True, {}, file.bytes)) for file in files]
        adds = []
        if rows.num_rows:
            adds.append(await self._write(_first_key(files[0].path), rows, commit_id, data_change=False))
        metrics = {"numRemovedFiles": str(len(files)), "numOutputRows": str(rows.num_rows)}
        info = drafts.commit_info(commit_id, "COMPACT", now_ms, metrics=metrics)
        actions = [info, *removes, *(Action(add=add) for add in adds)]

        def holds(now: LedgerState) -> bool:
            return (not claimed or now.epoch == epoch) and all(file.path in now.live for file in files)

        try:
            await self._commit(DraftOn(commit_id, actions, holds), *adds)
        except Fenced:
            if claimed and self._log.state.epoch != epoch:
                raise
            return False
        return True

    async def cut_log(self) -> None:
        """Write a checkpoint and let go of what is out of use, when it is time to."""
        if self._log.state.version - self._log.checkpoint_version >= CHECKPOINT_COMMITS:
            await self._doing("a checkpoint of", self._log.checkpoint())
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._cleaned_ms >= CLEAN_INTERVAL_MS and self._log.checkpoint_version >= 0:
            self._cleaned_ms = now_ms
            await self._doing("cleaning", self._log.clean_log(before_ms=self._clock.now_ms() - OUT_OF_USE_MS))

    async def _follow(self) -> None:
        await self._doing("reading", self._log.refresh())
        self._log.state.require_sound()

    def _changed(self, changes: Changes) -> None:
        for path in changes.removed:
            self._held.pop(path, None)

    async def _rows_of(self, paths: Sequence[str]) -> list[pa.Table] | None:
        """None if one of the files is gone, because another process rewrote it."""
        missing = [path for path in paths if path not in self._held]
        reads = asyncio.gather(*(self._store.get(self._log.path(path)) for path in missing))
        data = dict(zip(missing, await self._doing("reading", reads), strict=True))
        if None in data.values():
            return None
        names, schema = self._schema.names, self._schema

        def decoded(path: str) -> pa.Table:
            return pq.read_table(pa.BufferReader(data[path])).select(names).cast(schema)

        held = dict(self._held)
        tables: list[pa.Table] = await self._run(
            lambda: [held[path] if path in held else decoded(path) for path in paths]
        )
        return tables

    async def _write(self, first_key: int, rows: pa.Table, commit_id: str, *, data_change: bool) -> Add:
        data: pa.Buffer = await self._run(lambda: _encode(rows))
        path = f"{first_key:020d}-{commit_id}.parquet"
        await self._doing("writing", self._store.put(self._log.path(path), data))
        if rows.num_rows <= HELD_ROWS_MAX:
            self._held[path] = rows
        stats = msgspec.json.encode({"numRecords": rows.num_rows}).decode()
        return Add(path, {}, data.size, self._clock.now_ms(), data_change, stats)

    async def _commit(self, draft: DraftOn[LedgerState], *written: Add) -> None:
        try:
            await self._doing("a commit to", self._log.commit(draft))
        except Stale:
            for add in written:
                self._held.pop(add.path, None)
            await self._store.delete([self._log.path(add.path) for add in written])
            raise Fenced(self.name) from None

    async def _doing(self, what: str, work: Awaitable[T]) -> T:
        try:
            return await work
        except (StoreUnavailable, StoreRefused, OutcomeUnknown) as error:
            raise storage_error(error, f"{what} {self.name}") from error

    def _terms(self, now_ms: int) -> list[Action]:
        fields = [drafts.schema_field(each.name, _DELTA_TYPES[each.type]) for each in self._schema]
        metadata = Metadata(
            id=str(uuid.uuid4()),
            schemaString=msgspec.json.encode({"type": "struct", "fields": fields}).decode(),
            partitionColumns=[],
            configuration={
                "delta.enableDeletionVectors": "false",
                "delta.logRetentionDuration": f"interval {OUT_OF_USE_MS // 1000} seconds",
                "delta.deletedFileRetentionDuration": f"interval {OUT_OF_USE_MS // 1000} seconds",
            },
            createdTime=now_ms,
        )
        return [Action(protocol=Protocol(minReaderVersion=1, minWriterVersion=2)), Action(metaData=metadata)]


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


def _encode(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return sink.getvalue()


def _first_key(path: str) -> int:
    return int(path.split("-", 1)[0])


class _Stats(msgspec.Struct):
    numRecords: int = 0


def _row_count(add: Add) -> int:
    return msgspec.json.decode(add.stats or "{}", type=_Stats).numRecords
