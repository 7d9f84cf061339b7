"""Which files of a partition's tail to merge next.

Files that appends write have tier 0. FAN of one tier become one of the next, so a partition has at most FAN - 1 files
per tier and a record is rewritten once per tier. A large file, whoever wrote it, stands above these tiers: it waits
until it fills a segment together with its neighbours, so that most bytes of a busy topic are rewritten once and not
once per tier. A merge that reaches segment.bytes seals its file, and a sealed file is not taken up again: the number
of files grows with bytes / segment.bytes plus a constant.

As in Kafka, a record that is segment.ms later than the first one of the active segment rolls it: what was the tail
becomes one sealed file, and from then on it is the jobs' and not the leader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.config import LONG_MAX
from lakelog.model.segment import SEALED_TIER, Segment

FAN = 16
# So many large files fill a segment: the bound on how many of them wait.
LARGE_PER_SEGMENT = 32
LARGE_TIER = SEALED_TIER - 1
# Small files that lie before a large one wait with it. However appends come, no more wait than this.
LARGE_FAN = 2 * LARGE_PER_SEGMENT


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbouring segments, oldest first, and the tier of the file that replaces them."""

    segments: tuple[Segment, ...]
    tier: int


def plan_merge(segments: Sequence[Segment], segment_bytes: int, segment_ms: int = LONG_MAX) -> Merge | None:
    """The next merge that a partition is due, or None. `segments` are all of its files, by offset.

    A run is a file and the older ones before it, as far as their tiers are not higher; the scan goes backwards from the
    newest file, run by run, and stops at the first sealed file, which keeps it short however long the partition is.
    """
    rolled, active = _roll(_tail(segments, segment_bytes), segment_ms)
    if len(rolled) > 1:
        return _sealing(rolled, segment_bytes)
    run_end = len(active)
    while run_end > 0:
        tier = _tier(active[run_end - 1], segment_bytes)
        start, run_bytes = run_end, 0
        while start > 0 and _tier(active[start - 1], segment_bytes) <= tier:
            start -= 1
            run_bytes += active[start].bytes
        run = active[start:run_end]
        if run_bytes >= segment_bytes and len(run) > 1:
            return _sealing(run, segment_bytes)
        fan = LARGE_FAN if tier == LARGE_TIER else FAN
        if len(run) >= fan:
            return Merge(tuple(run[:fan]), min(tier + 1, LARGE_TIER))
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


def _tier(segment: Segment, segment_bytes: int) -> int:
    """By what a file was made from, but for its size."""
    return LARGE_TIER if segment.bytes * LARGE_PER_SEGMENT >= segment_bytes else min(segment.tier, LARGE_TIER)


def _sealing(run: Sequence[Segment], segment_bytes: int) -> Merge:
    """The oldest files of a run, up to the one with which they reach segment.bytes."""
    total = 0
    for count, segment in enumerate(run, start=1):
        total += segment.bytes
        if total >= segment_bytes and count > 1:
            break
    return Merge(tuple(run[:count]), SEALED_TIER)
