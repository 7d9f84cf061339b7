"""The one atomic step of a job: new files in the place of old ones, by the committer that every writer shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction_jobs.lease import Lease, LeaseLost
from compaction_jobs.outcome import brief
from compaction_jobs.rewriting import Written
from lakelog.delta import drafts
from lakelog.delta.store import StoreRefused, StoreUnavailable
from lakelog.delta.table import OutcomeUnknown, Stale
from lakelog.errors import LakelogError
from lakelog.model.segment import SEALED_TIER, Segment
from lakelog.topics import Topic

# What may go wrong with one partition and leaves the others alone.
FAILURES = (LakelogError, StoreUnavailable, StoreRefused, OutcomeUnknown, LeaseLost)


def told(failure: Exception) -> str:
    """One of FAILURES in a line for the operator."""
    if isinstance(failure, LakelogError):
        return failure.message
    if isinstance(failure, LeaseLost):
        return str(failure)
    return f"the store failed: {brief(failure)}"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Old files, and what was written in their place; `tags` are those of the new file."""

    removed: Sequence[Segment]
    written: Written
    tags: Mapping[str, str]

    def segment(self, now_ms: int, notes: Mapping[str, str]) -> Segment | None:
        new = self.written
        if not new.path:
            return None
        return Segment(
            partition=self.removed[0].partition,
            base_offset=new.base_offset,
            end_offset=new.end_offset,
            records=new.records,
            bytes=new.bytes,
            min_timestamp_us=new.min_timestamp_us,
            max_timestamp_us=new.max_timestamp_us,
            path=new.path,
            modified_ms=now_ms,
            # Sealed, however small it is: the leader merges its tail and leaves this to the jobs.
            tier=SEALED_TIER,
            tags={**notes, **self.tags},
        )


async def replace(
    topic: Topic,
    operation: str,
    replacements: Sequence[Replacement],
    lease: Lease,
    now_ms: int,
    txns: Mapping[str, int] | None = None,
) -> list[Segment] | None:
    """Commit the replacements of one partition together, and return the new files.

    None if another writer has replaced one of the old files meanwhile; what was written is then dropped. Raises one of
    FAILURES. After all but OutcomeUnknown the table is as it was.
    """
    topic.require()
    state = topic.state
    removed = [segment for each in replacements for segment in each.removed]
    written: list[Segment] = []
    for each in replacements:
        segment = each.segment(now_ms, drafts.carried_notes(each.removed, state.producers))
        if segment is not None:
            written.append(segment)
    draft = drafts.rewrite(drafts.new_commit_id(), operation, removed, written, state, now_ms, txns)
    lease.require()
    try:
        await topic.table.commit(draft)
    except Stale:
        await topic.table.store.delete([topic.table.path(segment.path) for segment in written])
        return None
    return written
