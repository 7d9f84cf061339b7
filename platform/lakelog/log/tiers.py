"""Which files of a partition's tail to merge next.

Files that appends write have tier 0. FAN of one tier become one of the next, so a partition has at most FAN - 1 files
per tier and a record is rewritten once per tier. A merge that reaches segment.bytes seals its file, and a sealed
file is not taken up again: the number of files grows with bytes / segment.bytes plus a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.model.segment import SEALED_TIER, Segment

FAN = 16


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbouring segments, oldest first, and the tier of the file that replaces them."""

    segments: tuple[Segment, ...]
    tier: int


def plan_merge(segments: Sequence[Segment], segment_bytes: int) -> Merge | None:
    """The next merge that a partition is due, or None. `segments` are all of its files, by offset.

    Tiers fall along the offsets, so each one is a run of neighbours; the scan goes backwards from the newest file
    and stops at the first sealed one, which keeps it short however long the partition is.
    """
    run_end = len(segments)
    while run_end > 0:
        tier = segments[run_end - 1].tier
        if tier >= SEALED_TIER or segments[run_end - 1].bytes >= segment_bytes:
            return None
        start, run_bytes = run_end, 0
        while start > 0 and segments[start - 1].tier == tier and segments[start - 1].bytes < segment_bytes:
            start -= 1
            run_bytes += segments[start].bytes
        run = segments[start:run_end]
        if run_bytes >= segment_bytes and len(run) > 1:
            return _sealing(run, segment_bytes)
        if len(run) >= FAN:
            return Merge(tuple(run[:FAN]), tier + 1)
        run_end = start
    return None


def _sealing(run: Sequence[Segment], segment_bytes: int) -> Merge:
    """The oldest files of a run, up to the one with which they reach segment.bytes."""
    total = 0
    for count, segment in enumerate(run, start=1):
        total += segment.bytes
        if total >= segment_bytes and count > 1:
            break
    return Merge(tuple(run[:count]), SEALED_TIER)
