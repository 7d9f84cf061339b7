"""Segments for tests of what is decided over them."""

from __future__ import annotations

from lakelog.model.segment import Segment, segment_path


def segment(
    base_offset: int,
    end_offset: int,
    *,
    partition: int = 0,
    size: int = 100,
    tier: int = 0,
    times_us: tuple[int, int] = (0, 0),
    tags: dict[str, str] | None = None,
    unique: str = "x",
    records: int | None = None,
) -> Segment:
    return Segment(
        partition=partition,
        base_offset=base_offset,
        end_offset=end_offset,
        records=end_offset - base_offset if records is None else records,
        bytes=size,
        min_timestamp_us=times_us[0],
        max_timestamp_us=times_us[1],
        path=segment_path(partition, base_offset, unique),
        modified_ms=0,
        tier=tier,
        tags=tags or {},
    )
