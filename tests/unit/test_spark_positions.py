"""Positions and offsets as Spark's Kafka source has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import LakelogError
from lakelog.spark.positions import (
    EARLIEST,
    LATEST,
    At,
    AtOffsets,
    AtTime,
    AtTimes,
    Offsets,
    Position,
    admit,
    check_covers,
    from_json,
    furthest,
    moves,
    resolve,
    to_json,
)

ALL_OFFSETS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.dictionaries(st.integers(0, 12), st.integers(0, 1 << 40), min_size=1, max_size=4),
    min_size=1,
)


@given(ALL_OFFSETS)
def test_json_goes_there_and_back_and_is_always_in_one_order(offsets: Offsets) -> None:
    written = to_json(offsets)
    assert from_json(written) == offsets
    backwards = {topic: dict(reversed(list(each.items()))) for topic, each in reversed(list(offsets.items()))}
    assert str(to_json(backwards)) == str(written)


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    assert list(to_json({"t": {10: 1, 2: 1, 0: 1}})["t"]) == ["0", "2", "10"]


def test_the_furthest_of_two_positions_names_what_either_does() -> None:
    one: Offsets = {"both": {0: 3, 1: 9}, "one": {0: 1}}
    other: Offsets = {"both": {0: 7, 1: 2, 2: 0}, "other": {4: 5}}
    expected = {"both": {0: 7, 1: 9, 2: 0}, "one": {0: 1}, "other": {4: 5}}
    assert furthest(one, other) == furthest(other, one) == expected


def found(position: Position, at: Callable[[int], int | None] = lambda ms: None, otherwise: int | None = None) -> int:
    return resolve(position, "t", 1, log_start_offset=5, high_watermark=90, offset_at=at, when_no_record=otherwise)


def test_each_way_to_name_a_position() -> None:
    assert found(At(EARLIEST)) == 5
    assert found(At(LATEST)) == 90
    assert found(AtOffsets({"t": {1: 23}})) == 23
    assert found(AtOffsets({"t": {1: EARLIEST}})) == 5
    assert found(AtOffsets({"t": {1: LATEST}})) == 90
    assert found(AtTime(1000), at=lambda ms: ms // 100) == 10
    assert found(AtTimes({"t": {1: 2000}}), at=lambda ms: ms // 100) == 20


def test_a_time_after_the_last_record() -> None:
    assert found(AtTime(1000), otherwise=90) == 90
    with pytest.raises(LakelogError, match="startingOffsetsByTimestampStrategy"):
        found(AtTime(1000))


def test_positions_by_partition_name_all_that_are_read_and_no_others() -> None:
    read = {"t": [0, 1]}
    check_covers(At(LATEST), read, "startingOffsets")
    check_covers(AtOffsets({"t": {0: 1, 1: 2}}), read, "startingOffsets")
    with pytest.raises(LakelogError, match="startingOffsets does not name t-1"):
        check_covers(AtOffsets({"t": {0: 1}}), read, "startingOffsets")
    with pytest.raises(LakelogError, match="names u-0, which are not read"):
        check_covers(AtTimes({"t": {0: 1, 1: 2}, "u": {0: 1}}), read, "startingOffsets")


def test_which_positions_may_be_later_when_asked_again() -> None:
    named: Offsets = {"t": {0: 3, 1: 7}}
    at_the_end: Offsets = {"t": {0: 9, 1: 7}}
    further: Offsets = {"t": {0: 9, 1: 8}}
    assert moves(At(LATEST), named, at_the_end)
    assert moves(AtOffsets({"t": {0: 3, 1: LATEST}}), named, at_the_end)
    assert moves(AtTime(5), named, at_the_end)
    assert not moves(AtTime(5), named, further)
    assert not moves(At(EARLIEST), named, at_the_end)
    assert not moves(AtOffsets({"t": {0: 3, 1: EARLIEST}}), named, at_the_end)


@st.composite
def spans(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    start = draw(ALL_OFFSETS)
    latest = {topic: {p: at + draw(st.integers(0, 100)) for p, at in each.items()} for topic, each in start.items()}
    return start, latest


@given(spans(), st.integers(1, 500))
def test_admission_takes_as_much_as_it_may_and_never_more(span: tuple[Offsets, Offsets], most: int) -> None:
    start, latest = span
    end = admit(start, latest, most)
    taken = {(t, p): end[t][p] - at for t, each in start.items() for p, at in each.items()}
    waiting = {(t, p): latest[t][p] - at for t, each in start.items() for p, at in each.items()}
    assert sum(taken.values()) == min(most, sum(waiting.values()))
    assert all(0 <= taken[key] <= waiting[key] for key in taken)


@given(spans(), st.integers(5, 50))
def test_a_stream_gets_through_all_that_waits(span: tuple[Offsets, Offsets], most: int) -> None:
    position, latest = span
    waiting = sum(latest[t][p] - at for t, each in position.items() for p, at in each.items())
    for _ in range(-(-waiting // most)):
        position = admit(position, latest, most)
    assert position == latest


def test_partitions_share_by_what_they_have_waiting() -> None:
    assert admit({"t": {0: 0, 1: 0}}, {"t": {0: 900, 1: 100}}, 100) == {"t": {0: 90, 1: 10}}
