"""What jobs decide: which segments expire, which partitions are dirty, which files become one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compaction_jobs.dirtiness import dirtiness
from compaction_jobs.orphans import ON_ITS_WAY_MS, dispensable
from compaction_jobs.outcome import brief
from compaction_jobs.packing import Survival, pack_small, pack_survivors, worth_a_merge
from compaction_jobs.retention import held_by_active_segment, plan_retention
from compaction_jobs.rewriting import ROW_BITS, Wants
from compaction_jobs.sealed import sealed
from compaction_jobs.throttle import Throttle
from compaction_jobs.tombstones import CleanedRange, cleaned_ranges, cleaned_tag, tombstones_below, tombstones_go_below
from lakelog.config import TopicConfig
from lakelog.delta.store import StoredFile
from lakelog.model.segment import SEALED_TIER, Segment
from tests.unit.segments import segment

NOW_MS = 1_000_000


def config(**overrides: str) -> TopicConfig:
    return TopicConfig.parse({name.replace("_", "."): value for name, value in overrides.items()})


def aged(*ages_ms: int, size: int = 2000, tier: int = 0) -> list[Segment]:
    """Neighbours of ten offsets each, all records of one as old as is said."""
    times = [(NOW_MS - age) * 1000 for age in ages_ms]
    return [segment(10 * i, 10 * i + 10, size=size, tier=tier, times_us=(time, time)) for i, time in enumerate(times)]


@st.composite
def partitions(draw: st.DrawFn) -> list[Segment]:
    """Files of any age, size and tier, with holes between them."""
    found: list[Segment] = []
    offset = 0
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.integers(0, 3))
        end = offset + draw(st.integers(1, 9))
        newest, spread = draw(st.integers(0, 2000)), draw(st.integers(0, 500))
        found.append(
            segment(
                offset,
                end,
                size=draw(st.sampled_from([10, 400, 1023, 1024, 5000])),
                tier=draw(st.sampled_from([0, 1, SEALED_TIER])),
                times_us=((NOW_MS - newest - spread) * 1000, (NOW_MS - newest) * 1000),
            )
        )
        offset = end
    return found


# -- the active segment ----------------------------------------------------------------------------------------


def test_files_are_sealed_by_size_age_or_a_merge_and_the_first_active_one_ends_them() -> None:
    files = [
        *aged(5000, size=10),
        segment(10, 20, size=2000, times_us=(NOW_MS * 1000, NOW_MS * 1000)),
        segment(20, 30, size=10, tier=SEALED_TIER, times_us=(NOW_MS * 1000, NOW_MS * 1000)),
        segment(30, 40, size=10, times_us=(NOW_MS * 1000, NOW_MS * 1000)),
        segment(40, 50, size=5000, times_us=(0, 0)),
    ]
    assert sealed(files, config(segment_ms="1000", segment_bytes="1024"), NOW_MS) == files[:3]


def test_max_compaction_lag_seals_earlier_than_segment_ms_in_compacted_topics_only() -> None:
    files = aged(700, size=10)
    assert sealed(files, config(max_compaction_lag_ms="500"), NOW_MS) == []
    compacted = config(max_compaction_lag_ms="500", cleanup_policy="compact")
    assert sealed(files, compacted, NOW_MS) == files


# -- retention -------------------------------------------------------------------------------------------------


def test_retention_by_time_takes_whole_files_and_stops_at_the_first_young_one() -> None:
    files = aged(5000, 3000, 500, 4000)
    expiry = plan_retention(files, 0, config(retention_ms="1000", segment_bytes="1024"), NOW_MS)
    assert expiry is not None
    assert (expiry.log_start, list(expiry.removed), expiry.reason) == (20, files[:2], "retention.ms")
    assert plan_retention(files, 0, config(retention_ms="-1", segment_bytes="1024"), NOW_MS) is None


def test_retention_by_size_never_leaves_less_than_the_limit() -> None:
    files = aged(0, 0, 0, 0, size=2000)
    limit = {"retention_ms": "-1", "segment_bytes": "1024"}
    expiry = plan_retention(files, 0, config(retention_bytes="3000", **limit), NOW_MS)
    assert expiry is not None
    assert (expiry.log_start, expiry.reason) == (20, "retention.bytes")
    assert plan_retention(files, 0, config(retention_bytes="8000", **limit), NOW_MS) is None
    everything = plan_retention(files, 0, config(retention_bytes="0", **limit), NOW_MS)
    assert everything is not None
    assert everything.log_start == 40


def test_nothing_of_the_active_segment_expires_however_old_its_records_are() -> None:
    files = aged(5000, 4000, size=10)
    terms = config(retention_ms="1000", segment_ms="1000000")
    assert plan_retention(files, 0, terms, NOW_MS) is None
    assert held_by_active_segment(files, terms, NOW_MS) == 2


def test_a_compacted_topic_expires_nothing_but_what_lies_below_the_log_start() -> None:
    files = aged(5000, 4000)
    terms = config(retention_ms="1000", segment_bytes="1024", cleanup_policy="compact")
    assert plan_retention(files, 5, terms, NOW_MS) is None
    expiry = plan_retention(files, 15, terms, NOW_MS)
    assert expiry is not None
    assert (expiry.log_start, list(expiry.removed)) == (15, files[:1])
    both = config(retention_ms="1000", segment_bytes="1024", cleanup_policy="compact,delete")
    assert plan_retention(files, 0, both, NOW_MS) is not None


@given(partitions(), st.integers(-1, 2500), st.integers(-1, 12_000), st.integers(1, 2500), st.integers(0, 40))
def test_what_retention_leaves_is_what_a_plain_rule_leaves(
    files: list[Segment], retention_ms: int, retention_bytes: int, segment_ms: int, log_start: int
) -> None:
    terms = config(
        retention_ms=str(retention_ms),
        retention_bytes=str(retention_bytes),
        segment_ms=str(segment_ms),
        segment_bytes="1024",
    )
    left = [each for each in files if each.end_offset > log_start]
    while left:
        oldest = left[0]
        young = NOW_MS - oldest.min_timestamp_us // 1000 < segment_ms
        active = young and oldest.bytes < 1024 and oldest.tier != SEALED_TIER
        too_old = retention_ms >= 0 and NOW_MS - oldest.max_timestamp_us // 1000 > retention_ms
        too_much = retention_bytes >= 0 and sum(each.bytes for each in left[1:]) >= retention_bytes
        if active or not (too_old or too_much):
            break
        left.pop(0)
    expiry = plan_retention(files, log_start, terms, NOW_MS)
    removed = expiry.removed if expiry is not None else ()
    assert [each for each in files if each not in removed] == left
    start = expiry.log_start if expiry is not None else log_start
    assert start >= log_start
    assert all(each.end_offset > start for each in left)
    # Run again, there is nothing left to do.
    assert plan_retention(left, start, terms, NOW_MS) is None


# -- dirtiness -------------------------------------------------------------------------------------------------

COMPACT = {"cleanup_policy": "compact", "segment_bytes": "1024"}


def test_a_partition_is_clean_up_to_the_mark_and_dirty_up_to_the_active_segment() -> None:
    files = [*aged(5000, 4000, 3000), segment(30, 31, size=10, times_us=(NOW_MS * 1000, NOW_MS * 1000))]
    found = dirtiness(files, 10, config(**COMPACT), NOW_MS)
    assert (list(found.clean), list(found.dirty), found.end_offset) == (files[:1], files[1:3], 30)
    assert found.ratio == 4000 / 6000
    assert found.due == "dirty ratio 0.67, over 0.5"
    assert dirtiness(files, 30, config(**COMPACT), NOW_MS).anything_to_do is False


def test_the_ratio_has_to_be_exceeded_and_the_longest_lag_does_not_ask_for_it() -> None:
    files = aged(5000, 4000)
    assert dirtiness(files, 10, config(**COMPACT), NOW_MS).due is None
    assert dirtiness(files, 10, config(min_cleanable_dirty_ratio="0.4", **COMPACT), NOW_MS).due is not None
    late = config(max_compaction_lag_ms="3999", min_cleanable_dirty_ratio="1", **COMPACT)
    assert dirtiness(files, 10, late, NOW_MS).due == "dirty for longer than max.compaction.lag.ms"
    in_time = config(max_compaction_lag_ms="4000", min_cleanable_dirty_ratio="1", **COMPACT)
    assert dirtiness(files, 10, in_time, NOW_MS).due is None


def test_records_within_the_shortest_lag_are_out_of_reach_and_so_is_what_follows_them() -> None:
    files = aged(5000, 1000, 3000)
    found = dirtiness(files, 0, config(min_compaction_lag_ms="2000", **COMPACT), NOW_MS)
    assert (list(found.dirty), found.end_offset) == (files[:1], 10)
    assert dirtiness(files, 0, config(min_compaction_lag_ms="1000", **COMPACT), NOW_MS).end_offset == 30


# -- tombstones ------------------------------------------------------------------------------------------------


def tombs(base: int, *ranges: tuple[int, int, int]) -> Segment:
    tags = cleaned_tag(CleanedRange(*each) for each in ranges)
    return segment(base, ranges[-1][0], size=2000, tags=tags)


def test_tombstones_wait_for_their_own_clock_and_ranges_without_any_are_not_kept() -> None:
    files = [tombs(0, (10, 100, 2), (20, 200, 0)), tombs(20, (30, 300, 1), (40, 900, 4))]
    assert cleaned_ranges(files[0]) == (CleanedRange(10, 100, 2),)
    assert tombstones_go_below(files, 700, NOW_MS) == 40
    assert tombstones_go_below(files, NOW_MS - 100, NOW_MS) == 10
    assert tombstones_go_below(files, NOW_MS - 300, NOW_MS) == 30
    assert tombstones_go_below(files, NOW_MS, NOW_MS) == 0
    assert [tombstones_below(file, 30) for file in files] == [2, 1]


def test_ranges_that_were_cleaned_together_become_one() -> None:
    together = tombs(0, (10, 100, 2), (20, 100, 3), (30, 200, 1))
    assert cleaned_ranges(together) == (CleanedRange(20, 100, 5), CleanedRange(30, 200, 1))
    assert cleaned_ranges(segment(0, 1)) == ()


def test_tombstones_that_have_had_their_time_make_a_clean_partition_due() -> None:
    files = [tombs(0, (10, NOW_MS - 500, 2))]
    terms = {"delete_retention_ms": "500", **COMPACT}
    found = dirtiness(files, 10, config(**terms), NOW_MS)
    assert (found.due, found.tombstones_go_below) == ("2 tombstones past delete.retention.ms", 10)
    assert dirtiness(files, 10, config(**terms), NOW_MS - 1).due is None


# -- packing ---------------------------------------------------------------------------------------------------


@given(partitions(), st.integers(0, 60))
def test_small_files_are_packed_into_segments_until_nothing_is_left_to_pack(files: list[Segment], cleaned: int) -> None:
    packs = pack_small(files, 1024, cleaned)
    for pack in packs:
        first = files.index(pack[0])
        assert list(pack) == files[first : first + len(pack)], "neighbours"
        assert len(pack) > 1
        assert sum(each.bytes for each in pack) <= 1024
        assert all(each.bytes < 512 for each in pack)
        assert len({each.end_offset <= cleaned for each in pack}) == 1, "clean and dirty apart"
    merged = [each for each in files if not any(each in pack for pack in packs)]
    merged += [
        segment(pack[0].base_offset, pack[-1].end_offset, size=sum(each.bytes for each in pack)) for pack in packs
    ]
    again = pack_small(sorted(merged, key=lambda each: each.base_offset), 1024, cleaned)
    assert again == []


def test_a_schedule_waits_for_enough_small_files_or_bytes() -> None:
    assert not worth_a_merge(aged(*[0] * 7, size=10), 1024)
    assert worth_a_merge(aged(*[0] * 8, size=10), 1024)
    assert worth_a_merge(aged(0, 0, size=256), 1024)


@given(st.lists(st.tuples(st.integers(0, 10), st.booleans())))
def test_survivors_are_packed_in_order_and_unchanged_files_stay(counts: list[tuple[int, bool]]) -> None:
    files = [
        Survival(segment(10 * i, 10 * i + 10, size=300), survivors, must_go)
        for i, (survivors, must_go) in enumerate(counts)
    ]
    runs = pack_survivors(files, 1000)
    assert [file for run in runs for file in run] == [file for file in files if file.changes]
    for run in runs:
        first = files.index(run[0])
        assert run == files[first : first + len(run)], "neighbours"
        assert len(run) == 1 or sum(file.bytes_left for file in run) <= 1000


# -- vacuum and limits -----------------------------------------------------------------------------------------


def test_a_file_is_dispensable_once_nobody_can_need_it() -> None:
    now_ms = 10 * ON_ITS_WAY_MS
    names = ["live", "left-long-ago", "left-just-now", "orphan", "new", "of-run-abc"]
    files = [StoredFile(name, 1, now_ms if name == "new" else 0) for name in names]
    removed = {"left-long-ago": now_ms - 1000, "left-just-now": now_ms - 999}
    found = dispensable(files, {"live"}, removed, ["abc"], 1000, now_ms)
    assert [file.path for file in found] == ["left-long-ago", "orphan"]


@given(st.integers(0, 5_000_000))
def test_an_orphan_is_given_the_delay_and_the_time_of_a_commit(delay_ms: int) -> None:
    limit_ms = max(delay_ms, ON_ITS_WAY_MS)
    file = StoredFile("orphan", 1, 0)
    assert dispensable([file], (), {}, (), delay_ms, limit_ms) == [file]
    assert dispensable([file], (), {}, (), delay_ms, limit_ms - 1) == []


def test_the_limit_holds_over_time_and_a_pause_is_not_saved_up() -> None:
    throttle = Throttle(1000, now_ms=0)
    assert throttle.wait_ms(500, 0) == 500
    assert throttle.wait_ms(500, 0) == 1000
    assert throttle.wait_ms(100, 60_000) == 100
    assert Throttle(0, now_ms=0).wait_ms(10**12, 0) == 0


@given(st.data())
def test_kept_rows_are_found_row_group_by_row_group_however_their_places_come(data: st.DataObject) -> None:
    first_file = data.draw(st.integers(0, 5))
    files = data.draw(st.lists(st.lists(st.integers(1, 6), max_size=4), max_size=4))  # row groups, by their rows
    kept = [
        data.draw(st.lists(st.booleans(), min_size=sum(groups), max_size=sum(groups)), label="kept") for groups in files
    ]
    places = [
        ((first_file + number) << ROW_BITS) + row for number, rows in enumerate(kept) for row in np.flatnonzero(rows)
    ]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(places)), max_size=4), label="cuts"))
    wants = Wants(iter(np.split(np.array(places, dtype=np.int64), cuts)))
    for number, groups in enumerate(files):
        of_file = wants.of_file(first_file + number)
        start = 0
        for rows in groups:
            expected = [row for row in range(start, start + rows) if kept[number][row]]
            assert of_file.any_before(start + rows) == bool(expected)
            assert of_file.take_before(start + rows).tolist() == expected
            start += rows


def test_an_error_is_told_in_the_line_that_says_what_happened() -> None:
    assert brief(ValueError()) == "ValueError"
    assert brief(ValueError("a file is gone\nand more of it")) == "a file is gone"
    of_a_task = "a task failed\nTraceback (most recent call last):\n  File 1\nKeyError: 'offset'"
    assert brief(RuntimeError(of_a_task)) == "KeyError: 'offset'"
    of_java = "An error occurred while calling o5.collect.\n: java.lang.OutOfMemoryError: heap\n\tat java.util.Arrays"
    assert brief(RuntimeError(of_java)) == "java.lang.OutOfMemoryError: heap"
