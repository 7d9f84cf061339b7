"""Where the active segment of a partition begins. Jobs work below it and leave what is in it alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.config import TopicConfig
from lakelog.model.segment import Segment, is_active


def sealed(segments: Sequence[Segment], config: TopicConfig, now_ms: int) -> list[Segment]:
    """The files before the active segment, by offset. The first active file ends them, whatever comes after it."""
    found: list[Segment] = []
    for segment in segments:
        if is_active(segment, segment_ms=config.roll_ms, segment_bytes=config.segment_bytes, now_ms=now_ms):
            break
        found.append(segment)
    return found


def newest_ms(segment: Segment) -> int:
    return segment.max_timestamp_us // 1000


def oldest_ms(segment: Segment) -> int:
    return segment.min_timestamp_us // 1000


def total_bytes(segments: Sequence[Segment]) -> int:
    return sum(segment.bytes for segment in segments)


def total_records(segments: Sequence[Segment]) -> int:
    return sum(segment.records for segment in segments)
