"""Which segments expire, by retention.ms and retention.bytes, and where the log starts then. Pure.

Whole sealed segments, oldest first: the first one that has to stay ends it. The active segment always stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction_jobs.sealed import newest_ms, sealed, total_bytes
from lakelog.config import TopicConfig
from lakelog.model.segment import Segment


@dataclass(frozen=True, slots=True)
class Expiry:
    """The new log start, and the files that leave the table with it."""

    log_start: int
    removed: tuple[Segment, ...]
    reason: str


def plan_retention(segments: Sequence[Segment], log_start: int, config: TopicConfig, now_ms: int) -> Expiry | None:
    """What expires now, or None. Files that lie below the log start already go too."""
    served = [segment for segment in segments if segment.end_offset > log_start]
    expired, reasons = _expired(served, config, now_ms) if "delete" in config.cleanup_policy else ([], set())
    new_start = expired[-1].end_offset if expired else log_start
    removed = tuple(each for each in segments if each.end_offset <= new_start)
    if new_start == log_start and not removed:
        return None
    return Expiry(new_start, removed, " and ".join(sorted(reasons)) or "below the log start")


def _expired(served: Sequence[Segment], config: TopicConfig, now_ms: int) -> tuple[list[Segment], set[str]]:
    expired: list[Segment] = []
    reasons: set[str] = set()
    left_bytes = total_bytes(served)
    for segment in sealed(served, config, now_ms):
        too_old = config.retention_ms >= 0 and now_ms - newest_ms(segment) > config.retention_ms
        # As in Kafka, what is left never falls below the limit by the deletion of a segment.
        too_much = 0 <= config.retention_bytes <= left_bytes - segment.bytes
        if not too_old and not too_much:
            break
        reasons.add("retention.ms" if too_old else "retention.bytes")
        left_bytes -= segment.bytes
        expired.append(segment)
    return expired, reasons


def held_by_active_segment(segments: Sequence[Segment], config: TopicConfig, now_ms: int) -> int:
    """How many files are past retention.ms and stay because they belong to the active segment."""
    if "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return 0
    active = segments[len(sealed(segments, config, now_ms)) :]
    return sum(now_ms - newest_ms(segment) > config.retention_ms for segment in active)
