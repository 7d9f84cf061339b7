"""How a read is cut into tasks, and which offsets it covers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import LakelogError
from lakelog.model.segment import Segment
from lakelog.spark.options import parse_source
from lakelog.spark.planning import (
    SLICE_BYTES,
    Bounds,
    OffsetRange,
    PartitionView,
    Slice,
    TopicView,
    Wanted,
    plan,
)
from lakelog.spark.positions import AtTime, AtTimes
from lakelog.spark.ranges import between, check_not_behind, ends, require_topics
from tests.unit.segments import segment

SECOND_US = 1_000_000


def segments_of(ends: Sequence[int], *, bytes_each: int = 1000, partition: int = 0) -> list[Segment]:
    """Files that end at these offsets, the first one beginning at 0; each record is a second after the last one."""
    return [
        segment(start, end, partition=partition, size=bytes_each, times_us=(start * SECOND_US, (end - 1) * SECOND_US))
        for start, end in pairwise([0, *ends])
    ]


def topic_of(*partitions: Sequence[Segment], log_start: int = 0) -> dict[str, TopicView]:
    views = {
        number: PartitionView(log_start, segments[-1].end_offset if segments else 0, segments)
        for number, segments in enumerate(partitions)
    }
    return {"t": TopicView("t", views)}


def spans(slices: Sequence[Slice]) -> list[tuple[int, int, int]]:
    return [(each.range.partition, each.range.start_offset, each.range.end_offset) for each in slices]


def files(each: Slice) -> list[tuple[int, int]]:
    return [(file.base_offset, file.end_offset) for file in each.files]


def test_small_files_go_together_and_large_ones_are_tasks_of_their_own() -> None:
    small = plan([OffsetRange("t", 0, 0, 30)], topic_of(segments_of([10, 20, 30])), Wanted())
    assert spans(small) == [(0, 0, 30)]
    large = plan([OffsetRange("t", 0, 0, 30)], topic_of(segments_of([10, 20, 30], bytes_each=SLICE_BYTES)), Wanted())
    assert spans(large) == [(0, 0, 10), (0, 10, 20), (0, 20, 30)]


def test_only_files_of_the_range_are_planned() -> None:
    (each,) = plan([OffsetRange("t", 0, 12, 20)], topic_of(segments_of([10, 20, 30])), Wanted())
    assert spans([each]) == [(0, 12, 20)]
    assert files(each) == [(10, 20)]


def test_filters_leave_files_out() -> None:
    topics = topic_of(segments_of([10, 20, 30]), segments_of([10, 20], partition=1))
    ranges = [OffsetRange("t", 0, 0, 30), OffsetRange("t", 1, 0, 20)]
    by_offset = plan(ranges, topics, Wanted(offsets=Bounds(10, 19)))
    assert [(each.range.partition, files(each)) for each in by_offset] == [(0, [(10, 20)]), (1, [(10, 20)])]
    by_time = plan(ranges, topics, Wanted(times_us=Bounds(25 * SECOND_US, 26 * SECOND_US)))
    assert [files(each) for each in by_time] == [[(20, 30)]]
    assert spans(plan(ranges, topics, Wanted(partitions=Bounds(1, 1)))) == [(1, 0, 20)]
    assert plan(ranges, topics, Wanted(topics=frozenset({"other"}))) == []
    assert plan(ranges, topics, Wanted(offsets=Bounds(50, 60))) == []


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(1, 30),
    st.integers(0, 50),
    st.integers(1, 200),
)
def test_slices_are_the_range_in_order_and_as_many_as_asked(
    counts: list[int], min_partitions: int, start: int, length: int
) -> None:
    ends = [sum(counts[: number + 1]) for number in range(len(counts))]
    start = min(start, ends[-1] - 1)
    end = min(start + length, ends[-1])
    topics = topic_of(segments_of(ends))
    slices = plan([OffsetRange("t", 0, start, end)], topics, Wanted(), min_partitions=min_partitions)
    covered = [offset for _, first, last in spans(slices) for offset in range(first, last)]
    assert covered == list(range(start, end))
    assert len(slices) == min(min_partitions, end - start)
    for each in slices:
        held = [offset for file in each.files for offset in range(file.base_offset, file.end_offset)]
        assert set(range(each.range.start_offset, each.range.end_offset)) <= set(held)


def test_the_larger_partition_is_cut_more() -> None:
    topics = topic_of(segments_of([100], bytes_each=9000), segments_of([100], bytes_each=1000, partition=1))
    ranges = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 100)]
    slices = plan(ranges, topics, Wanted(), min_partitions=10)
    assert [sum(1 for each in slices if each.range.partition == number) for number in (0, 1)] == [9, 1]


def test_between_reads_new_partitions_from_their_beginning() -> None:
    topics = topic_of(segments_of([10]), segments_of([5], partition=1))
    ranges = between({"t": {0: 4}}, {"t": {0: 10, 1: 5}}, topics, fail_on_data_loss=True)
    assert ranges == [OffsetRange("t", 0, 4, 10), OffsetRange("t", 1, 0, 5)]


def test_what_is_gone_is_an_error_or_a_gap() -> None:
    topics = topic_of(segments_of([10]), log_start=6)
    start, end = {"t": {0: 4}}, {"t": {0: 10}}
    with pytest.raises(LakelogError, match="failOnDataLoss"):
        between(start, end, topics, fail_on_data_loss=True)
    assert between(start, end, topics, fail_on_data_loss=False) == [OffsetRange("t", 0, 6, 10)]
    with pytest.raises(LakelogError, match="t-0 is gone"):
        between(start, end, {}, fail_on_data_loss=True)
    assert between(start, end, {}, fail_on_data_loss=False) == []


def test_nothing_is_read_past_the_high_watermark() -> None:
    topics = topic_of(segments_of([10]))
    with pytest.raises(LakelogError, match="has offsets 0 to 10, and 0 to 12"):
        between({"t": {0: 0}}, {"t": {0: 12}}, topics, fail_on_data_loss=True)
    assert between({"t": {0: 0}}, {"t": {0: 12}}, topics, fail_on_data_loss=False) == [OffsetRange("t", 0, 0, 10)]


def test_a_time_in_what_came_after_the_topics_were_looked_at_ends_at_the_high_watermark() -> None:
    topics = topic_of(segments_of([10]), segments_of([5], partition=1))

    def offset_at(topic: str, partition: int, time_ms: int) -> int | None:
        return time_ms if time_ms < 12 else None  # by now there are two records more

    for time_ms in (11, 12):
        found = ends(AtTime(time_ms), topics, offset_at)
        assert found == {"t": {0: 10, 1: 5}}
        assert len(between({"t": {0: 0, 1: 0}}, found, topics, fail_on_data_loss=True)) == 2
    assert ends(AtTimes({"t": {0: 9, 1: 5}}), topics, offset_at) == {"t": {0: 9, 1: 5}}


def test_a_start_behind_the_end_has_nothing_to_read() -> None:
    assert between({"t": {0: 8}}, {"t": {0: 5}}, topic_of(segments_of([10])), fail_on_data_loss=True) == []


def test_a_topic_that_has_fewer_records_than_were_read_is_another_one() -> None:
    check_not_behind({"t": {0: 8}}, {"t": {0: 8}, "new": {0: 0}})
    with pytest.raises(LakelogError, match="ends at offset 3 now"):
        check_not_behind({"t": {0: 8}}, {"t": {0: 3}})
    with pytest.raises(LakelogError, match="is gone"):
        check_not_behind({"t": {0: 8}}, {})


def test_named_topics_have_to_be_there_and_a_pattern_may_match_none() -> None:
    topics = topic_of(segments_of([10]))
    require_topics(parse_source({"warehouse": "/d", "subscribe": "t"}), topics)
    require_topics(parse_source({"warehouse": "/d", "subscribePattern": "x.*"}), {})
    with pytest.raises(LakelogError, match="no u in the warehouse /d"):
        require_topics(parse_source({"warehouse": "/d", "subscribe": "t,u"}), topics)
    with pytest.raises(LakelogError, match="no t-1 in"):
        require_topics(parse_source({"warehouse": "/d", "assign": '{"t": [0, 1]}'}), topics)
