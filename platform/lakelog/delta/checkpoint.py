"""Checkpoints: the whole state of a table in one Parquet file, so that opening it does not read its history.

Written from the state that the process holds, not by loading the table again, so the cost follows the files and not
the commits. Removed files are carried as long as `file.delete.delay.ms` keeps them, so that no vacuum takes them from a
reader of an older snapshot. There may be many more of them than of anything else on a topic whose tail is merged all
the time, so they are written and read by columns and not row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.delta.actions import Action, Remove, Txn, add_of
from lakelog.delta.state import TableState

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


def actions_of(state: TableState) -> list[Action]:
    """The state as actions; applying them to an empty state gives it back."""
    actions = [Action(protocol=state.protocol), Action(metaData=state.metadata)]
    actions += [Action(txn=Txn(app, version)) for app, version in state.txns.items()]
    actions += [Action(add=add_of(segment, data_change=False)) for segment in state.live.values()]
    actions += [Action(remove=Remove(path, False, removed_ms)) for path, removed_ms in state.tombstones.items()]
    return actions


def encode_checkpoint(actions: Sequence[Action]) -> pa.Buffer:
    rows = [msgspec.to_builtins(action) for action in actions if action.remove is None]
    removes = [action.remove for action in actions if action.remove is not None]
    table = pa.concat_tables([pa.Table.from_pylist(rows, schema=_SCHEMA), _removal_rows(removes)])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy")
    return sink.getvalue()


def _removal_rows(removes: Sequence[Remove]) -> pa.Table:
    kind = _SCHEMA.field("remove").type
    given = {
        "path": [remove.path for remove in removes],
        "deletionTimestamp": [remove.deletionTimestamp for remove in removes],
        "dataChange": [remove.dataChange for remove in removes],
    }
    fields = [pa.array(given.get(field.name, [None] * len(removes)), field.type) for field in kind]
    nothing = {field.name: pa.nulls(len(removes), field.type) for field in _SCHEMA}
    return pa.table({**nothing, "remove": pa.StructArray.from_arrays(fields, fields=list(kind))}, schema=_SCHEMA)


def decode_checkpoint(data: bytes) -> list[Action]:
    file = pq.ParquetFile(pa.BufferReader(data))
    table = file.read(columns=[name for name in _SCHEMA.names if name in file.schema_arrow.names])
    actions: list[Action] = []
    if "remove" in table.column_names:
        removes = table.column("remove")
        actions += _removals(removes.drop_null())
        table = table.filter(pc.is_null(removes)).drop_columns("remove")
    for row in table.to_pylist():
        filled = {kind: _without_nulls(content) for kind, content in row.items() if content is not None}
        if filled:
            actions.append(msgspec.convert(filled, Action))
    return actions


def _removals(removes: pa.ChunkedArray) -> list[Action]:
    """The oldest first: other writers put them down in any order."""
    paths = pc.struct_field(removes, "path").to_pylist()
    times = pc.struct_field(removes, "deletionTimestamp").fill_null(0).to_pylist()
    in_time = sorted(zip(times, paths, strict=True))
    return [Action(remove=Remove(path, False, removed_ms)) for removed_ms, path in in_time]


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
