"""Checkpoints: the whole state of a table in one Parquet file, so that opening it does not read its history.

Written from the state that the process holds, not by loading the table again, so the cost follows the files and not
the commits. Removed files are carried as long as `file.delete.delay.ms` keeps them, so that no vacuum takes them from a
reader of an older snapshot. There may be many more of them than of anything else on a topic whose tail is merged all
the time, so they are written and read by columns and not row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.delta import actions, tombstones
from lakelog.delta.actions import Action, Add, Txn, add_of
from lakelog.delta.state import TableState
from lakelog.delta.tombstones import Tombstones, in_order

F = TypeVar("F", covariant=True)

LAST_CHECKPOINT = "_delta_log/_last_checkpoint"

_TEXTS = pa.map_(pa.string(), pa.string())
_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "tags": _TEXTS,
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
    }
)


class LastCheckpoint(msgspec.Struct, omit_defaults=True):
    """The hint that readers start from: the newest checkpoint's version and, if it has several, its parts."""

    version: int
    size: int = 0
    parts: int | None = None

    @property
    def paths(self) -> list[str]:
        stem = f"_delta_log/{self.version:020d}.checkpoint"
        if self.parts is None:
            return [f"{stem}.parquet"]
        return [f"{stem}.{part:010d}.{self.parts:010d}.parquet" for part in range(1, self.parts + 1)]


def decode_hint(data: bytes) -> LastCheckpoint:
    return msgspec.json.decode(data, type=LastCheckpoint)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a table says: actions, and beside them the files that left it lately, as columns."""

    actions: list[Action]
    removed: pa.Table

    def __len__(self) -> int:
        return len(self.actions) + int(self.removed.num_rows)


class Summed(Protocol[F]):
    """What a log adds up to, of whatever kind the table is; `F` is what it keeps of a file."""

    @property
    def protocol(self) -> actions.Protocol | None: ...
    @property
    def metadata(self) -> actions.Metadata | None: ...
    @property
    def txns(self) -> Mapping[str, int]: ...
    @property
    def live(self) -> Mapping[str, F]: ...
    @property
    def tombstones(self) -> Tombstones: ...


def checkpoint_of(state: TableState) -> Callable[[], Checkpoint]:
    """Of a topic."""
    return content_of(state, partial(add_of, data_change=False))


def content_of(state: Summed[F], as_add: Callable[[F], Add]) -> Callable[[], Checkpoint]:
    """The state as it is now; taking it into an empty one gives it back. To make it takes a while where there are many
    files, and the state may go on meanwhile.
    """
    protocol, metadata = state.protocol, state.metadata
    txns, files, removed = dict(state.txns), list(state.live.values()), state.tombstones.columns()

    def content() -> Checkpoint:
        found = [Action(protocol=protocol), Action(metaData=metadata)]
        found += [Action(txn=Txn(app, version)) for app, version in txns.items()]
        found += [Action(add=as_add(file)) for file in files]
        return Checkpoint(found, removed)

    return content


def encode_checkpoint(content: Checkpoint) -> pa.Buffer:
    rows = pa.Table.from_pylist([msgspec.to_builtins(action) for action in content.actions], schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables([rows, _removal_rows(content.removed)]), sink, compression="snappy")
    return sink.getvalue()


def _removal_rows(removed: pa.Table) -> pa.Table:
    kind, count = _SCHEMA.field("remove").type, removed.num_rows
    given = {
        "path": removed.column("path").combine_chunks(),
        "deletionTimestamp": removed.column("removed_ms").combine_chunks(),
        "dataChange": pa.repeat(False, count),
    }
    fields = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in kind]
    nothing = {field.name: pa.nulls(count, field.type) for field in _SCHEMA}
    return pa.table({**nothing, "remove": pa.StructArray.from_arrays(fields, fields=list(kind))}, schema=_SCHEMA)


def decode_checkpoint(parts: Sequence[bytes]) -> Checkpoint:
    """Of all the files that it consists of."""
    actions: list[Action] = []
    removed: list[pa.Table] = []
    for data in parts:
        file = pq.ParquetFile(pa.BufferReader(data))
        table = file.read(columns=[name for name in _SCHEMA.names if name in file.schema_arrow.names])
        if "remove" in table.column_names:
            removes = table.column("remove")
            removed.append(_removals(removes.drop_null()))
            table = table.filter(pc.is_null(removes)).drop_columns("remove")
        for row in table.to_pylist():
            filled = {kind: _without_nulls(content) for kind, content in row.items() if content is not None}
            if filled:
                actions.append(msgspec.convert(filled, Action))
    return Checkpoint(actions, in_order(removed))


def _removals(removes: pa.ChunkedArray) -> pa.Table:
    times_ms = pc.struct_field(removes, "deletionTimestamp").fill_null(0).cast(pa.int64())
    return pa.table([pc.struct_field(removes, "path").cast(pa.string()), times_ms], schema=tombstones.SCHEMA)


def _without_nulls(content: dict[str, Any]) -> dict[str, Any]:
    """Arrow gives maps as pairs and absent fields as None; actions want dicts and want them left out."""
    clean: dict[str, Any] = {}
    for name, value in content.items():
        if value is None:
            continue
        if isinstance(value, dict):
            clean[name] = _without_nulls(value)
        elif isinstance(value, list) and name in ("partitionValues", "tags", "configuration", "options"):
            clean[name] = dict(value)
        else:
            clean[name] = value
    return clean
