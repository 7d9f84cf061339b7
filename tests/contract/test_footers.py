"""Footers that were read once are kept within a limit of bytes, those that were asked for last."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakelog.delta import parquet
from lakelog.delta.parquet import encode_segment
from lakelog.delta.reader import FOOTER_BYTES, FOOTER_BYTES_PER_GROUP, SegmentReader
from lakelog.delta.store import Store, open_store
from lakelog.model.batch import STORED_SCHEMA

GROUPS = 8
ONE_FOOTER_BYTES = FOOTER_BYTES + GROUPS * FOOTER_BYTES_PER_GROUP


class Counting:
    """A store that says which files were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        self.read.append(path)
        return await self._store.read_ranges(path, ranges)


async def files_in(store: Store, monkeypatch: pytest.MonkeyPatch, names: str) -> int:
    """Files of GROUPS row groups each; returns how large they are."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1024)
    rows = pa.table(
        {
            "offset": pa.array(range(GROUPS), pa.int64()),
            "timestamp": pa.array(range(GROUPS), STORED_SCHEMA.field("timestamp").type),
            "key": pa.nulls(GROUPS, pa.binary()),
            "value": [b"x" * 1024] * GROUPS,
            "headers": pa.nulls(GROUPS, STORED_SCHEMA.field("headers").type),
        },
        schema=STORED_SCHEMA,
    )
    data = encode_segment(rows.to_batches()[0], "none")
    for name in names:
        await store.put(name, data)
    return int(data.size)


@pytest.mark.parametrize("footers_kept", [0, 1, 2])
async def test_footers_are_kept_within_a_limit_of_bytes(footers_kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counting(open_store(f"memory://{uuid.uuid4().hex}"))
    size = await files_in(store, monkeypatch, "abc")
    reader = SegmentReader(store, None, 0, footers_kept * ONE_FOOTER_BYTES)
    for name in "abac":
        assert len((await reader.footer(name, size)).groups) == GROUPS
    store.read.clear()
    for name in "cab":  # the newest first, so that none pushes out one that is asked for later
        await reader.footer(name, size)
    assert store.read == list("cab")[footers_kept:]
