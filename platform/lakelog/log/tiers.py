"""Which files of a partition's tail to merge next.

Files that appends write have tier 0. FAN of one tier become one of the next, so a partition has at most FAN - 1 files
per tier and a record is rewritten once per tier. A merge that reaches segment.bytes seals its file, and a sealed
file is not taken up again: the number of files grows with bytes / segment.bytes plus a constant.

As in Kafka, a record that is segment.ms later than the first one of the active segment rolls it: what was the tail
becomes one sealed file, and from then on it is the jobs' and not the leader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.config import LONG_MAX
from lakelog.model.segment import SEALED_TIER, Segment

FAN = 16


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbouring segments, oldest first, and the tier of the file that replaces them."""

    segments: tuple[Segment, ...]
    tier: int


def plan_merge(segments: Sequence[Segment], segment_bytes: int, segment_ms: int = LONG_MAX) -> Merge | None:
    """The next merge that a partition is due, or None. `segments` are all of its files, by offset.

    Tiers fall along the offsets, so each one is a run of neighbours; the scan goes backwards from the newest file
    and stops at the first sealed one, which keeps it short however long the partition is.
    """
    rolled, active = _roll(_tail(segments, segment_bytes), segment_ms)
    if len(rolled) > 1:
        return _sealing(rolled, segment_bytes)
    run_end = len(active)
    while run_end > 0:
        tier = active[run_end - 1].tier
        start, run_bytes = run_end, 0
        while start > 0 and active[start - 1].tier == tier:
            start -= 1
            run_bytes += active[start].bytes
        run = active[start:run_end]
        if run_bytes >= segment_bytes and len(run) > 1:
            return _sealing(run, segment_bytes)
        if len(run) >= FAN:
            return Merge(tuple(run[:FAN]), tier + 1)
        run_end = start
    return None


def _tail(segments: Sequence[Segment], segment_bytes: int) -> Sequence[Segment]:
    """The files after the last one that its size has sealed."""
    start = len(segments)
    while start > 0 and not segments[start - 1].sealed_by_size and segments[start - 1].bytes < segment_bytes:
        start -= 1
    return segments[start:]


def _roll(tail: Sequence[Segment], segment_ms: int) -> tuple[Sequence[Segment], Sequence[Segment]]:
    """The first files that a later one has rolled and that are more than one, and the active ones at the end."""
    first = 0
    for position in range(1, len(tail)):
        if tail[position].min_timestamp_us - tail[first].min_timestamp_us >= segment_ms * 1000:
            if position - first > 1:
                return tail[first:position], ()
            first = position  # a file that is rolled alone is a segment as it is
    return (), tail[first:]


def _sealing(run: Sequence[Segment], segment_bytes: int) -> Merge:
    """The oldest files of a run, up to the one with which they reach segment.bytes."""
    total = 0
    for count, segment in enumerate(run, start=1):
        total += segment.bytes
        if total >= segment_bytes and count > 1:
            break
    return Merge(tuple(run[:count]), SEALED_TIER)
