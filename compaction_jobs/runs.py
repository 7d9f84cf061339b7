"""Which files of a partition compaction writes as one, and what the new file says of its tombstones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction_jobs.dirtiness import Dirtiness
from compaction_jobs.packing import Survival, pack_survivors
from compaction_jobs.tombstones import CleanedRange, cleaned_ranges, cleaned_tag, tombstones_below
from lakelog.model.segment import Segment


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring files that become one.

    `ranges` say up to which offset tombstones were first cleaned when, by which those of the new file are counted.
    """

    files: tuple[Survival, ...]
    ranges: tuple[tuple[int, int], ...]

    @property
    def segments(self) -> list[Segment]:
        return [file.segment for file in self.files]

    @property
    def survivors(self) -> int:
        return sum(file.survivors for file in self.files)

    @property
    def range_ends(self) -> tuple[int, ...]:
        return tuple(end for end, _ in self.ranges)

    def tags(self, tombstones: Sequence[int]) -> dict[str, str]:
        """Of the new file, which has so many tombstones in each of the ranges."""
        counted = zip(self.ranges, tombstones, strict=True)
        return cleaned_tag(CleanedRange(end, first_ms, count) for (end, first_ms), count in counted)


def plan_runs(found: Dirtiness, survivors: Sequence[int], segment_bytes: int, now_ms: int) -> list[Run]:
    """`survivors` are how many records of each of the partition's clean and dirty files are the last of their key."""
    files = [
        Survival(
            segment,
            count,
            # A dirty file is written anew in any case: from now on its tombstones' time runs.
            must_go=position >= len(found.clean) or tombstones_below(segment, found.tombstones_go_below) > 0,
        )
        for position, (segment, count) in enumerate(zip(found.sources, survivors, strict=True))
    ]
    return [Run(tuple(run), _ranges(run, found.end_offset, now_ms)) for run in pack_survivors(files, segment_bytes)]


def _ranges(files: Sequence[Survival], end_offset: int, now_ms: int) -> tuple[tuple[int, int], ...]:
    """Those of clean files are known. What comes after them is cleaned for the first time."""
    known = [(each.end_offset, each.first_cleaned_ms) for file in files for each in cleaned_ranges(file.segment)]
    return (*known, (end_offset, now_ms))
