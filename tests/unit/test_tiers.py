"""However appends come, merging keeps the live files of a partition few, and every merge is one of neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.log.tiers import FAN, LARGE_FAN, LARGE_PER_SEGMENT, LARGE_TIER, plan_merge
from lakelog.model.segment import SEALED_TIER, Segment
from tests.unit.segments import segment

SEGMENT_BYTES = 1_000
LARGE_BYTES = -(-SEGMENT_BYTES // LARGE_PER_SEGMENT)


def settled(segments: list[Segment], rewritten: dict[int, int] | None = None) -> list[Segment]:
    """Do every merge that is due, and check each one. `rewritten` counts how often each offset was."""
    while (merge := plan_merge(segments, SEGMENT_BYTES)) is not None:
        first = segments.index(merge.segments[0])
        count = len(merge.segments)
        assert tuple(segments[first : first + count]) == merge.segments, "neighbours, oldest first"
        assert count > 1
        assert merge.tier > merge.segments[0].tier
        assert all(not each.sealed_by_size for each in merge.segments)
        size = sum(each.bytes for each in merge.segments)
        assert (merge.tier == SEALED_TIER) == (size >= SEGMENT_BYTES)
        base, end = merge.segments[0].base_offset, merge.segments[-1].end_offset
        if rewritten is not None:
            rewritten.update((offset, rewritten.get(offset, 0) + 1) for offset in range(base, end))
        segments[first : first + count] = [segment(base, end, size=size, tier=merge.tier)]
    return segments


def tail_of(sizes: Iterable[int]) -> list[Segment]:
    """As a leader does it: a merge is done as soon as an append makes it due."""
    segments: list[Segment] = []
    for offset, size in enumerate(sizes):
        settled(segments).append(segment(offset, offset + 1, size=size))
    return settled(segments)


@given(st.lists(st.integers(1, 1_500) | st.integers(1, 20), max_size=400))
def test_the_number_of_files_follows_the_bytes(sizes: list[int]):
    segments = tail_of(sizes)
    # Between two full files: fewer than LARGE_FAN that wait to be a segment, and FAN of each of the two tiers of files
    # that are smaller.
    small = [each for each in segments if each.bytes < SEGMENT_BYTES]
    full = [each for each in segments if each.bytes >= SEGMENT_BYTES]
    assert len(full) <= sum(sizes) / SEGMENT_BYTES
    stranded = [each for each, after in pairwise(segments) if each in small and after in full]
    assert len(small) <= (LARGE_FAN + 2 * FAN) * (len(stranded) + 1)


@given(st.integers(0, 2_000), st.integers(1, 40))
def test_files_of_one_size_are_bounded_by_a_constant_more(count: int, size: int):
    segments = tail_of([size] * count)
    assert len(segments) <= count * size / SEGMENT_BYTES + 3 * FAN


@given(st.lists(st.integers(1, 40), max_size=400))
def test_a_record_is_rewritten_once_per_tier(sizes: list[int]):
    rewritten: dict[int, int] = {}
    segments: list[Segment] = []
    for offset, size in enumerate(sizes):
        segments.append(segment(offset, offset + 1, size=size))
        settled(segments, rewritten)
    # 16 times 16 of the smallest files are one of a third tier; sealing may come once on top.
    assert max(rewritten.values(), default=0) <= 4


@given(st.lists(st.integers(LARGE_BYTES, SEGMENT_BYTES), max_size=200))
def test_a_record_that_came_in_a_large_file_is_rewritten_once(sizes: list[int]):
    rewritten: dict[int, int] = {}
    segments: list[Segment] = []
    for offset, size in enumerate(sizes):
        segments.append(segment(offset, offset + 1, size=size))
        settled(segments, rewritten)
    assert set(rewritten.values()) <= {1}
    waiting = [each for each in segments if each.bytes < SEGMENT_BYTES]
    assert sum(each.bytes for each in waiting) < SEGMENT_BYTES * (1 + sum(size >= SEGMENT_BYTES for size in sizes))


def test_small_files_before_a_large_one_wait_with_it_and_not_for_ever():
    few = [segment(n, n + 1, size=1) for n in range(FAN - 1)]
    large = segment(FAN - 1, FAN, size=LARGE_BYTES)
    assert plan_merge([*few, large], SEGMENT_BYTES) is None
    after = [segment(n, n + 1, size=2) for n in range(FAN, LARGE_FAN)]
    newest = segment(LARGE_FAN, LARGE_FAN + 1, size=LARGE_BYTES)
    merge = plan_merge([*few, large, *after, newest], SEGMENT_BYTES)
    assert merge is not None
    assert merge.segments == (*few, large, *after)
    assert merge.tier == LARGE_TIER


@given(st.lists(st.integers(1, 300), max_size=200))
def test_no_record_is_lost_doubled_or_moved(sizes: list[int]):
    segments = tail_of(sizes)
    offsets = [offset for each in segments for offset in range(each.base_offset, each.end_offset)]
    assert offsets == list(range(len(sizes)))


@pytest.mark.parametrize("files", range(FAN))
def test_less_than_a_fan_of_small_files_is_left_alone(files: int):
    assert plan_merge([segment(n, n + 1, size=1) for n in range(files)], SEGMENT_BYTES) is None


def test_a_fan_of_small_files_becomes_one_of_the_next_tier():
    files = [segment(n, n + 1, size=1) for n in range(FAN + 3)]
    merge = plan_merge(files, SEGMENT_BYTES)
    assert merge is not None
    assert merge.segments == tuple(files[:FAN])
    assert merge.tier == 1


def test_a_run_that_reaches_the_size_is_sealed_with_the_file_that_reaches_it():
    files = [segment(n, n + 1, size=400) for n in range(4)]
    merge = plan_merge(files, SEGMENT_BYTES)
    assert merge is not None
    assert merge.segments == tuple(files[:3])
    assert merge.tier == SEALED_TIER


def test_what_is_sealed_is_not_looked_behind():
    behind = [segment(n, n + 1, size=1) for n in range(FAN)]
    sealed = segment(FAN, FAN + 1, size=10, tier=SEALED_TIER)
    assert plan_merge([*behind, sealed], SEGMENT_BYTES) is None


def test_one_large_file_is_a_segment_as_it_is():
    assert plan_merge([segment(0, 1, size=SEGMENT_BYTES)], SEGMENT_BYTES) is None


def timed(times_ms: Iterable[int], tier: int = 0) -> list[Segment]:
    return [segment(n, n + 1, size=1, tier=tier, times_us=(ms * 1000, ms * 1000)) for n, ms in enumerate(times_ms)]


def test_a_later_record_rolls_the_active_segment_and_what_was_it_becomes_one_sealed_file():
    files = timed([0, 40, 99, 100])
    merge = plan_merge(files, SEGMENT_BYTES, segment_ms=100)
    assert merge is not None
    assert (list(merge.segments), merge.tier) == (files[:3], SEALED_TIER)
    assert plan_merge(files[:3], SEGMENT_BYTES, segment_ms=100) is None
    assert plan_merge(files, SEGMENT_BYTES, segment_ms=101) is None


def test_a_file_that_is_rolled_alone_is_left_as_it_is_and_not_merged_with_later_ones():
    files = timed([0, *([200] * (FAN - 1))])
    assert plan_merge(files, SEGMENT_BYTES, segment_ms=100) is None
    merge = plan_merge([*files, segment(FAN, FAN + 1, size=1, times_us=(200_000, 200_000))], SEGMENT_BYTES, 100)
    assert merge is not None
    assert (merge.segments[0].base_offset, len(merge.segments), merge.tier) == (1, FAN, 1)
