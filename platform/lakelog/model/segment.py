"""A segment: one Parquet file of one partition, as its `add` action describes it.

The offsets and timestamps kept here are Kafka's .index and .timeindex: enough to find a record's file without
opening one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# The tier of a file that a merge closed because it reached segment.bytes: no merge takes it up again.
SEALED_TIER = 255


@dataclass(frozen=True, slots=True)
class Segment:
    """Holds the records of [base_offset, end_offset) that are still there; compaction may have taken some."""

    partition: int
    base_offset: int
    end_offset: int
    records: int
    bytes: int
    min_timestamp_us: int
    max_timestamp_us: int
    path: str
    modified_ms: int
    tier: int = 0
    tags: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def sealed_by_size(self) -> bool:
        return self.tier >= SEALED_TIER


def segment_path(partition: int, base_offset: int, unique: str) -> str:
    """Where the file lies in its table: named by its base offset, as Kafka names its segments."""
    return f"partition={partition}/{base_offset:020d}-{unique}.parquet"


def is_active(segment: Segment, *, segment_ms: int, segment_bytes: int, now_ms: int) -> bool:
    """Whether a file still belongs to the active segment: neither full nor old. Jobs leave those alone."""
    if segment.sealed_by_size or segment.bytes >= segment_bytes:
        return False
    return now_ms - segment.min_timestamp_us // 1000 < segment_ms
