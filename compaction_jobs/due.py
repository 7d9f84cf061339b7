"""What is due and why, for a schedule that acts on it and a person who asks. Pure, on the state of a table."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_jobs.dirtiness import Dirtiness, dirtiness
from compaction_jobs.packing import pack_small, worth_a_merge
from compaction_jobs.retention import held_by_active_segment, plan_retention
from compaction_jobs.sealed import sealed
from lakelog.delta.state import PartitionState, TableState


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """`due` says why each job is due; `waiting` what a person should know of that is not."""

    partition: int
    files: int
    bytes: int
    records: int
    due: dict[str, str]
    log_start: int | None = None
    cleaned_up_to: int | None = None
    dirty_ratio: float | None = None
    waiting: str | None = None


def partition_status(state: TableState, number: int, now_ms: int) -> PartitionStatus:
    partition, config = state.partitions[number], state.config
    cleaned = state.cleaned_up_to(number)
    due: dict[str, str] = {}
    expiry = plan_retention(partition.segments, partition.log_start_offset, config, now_ms)
    if expiry is not None:
        due["retention"] = f"{len(expiry.removed)} files: {expiry.reason}"
    found: Dirtiness | None = None
    if config.compacted:
        found = dirtiness(partition.segments, cleaned, config, now_ms)
        if found.due is not None:
            due["compaction"] = found.due
    packs = pack_small(sealed(partition.segments, config, now_ms), config.segment_bytes, cleaned)
    worthwhile = [pack for pack in packs if worth_a_merge(pack, config.segment_bytes)]
    if worthwhile and "compaction" not in due:  # which will rewrite them anyway
        due["merge"] = f"{sum(map(len, worthwhile))} small files"
    return PartitionStatus(
        partition=number,
        files=len(partition.segments),
        bytes=partition.bytes,
        records=sum(segment.records for segment in partition.segments),
        log_start=partition.log_start_offset,
        cleaned_up_to=cleaned if config.compacted else None,
        dirty_ratio=found.ratio if found is not None else None,
        due=due,
        waiting=_waiting(partition, state, now_ms),
    )


def _waiting(partition: PartitionState, state: TableState, now_ms: int) -> str | None:
    held = held_by_active_segment(partition.segments, state.config, now_ms)
    if not held:
        return None
    return (
        f"{held} files are past retention.ms but not yet past segment.ms ({state.config.segment_ms}), so still active"
    )
