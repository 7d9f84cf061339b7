"""Which files have left a table lately, and when: kept for those who hold on to an older snapshot.

On a topic whose tail is merged all the time there are many more of these than of files in the table, by
`file.delete.delay.ms`. So all but the newest are kept as Arrow columns, a third of what a dictionary would take, and go
into a checkpoint as they are, without a Python object for each.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.model.batch import Int64s

SCHEMA = pa.schema([("path", pa.string()), ("removed_ms", pa.int64())])
NONE = SCHEMA.empty_table()
BLOCK_FILES = 4096


class _Block:
    """Paths and times that no longer change; those before `head` have been forgotten."""

    __slots__ = ("head", "paths", "times_ms")

    def __init__(self, paths: pa.Array, times_ms: Int64s) -> None:
        self.paths = paths
        self.times_ms = times_ms
        self.head = 0

    @property
    def columns(self) -> tuple[pa.Array, Int64s]:
        return self.paths.slice(self.head), self.times_ms[self.head :]

    def holds_any(self, wanted: pa.Array) -> bool:
        if len(wanted) == 1:  # the one file of a merge: by far the most frequent, and three times as fast
            return bool(pc.index(self.paths, wanted[0]).as_py() >= 0)
        return bool(pc.any(pc.is_in(self.paths, value_set=wanted)).as_py())

    def drop(self, wanted: pa.Array) -> None:
        paths, times_ms = self.columns
        stays = pc.invert(pc.is_in(paths, value_set=wanted))
        self.paths, self.times_ms, self.head = paths.filter(stays), times_ms[stays.to_numpy(zero_copy_only=False)], 0


class Tombstones:
    """In the order in which they were put, which is that of their times, but for clocks that differ."""

    def __init__(self) -> None:
        self._blocks: deque[_Block] = deque()
        self._newest: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(block.times_ms) - block.head for block in self._blocks) + len(self._newest)

    def put(self, path: str, removed_ms: int) -> None:
        self._newest[path] = removed_ms
        if len(self._newest) >= BLOCK_FILES:
            self._blocks.append(_block_of(self._newest))
            self._newest = OrderedDict()

    def extend(self, removed: pa.Table) -> None:
        """Take over those of a checkpoint, the oldest first."""
        for batch in removed.to_batches(max_chunksize=BLOCK_FILES):
            self._blocks.append(_Block(batch.column("path"), batch.column("removed_ms").to_numpy()))

    def discard(self, paths: Collection[str]) -> None:
        """Files that are in the table again. To look them up takes as long as there are tombstones."""
        for path in paths:
            self._newest.pop(path, None)
        wanted = pa.array(paths, pa.string())
        for block in self._blocks:
            if block.holds_any(wanted):
                block.drop(wanted)

    def forget_before(self, time_ms: int) -> None:
        """Let go of those that are older, up to the first that is not."""
        while self._blocks:
            block = self._blocks[0]
            while block.head < len(block.times_ms) and block.times_ms[block.head] < time_ms:
                block.head += 1
            if block.head < len(block.times_ms):
                return
            self._blocks.popleft()
        while self._newest and next(iter(self._newest.values())) < time_ms:
            self._newest.popitem(last=False)

    def columns(self) -> pa.Table:
        """All of them, as they are now: what is put or forgotten later does not change it."""
        newest = [_block_of(self._newest)] if self._newest else []
        columns = [block.columns for block in (*self._blocks, *newest)]
        return pa.table(
            [
                pa.chunked_array([paths for paths, _ in columns], pa.string()),
                pa.chunked_array([pa.array(times_ms) for _, times_ms in columns], pa.int64()),
            ],
            schema=SCHEMA,
        )

    def times_ms(self) -> dict[str, int]:
        """When each of the files left the table: for those who look many of them up."""
        columns = self.columns()
        return dict(zip(columns.column("path").to_pylist(), columns.column("removed_ms").to_pylist(), strict=True))


def in_order(removed: Sequence[pa.Table]) -> pa.Table:
    """Those of several files of a checkpoint, which other writers put down in any order."""
    return pa.concat_tables([NONE, *removed]).sort_by([("removed_ms", "ascending"), ("path", "ascending")])


def _block_of(times_ms: OrderedDict[str, int]) -> _Block:
    return _Block(pa.array(times_ms.keys(), pa.string()), np.fromiter(times_ms.values(), np.int64, len(times_ms)))
