"""Checkpoints: the whole state of a table in one Parquet file, so that opening it does not read its history.

Written from the state that the process holds, not by loading the table again, so the cost follows the live files
and not the commits. Removed files are not carried: readers do not need them, and the log keeps each removal for as
long as the file itself (`delta.log.retention.ms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.delta.actions import Action, Txn, add_of
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
    return actions


def encode_checkpoint(actions: Sequence[Action]) -> pa.Buffer:
    rows = [msgspec.to_builtins(action) for action in actions]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), sink, compression="snappy")
    return sink.getvalue()


def decode_checkpoint(data: bytes) -> list[Action]:
    file = pq.ParquetFile(pa.BufferReader(data))
    present = [name for name in ("txn", "add", "metaData", "protocol") if name in file.schema_arrow.names]
    actions: list[Action] = []
    for row in file.read(columns=present).to_pylist():
        filled = {kind: _without_nulls(content) for kind, content in row.items() if content is not None}
        if filled:
            actions.append(msgspec.convert(filled, Action))
    return actions


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
