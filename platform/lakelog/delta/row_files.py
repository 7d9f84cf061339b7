"""What every table of typed rows has in common, whoever writes it and for what: its state, its log, its files.

Such a table has no offsets and no partitions. Who may write to it, and what its rows mean, must not be known here.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.clock import Clock
from lakelog.delta import drafts
from lakelog.delta.actions import Action, Add, Metadata, Protocol, Remove
from lakelog.delta.checkpoint import Checkpoint, content_of
from lakelog.delta.state import Changes, check_protocol
from lakelog.delta.store import Store, StoreRefused, StoreUnavailable
from lakelog.delta.table import CommitLog, OutcomeUnknown, storage_error
from lakelog.delta.tombstones import Tombstones
from lakelog.errors import ErrorCode, LakelogError

T = TypeVar("T")

# No writer's commit comes so long after its file, also if its machine slept in between.
ON_ITS_WAY_MS = 86_400_000
_ROWS_FILE = re.compile(r"\d{20}-[0-9a-f]+\.parquet")

_DELTA_TYPES = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


class RowState:
    """Like that of a topic, but for what rows and files mean."""

    def __init__(self) -> None:
        self.version = -1
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.live: dict[str, Add] = {}
        self.txns: dict[str, int] = {}
        self.tombstones = Tombstones()

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
                self.tombstones.put(action.remove.path, action.remove.deletionTimestamp or 0)
                if self.live.pop(action.remove.path, None) is not None:
                    changes.removed.add(action.remove.path)
        for action in actions:  # in one commit a file may leave the table and another come in its place
            if action.add is not None:
                self.live[action.add.path] = action.add
        self.version = version
        return changes


class RowLog(CommitLog[RowState]):
    """`out_of_use_ms` is how long readers of an older snapshot have before its files and commits go."""

    def __init__(self, store: Store, name: str, clock: Clock, *, out_of_use_ms: int) -> None:
        super().__init__(store, name, clock)
        self._out_of_use_ms = out_of_use_ms

    def empty_state(self) -> RowState:
        return RowState()

    def checkpoint_content(self) -> Callable[[], Checkpoint]:
        self.state.tombstones.forget_before(self._clock.now_ms() - self._out_of_use_ms)
        return content_of(self.state, lambda add: msgspec.structs.replace(add, dataChange=False))

    async def doing(self, what: str, work: Awaitable[T]) -> T:
        """The work, whose failures are told as those of this table."""
        try:
            return await work
        except (StoreUnavailable, StoreRefused, OutcomeUnknown) as error:
            raise storage_error(error, f"{what} {self.name}") from error

    async def clean(self) -> None:
        """Let go of what is out of use: commits that a checkpoint stands for, and files of writers that died before
        their commit or before the file was whole.
        """
        now_ms = self._clock.now_ms()
        await self.clean_log(before_ms=now_ms - self._out_of_use_ms)
        await self._delete_orphans(before_ms=now_ms - max(self._out_of_use_ms, ON_ITS_WAY_MS))

    async def _delete_orphans(self, *, before_ms: int) -> None:
        old = [file.path.removeprefix(self.path("")) for file in await self.store.files(self.name, before_ms=before_ms)]
        doubtful = [path for path in old if _ROWS_FILE.fullmatch(path) and path not in self.state.live]
        unfinished = [file.path for file in await self.store.unfinished(self.name) if file.modified_ms < before_ms]
        if doubtful:
            await self.refresh()  # what came into the table since the folder was listed is no orphan
            removed_ms = self.state.tombstones.times_ms()
            doubtful = [path for path in doubtful if path not in self.state.live and path not in removed_ms]
        await self.store.delete([*map(self.path, doubtful), *unfinished])

    def terms(self, schema: pa.Schema) -> list[Action]:
        """What makes a table of rows, in its first commit."""
        fields = [drafts.schema_field(each.name, _DELTA_TYPES[each.type]) for each in schema]
        kept = f"interval {self._out_of_use_ms // 1000} seconds"
        metadata = Metadata(
            id=str(uuid.uuid4()),
            schemaString=msgspec.json.encode({"type": "struct", "fields": fields}).decode(),
            partitionColumns=[],
            configuration={
                "delta.enableDeletionVectors": "false",
                "delta.logRetentionDuration": kept,
                "delta.deletedFileRetentionDuration": kept,
            },
            createdTime=self._clock.now_ms(),
        )
        return [Action(protocol=Protocol(minReaderVersion=1, minWriterVersion=2)), Action(metaData=metadata)]


def encode_rows(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return sink.getvalue()


def decode_rows(data: bytes, schema: pa.Schema, table: str) -> pa.Table:
    rows = pq.read_table(pa.BufferReader(data))
    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise LakelogError(
            ErrorCode.UNSUPPORTED_TABLE,
            f"{table!r} is the platform's own, but has a file of somebody else's, without a column {missing[0]!r}: "
            "RESTORE the table to a version before it, or delete its folder if it holds nothing else",
        )
    return rows.select(schema.names).cast(schema)


def rows_path(first_key: int, commit_id: str) -> str:
    """Where rows go. The names of files are in the order of their first keys."""
    return f"{first_key:020d}-{commit_id}.parquet"


def first_key_of(path: str) -> int:
    return int(path.split("-", 1)[0])


def add_of_rows(path: str, rows: int, size: int, now_ms: int, *, data_change: bool) -> Add:
    return Add(path, {}, size, now_ms, data_change, msgspec.json.encode(_Stats(rows)).decode())


def remove_of_rows(path: str, size: int, now_ms: int) -> Remove:
    """Of a file whose rows others have taken over."""
    return Remove(path, False, now_ms, True, {}, size)


def rows_in(add: Add) -> int:
    return msgspec.json.decode(add.stats or "{}", type=_Stats).numRecords


class _Stats(msgspec.Struct):
    numRecords: int = 0
