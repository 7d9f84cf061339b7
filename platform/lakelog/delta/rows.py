"""A plain Delta table of rows, for what the platform writes down about itself: append and read, by any process.

It has no offsets, no partitions and no leader. Appends of several processes never conflict. Every FOLD_FILES appends
its files become one, rows that are too old are left out, and the log is cut, so it stays small for ever.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakelog
from lakelog.clock import Clock
from lakelog.delta.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove, decode_commit, encode_commit
from lakelog.delta.checkpoint import LAST_CHECKPOINT, LastCheckpoint, decode_checkpoint, decode_hint, encode_checkpoint
from lakelog.delta.store import Store

FOLD_FILES = 64
# Readers of an older snapshot have this long before its files and commits go.
OUT_OF_USE_MS = 86_400_000

_DELTA_TYPES = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


class RowTable:
    """`time_column` is the one that says how old a row is; rows are kept for `kept_ms`.

    Make one where it is needed and let it go: who keeps one for a day without a look may find the log cut under it.
    """

    def __init__(
        self, store: Store, name: str, schema: pa.Schema, clock: Clock, *, time_column: str, kept_ms: int
    ) -> None:
        self.name = name
        self._store = store
        self._schema = schema
        self._clock = clock
        self._time_column = time_column
        self._kept_ms = kept_ms
        self._version = -1
        self._metadata: Metadata | None = None
        self._live: dict[str, Add] = {}

    async def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, which other processes may do at the same time. Makes the table if there is none."""
        add = await self._write(pa.Table.from_pylist(list(rows), schema=self._schema), data_change=True)
        await self._follow()
        while not await self._commit("APPEND", [Action(add=add)]):
            pass  # somebody else was faster: nothing that they do can be in the way of another row
        if len(self._live) >= FOLD_FILES:
            await self._fold()

    async def read(self) -> pa.Table:
        """All rows, in no order."""
        await self._follow()
        tables = []
        for path in self._live:
            data = await self._store.get(self._path(path))
            if data is not None:  # folded into another this moment, and its rows are old enough to be gone
                tables.append(pq.read_table(pa.BufferReader(data)).select(self._schema.names).cast(self._schema))
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    def _path(self, inside: str) -> str:
        return f"{self.name}/{inside}"

    async def _write(self, rows: pa.Table, *, data_change: bool) -> Add:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue()
        now_ms = self._clock.now_ms()
        path = f"{now_ms:020d}-{secrets.token_hex(8)}.parquet"
        await self._store.put(self._path(path), data)
        stats = msgspec.json.encode({"numRecords": rows.num_rows}).decode()
        return Add(path, {}, data.size, now_ms, data_change, stats)

    # -- the log -----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Take in what was committed since, or all of it at first."""
        if self._version < 0:
            data = await self._store.get(self._path(LAST_CHECKPOINT))
            if data is not None:
                hint = decode_hint(data)
                checkpoint = await self._store.get(self._path(hint.paths[0]))
                if checkpoint is not None:
                    self._apply(hint.version, decode_checkpoint(checkpoint))
        while (data := await self._store.get(self._path(_commit_path(self._version + 1)))) is not None:
            self._apply(self._version + 1, decode_commit(data))

    def _apply(self, version: int, actions: Sequence[Action]) -> None:
        for action in actions:
            if action.add is not None:
                self._live[action.add.path] = action.add
            elif action.remove is not None:
                self._live.pop(action.remove.path, None)
            elif action.metaData is not None:
                self._metadata = action.metaData
        self._version = version

    async def _commit(self, operation: str, actions: Sequence[Action]) -> bool:
        """Put the actions as the next version. False if somebody else did, which is then taken in."""
        now_ms, commit_id = self._clock.now_ms(), secrets.token_hex(8)
        info = CommitInfo(
            now_ms, operation, isBlindAppend=False, engineInfo=f"lakelog/{lakelog.__version__}", txnId=commit_id
        )
        whole = [Action(commitInfo=info), *(self._terms(now_ms) if self._version < 0 else ()), *actions]
        path = self._path(_commit_path(self._version + 1))
        if not await self._store.create(path, encode_commit(whole)):
            await self._follow()
            return False
        self._apply(self._version + 1, whole)
        return True

    def _terms(self, now_ms: int) -> list[Action]:
        fields = [
            {"name": each.name, "type": _DELTA_TYPES[each.type], "nullable": True, "metadata": {}}
            for each in self._schema
        ]
        schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
        metadata = Metadata(str(uuid.uuid4()), schema, [], {}, createdTime=now_ms)
        return [Action(protocol=Protocol(minReaderVersion=1, minWriterVersion=2)), Action(metaData=metadata)]

    # -- keeping it small --------------------------------------------------------------------------------------

    async def _fold(self) -> None:
        """One file in the place of many. If somebody else commits meanwhile it is left to the next append."""
        old, rows = list(self._live.values()), await self.read()
        since_us = (self._clock.now_ms() - self._kept_ms) * 1000
        rows = rows.filter(pc.greater_equal(rows.column(self._time_column).cast(pa.int64()), since_us))
        now_ms = self._clock.now_ms()
        add = await self._write(rows, data_change=False)
        removes = [Action(remove=Remove(each.path, False, now_ms)) for each in old]
        if not await self._commit("FOLD", [*removes, Action(add=add)]):
            return
        protocol = Action(protocol=Protocol(minReaderVersion=1, minWriterVersion=2))
        adds = [Action(add=msgspec.structs.replace(each, dataChange=False)) for each in self._live.values()]
        actions = [protocol, Action(metaData=self._metadata), *adds, *removes]
        hint = LastCheckpoint(self._version, size=len(actions))
        await self._store.put(self._path(hint.paths[0]), encode_checkpoint(actions))
        await self._store.put(self._path(LAST_CHECKPOINT), msgspec.json.encode(hint))
        await self._drop_old(now_ms - OUT_OF_USE_MS)

    async def _drop_old(self, before_ms: int) -> None:
        newest = self._path(_commit_path(self._version))
        doomed = []
        for file in await self._store.files(self.name):
            inside = file.path.removeprefix(self._path(""))
            is_log = inside.startswith("_delta_log/0") and file.path < newest
            is_data = "/" not in inside and inside not in self._live
            if file.modified_ms < before_ms and (is_log or is_data):
                doomed.append(file.path)
        await self._store.delete(doomed)


def _commit_path(version: int) -> str:
    return f"_delta_log/{version:020d}.json"
