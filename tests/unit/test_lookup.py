"""Finding segments by offset and by time gives what a look at every one of them would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.log.lookup import segments_from, segments_since
from lakelog.model.segment import Segment
from tests.unit.segments import segment


@st.composite
def partitions(draw: st.DrawFn) -> list[Segment]:
    """Segments by offset, with the gaps that compaction and deletion leave between and inside of them."""
    found: list[Segment] = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.integers(0, 3))
        end = offset + draw(st.integers(1, 6))
        times = sorted(draw(st.tuples(st.integers(0, 50), st.integers(0, 50))))
        found.append(segment(offset, end, times_us=(times[0], times[1])))
        offset = end
    return found


@given(partitions(), st.integers(-1, 90))
def test_by_offset_as_a_look_at_each_one_says(segments: list[Segment], offset: int):
    bases = [each.base_offset for each in segments]
    found = list(segments_from(segments, bases, offset))
    assert found == [each for each in segments if each.end_offset > offset]


@given(partitions(), st.integers(0, 60))
def test_by_time_as_a_look_at_each_one_says(segments: list[Segment], time_us: int):
    found = list(segments_since(segments, time_us))
    assert found == [each for each in segments if each.max_timestamp_us >= time_us]


def test_only_the_first_segment_may_begin_below_the_offset():
    segments = [segment(n * 10, n * 10 + 10) for n in range(100)]
    found = segments_from(segments, [each.base_offset for each in segments], 505)
    assert next(found).base_offset == 500
    assert next(found).base_offset == 510
