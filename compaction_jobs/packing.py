"""Which neighbouring files become one. Pure.

Two callers: compaction, which knows how many records of each file survive, and the merge of small files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.model.segment import Segment

# Fewer small files than this may wait for company: each merge writes their records once more.
FILES_WORTH_A_MERGE = 8


@dataclass(frozen=True, slots=True)
class Survival:
    """A file, how many of its records survive, and whether it has to be written anew even if all do."""

    segment: Segment
    survivors: int
    must_go: bool

    @property
    def changes(self) -> bool:
        return self.must_go or self.survivors < self.segment.records

    @property
    def bytes_left(self) -> int:
        return self.segment.bytes * self.survivors // max(1, self.segment.records)


def pack_survivors(files: Sequence[Survival], segment_bytes: int) -> list[list[Survival]]:
    """Runs of neighbours that are written as one file each. A file that does not change stays, and parts two runs."""
    runs: list[list[Survival]] = []
    open_bytes = -1  # of the run that still takes files
    for file in files:
        if not file.changes:
            open_bytes = -1
        elif open_bytes < 0 or open_bytes + file.bytes_left > segment_bytes:
            runs.append([file])
            open_bytes = file.bytes_left
        else:
            runs[-1].append(file)
            open_bytes += file.bytes_left
    return runs


def pack_small(sealed: Sequence[Segment], segment_bytes: int, cleaned: int = 0) -> list[tuple[Segment, ...]]:
    """Runs of two and more small neighbours that fit into one segment. Clean and dirty files are not mixed."""
    packs: list[list[Segment]] = []
    open_bytes = -1
    for segment in sealed:
        if segment.bytes * 2 >= segment_bytes:
            open_bytes = -1
            continue
        mixes = open_bytes >= 0 and packs[-1][-1].end_offset <= cleaned < segment.end_offset
        if open_bytes < 0 or mixes or open_bytes + segment.bytes > segment_bytes:
            packs.append([segment])
            open_bytes = segment.bytes
        else:
            packs[-1].append(segment)
            open_bytes += segment.bytes
    return [tuple(pack) for pack in packs if len(pack) > 1]


def worth_a_merge(pack: Sequence[Segment], segment_bytes: int) -> bool:
    """Whether a schedule should merge the pack now, and not wait until there is more of it."""
    return len(pack) >= FILES_WORTH_A_MERGE or 2 * sum(segment.bytes for segment in pack) >= segment_bytes
