"""What compaction is, in ten lines, and histories to try it on."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

TOMBSTONES_KEPT_MS = 10_000

Record = tuple[int, bytes, bytes | None]
Pair = tuple[bytes, bytes | None]


class CompactionModel:
    """One partition. `reach_ms` is how old a record has to be to be out of the active segment and of the lag."""

    def __init__(self, reach_ms: int, tombstones_kept_ms: int) -> None:
        self.records: list[Record] = []
        self.next_offset = 0
        self._reach_ms = reach_ms
        self._tombstones_kept_ms = tombstones_kept_ms
        self._written_ms: dict[int, int] = {}
        self._first_cleaned_ms: dict[int, int] = {}

    def append(self, some: Sequence[Pair], now_ms: int) -> None:
        for key, value in some:
            self.records.append((self.next_offset, key, value))
            self._written_ms[self.next_offset] = now_ms
            self.next_offset += 1

    def compact(self, now_ms: int) -> None:
        sealed = [record for record in self.records if now_ms - self._written_ms[record[0]] >= self._reach_ms]
        latest = {key: offset for offset, key, _ in sealed}
        for record in sealed:
            offset, key, value = record
            cleaned_ms = self._first_cleaned_ms.get(offset)
            had_its_time = cleaned_ms is not None and now_ms - cleaned_ms >= self._tombstones_kept_ms
            self._first_cleaned_ms.setdefault(offset, now_ms)
            if latest[key] != offset or (value is None and had_its_time):
                self.records.remove(record)


keys = st.sampled_from([b"", b"a", b"b", b"\x00\xff", b"long" * 50])
values = st.one_of(st.none(), st.just(b""), st.binary(max_size=20))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=6)
