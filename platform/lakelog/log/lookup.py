"""Find the segments of a partition by offset and by time: two binary searches over what the table state holds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lakelog.model.segment import Segment


def segments_from(segments: Sequence[Segment], bases: Sequence[int], offset: int) -> Iterator[Segment]:
    """Those that may hold `offset` or a later one, in order. `bases` are their base offsets."""
    first = max(0, bisect_right(bases, offset) - 1)
    for position in range(first, len(segments)):
        if segments[position].end_offset > offset:
            yield segments[position]


def segments_since(segments: Sequence[Segment], timestamp_us: int) -> Iterator[Segment]:
    """Those that hold a record of `timestamp_us` or later. Timestamps need not rise with offsets, so all are asked."""
    return (segment for segment in segments if segment.max_timestamp_us >= timestamp_us)
