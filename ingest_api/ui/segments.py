"""A partition's files as columns, for who draws ten thousand of them. Pure."""

from __future__ import annotations

from typing import Any

from compaction_jobs.sealed import newest_ms, oldest_ms, sealed
from lakelog.delta.state import TableState


def segment_columns(state: TableState, partition: int, now_ms: int) -> dict[str, Any]:
    """A file is active, or sealed; where the topic is compacted a sealed one is clean or dirty."""
    part, compacted = state.partitions[partition], state.config.compacted
    segments, cleaned = part.segments, state.cleaned_up_to(partition)
    closed = len(sealed(segments, state.config, now_ms))
    states = ["active"] * len(segments)
    for index, segment in enumerate(segments[:closed]):
        states[index] = "sealed" if not compacted else "clean" if segment.end_offset <= cleaned else "dirty"
    return {
        "partition": partition,
        "log_start_offset": part.log_start_offset,
        "high_watermark": part.next_offset,
        "cleaned_up_to": cleaned if compacted else None,
        "base_offset": [segment.base_offset for segment in segments],
        "end_offset": [segment.end_offset for segment in segments],
        "records": [segment.records for segment in segments],
        "bytes": [segment.bytes for segment in segments],
        "min_timestamp_ms": [oldest_ms(segment) for segment in segments],
        "max_timestamp_ms": [newest_ms(segment) for segment in segments],
        "state": states,
        "file": [segment.path for segment in segments],
    }
