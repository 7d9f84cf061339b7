"""When a tombstone may go: delete.retention.ms after it was first cleaned (KIP-534). Pure.

A cleaned file says in a tag how many tombstones it holds and when they were first cleaned, by ranges of offsets. The
tag travels with the records through every later rewrite, so the clock of a tombstone is started once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lakelog.model.segment import Segment

CLEANED_TAG = "lakelog.cleaned"


class CleanedRange(msgspec.Struct, frozen=True, array_like=True):
    """The tombstones of a file from the range before up to `end_offset`. Ranges without any are left out."""

    end_offset: int
    first_cleaned_ms: int
    tombstones: int


_decoder = msgspec.json.Decoder(tuple[CleanedRange, ...])


def cleaned_ranges(segment: Segment) -> tuple[CleanedRange, ...]:
    text = segment.tags.get(CLEANED_TAG)
    return _decoder.decode(text) if text is not None else ()


def cleaned_tag(ranges: Iterable[CleanedRange]) -> dict[str, str]:
    """The tag of a file with these ranges; neighbours that were cleaned together become one."""
    kept: list[CleanedRange] = []
    for each in ranges:
        if each.tombstones == 0:
            continue
        if kept and kept[-1].first_cleaned_ms == each.first_cleaned_ms:
            together = kept[-1].tombstones + each.tombstones
            kept[-1] = CleanedRange(each.end_offset, each.first_cleaned_ms, together)
        else:
            kept.append(each)
    return {CLEANED_TAG: msgspec.json.encode(kept).decode()} if kept else {}


def tombstones_go_below(clean: Sequence[Segment], delete_retention_ms: int, now_ms: int) -> int:
    """The offset below which every tombstone has been kept for long enough."""
    below = 0
    for segment in clean:
        for each in cleaned_ranges(segment):
            if now_ms - each.first_cleaned_ms < delete_retention_ms:
                return below
            below = each.end_offset
    return below


def tombstones_below(segment: Segment, offset: int) -> int:
    """How many tombstones of a file lie in ranges that end at or below an offset."""
    return sum(each.tombstones for each in cleaned_ranges(segment) if each.end_offset <= offset)
