"""How dirty a compacted partition is, and whether and why it is due for compaction. Pure.

A partition is clean up to an offset that the table remembers, dirty from there on, and out of reach from the first file
that is active or younger than min.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction_jobs.sealed import newest_ms, oldest_ms, sealed, total_bytes
from compaction_jobs.tombstones import tombstones_below, tombstones_go_below
from lakelog.config import TopicConfig
from lakelog.model.segment import Segment


@dataclass(frozen=True, slots=True)
class Dirtiness:
    """A partition as compaction sees it. Compacting it reads `clean` and `dirty` and cleans up to `end_offset`."""

    clean: tuple[Segment, ...]
    dirty: tuple[Segment, ...]
    end_offset: int
    tombstones_go_below: int
    tombstones_to_go: int
    due: str | None

    @property
    def ratio(self) -> float:
        """The share of the reachable bytes that has never been cleaned."""
        dirty_bytes = total_bytes(self.dirty)
        return dirty_bytes / (dirty_bytes + total_bytes(self.clean)) if dirty_bytes else 0.0

    @property
    def sources(self) -> tuple[Segment, ...]:
        return (*self.clean, *self.dirty)

    @property
    def anything_to_do(self) -> bool:
        return bool(self.dirty) or self.tombstones_to_go > 0


def dirtiness(segments: Sequence[Segment], cleaned: int, config: TopicConfig, now_ms: int) -> Dirtiness:
    """`cleaned` is the offset that the partition is cleaned up to."""
    reachable: list[Segment] = []
    for segment in sealed(segments, config, now_ms):
        # The clean part was out of the lag once; a longer lag that was set since does not make it dirty.
        if segment.end_offset > cleaned and now_ms - newest_ms(segment) < config.min_compaction_lag_ms:
            break
        reachable.append(segment)
    clean = tuple(segment for segment in reachable if segment.end_offset <= cleaned)
    dirty = tuple(segment for segment in reachable if segment.end_offset > cleaned)
    go_below = tombstones_go_below(clean, config.delete_retention_ms, now_ms)
    to_go = sum(tombstones_below(segment, go_below) for segment in clean)
    end_offset = dirty[-1].end_offset if dirty else cleaned
    found = Dirtiness(clean, dirty, end_offset, go_below, to_go, None)
    return Dirtiness(clean, dirty, end_offset, go_below, to_go, _due(found, config, now_ms))


def _due(found: Dirtiness, config: TopicConfig, now_ms: int) -> str | None:
    if found.dirty:
        waited_ms = now_ms - min(oldest_ms(segment) for segment in found.dirty)
        if waited_ms > config.max_compaction_lag_ms:
            return "dirty for longer than max.compaction.lag.ms"
        if found.ratio > config.min_cleanable_dirty_ratio:
            return f"dirty ratio {found.ratio:.2f}, over {config.min_cleanable_dirty_ratio:g}"
    if found.tombstones_to_go:
        return f"{found.tombstones_to_go} tombstones past delete.retention.ms"
    return None
