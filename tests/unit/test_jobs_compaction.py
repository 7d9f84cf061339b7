"""Compaction's decisions over a long history, without files: what survives is what the model says."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_jobs.dirtiness import dirtiness
from compaction_jobs.packing import pack_small
from compaction_jobs.runs import plan_runs
from compaction_jobs.sealed import sealed
from compaction_jobs.tombstones import cleaned_ranges, cleaned_tag
from lakelog.config import TopicConfig
from lakelog.model.segment import SEALED_TIER, Segment
from tests.compaction_model import TOMBSTONES_KEPT_MS, CompactionModel, Pair, Record, pairs
from tests.unit.segments import segment

SEAL_MS = 1000
RECORD_BYTES = 100
SEGMENT_BYTES = 1024  # of few records, so that there are several


@dataclass
class Partition:
    """Does what the decisions say, to records in memory."""

    config: TopicConfig
    files: dict[str, list[Record]] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    next_offset: int = 0
    cleaned: int = 0

    def append(self, some: list[Pair], now_ms: int) -> None:
        records = [(self.next_offset + n, key, value) for n, (key, value) in enumerate(some)]
        self.next_offset += len(some)
        self._put(records, (now_ms * 1000, now_ms * 1000), tier=0, tags={})

    def compact(self, now_ms: int) -> None:
        found = dirtiness(self.segments, self.cleaned, self.config, now_ms)
        if not found.anything_to_do:
            return
        records = [record for each in found.sources for record in self.files[each.path]]
        last = {key: offset for offset, key, _ in records}
        kept = {each.path: [r for r in self.files[each.path] if last[r[1]] == r[0]] for each in found.sources}
        counts = [len(kept[each.path]) for each in found.sources]
        for run in plan_runs(found, counts, SEGMENT_BYTES, now_ms):
            survivors = [record for each in run.segments for record in kept[each.path]]
            assert len(survivors) == run.survivors
            left = [each for each in survivors if each[2] is not None or each[0] >= found.tombstones_go_below]
            tombstones = [0] * len(run.ranges)
            for offset in (offset for offset, _, value in left if value is None):
                tombstones[next(n for n, end in enumerate(run.range_ends) if offset < end)] += 1
            self._replace(run.segments, left, run.tags(tombstones) if left else {})
        self.cleaned = found.end_offset

    def merge(self, now_ms: int) -> None:
        for pack in pack_small(sealed(self.segments, self.config, now_ms), SEGMENT_BYTES, self.cleaned):
            tags = cleaned_tag(each for one in pack for each in cleaned_ranges(one))
            self._replace(list(pack), [record for one in pack for record in self.files[one.path]], tags)

    @property
    def records(self) -> list[Record]:
        return [record for each in self.segments for record in self.files[each.path]]

    def _replace(self, old: list[Segment], records: list[Record], tags: dict[str, str]) -> None:
        times = (min(each.min_timestamp_us for each in old), max(each.max_timestamp_us for each in old))
        self.segments = [each for each in self.segments if each not in old]
        if records:
            self._put(records, times, tier=SEALED_TIER, tags=tags)

    def _put(self, records: list[Record], times_us: tuple[int, int], *, tier: int, tags: dict[str, str]) -> None:
        # Small enough to be sealed by age alone.
        size = min(len(records) * RECORD_BYTES, SEGMENT_BYTES - 1)
        new = segment(
            records[0][0],
            records[-1][0] + 1,
            size=size,
            tier=tier,
            times_us=times_us,
            tags=tags,
            records=len(records),
            unique=str(len(self.files)),
        )
        self.files[new.path] = records
        self.segments = sorted([*self.segments, new], key=lambda each: each.base_offset)


pauses_ms = st.sampled_from([0, SEAL_MS - 1, SEAL_MS, TOMBSTONES_KEPT_MS // 2, TOMBSTONES_KEPT_MS])
# What is appended, how long after it compaction comes, and whether small files are merged before it.
rounds = st.tuples(st.lists(pairs, max_size=3), pauses_ms, st.booleans())


@settings(max_examples=300)
@given(st.lists(rounds, min_size=3, max_size=10), st.sampled_from([0, 3 * SEAL_MS]))
def test_survivors_are_those_of_the_model_whenever_it_is_compacted_and_merged(
    history: list[tuple[list[list[Pair]], int, bool]], lag_ms: int
) -> None:
    config = TopicConfig.parse(
        {
            "cleanup.policy": "compact",
            "segment.ms": str(SEAL_MS),
            "segment.bytes": str(SEGMENT_BYTES),
            "min.compaction.lag.ms": str(lag_ms),
            "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
        }
    )
    partition, model = Partition(config), CompactionModel(max(SEAL_MS, lag_ms), TOMBSTONES_KEPT_MS)
    now_ms = 1_000_000
    for appends, pause_ms, merging in history:
        for some in appends:
            partition.append(some, now_ms)
            model.append(some, now_ms)
        now_ms += pause_ms
        if merging and lag_ms == 0:  # else the newest record of a merged file keeps the others waiting
            partition.merge(now_ms)
            assert partition.records == model.records
        partition.compact(now_ms)
        model.compact(now_ms)
        assert partition.records == model.records
