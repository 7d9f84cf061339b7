"""`__consumer_offsets` made small from outside: for a scheduled job, beside a coordinator that may be at work or not.

Owns one pass over the table: the latest row per group and partition stays, deletions and what has expired go. The
coordinator expires offsets by the same rule while it runs. So that the two never disagree, the pass leaves it an hour:
what it takes away, a coordinator at work would have deleted long ago, and it only matters where none is.

A job calls `compact_offsets` with the warehouse's store; `offset_table.latest` and `offset_table.without_expired` are
the decisions behind it, on Arrow tables with the columns of `offset_table.SCHEMA`. It needs neither a claim nor a lock:
a commit of the coordinator meanwhile is no conflict, and of two passes at the same time one finds its files gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from consumer_groups import fact_table, offset_table
from consumer_groups.group_settings import GroupSettings
from lakelog.clock import Clock, SystemClock
from lakelog.delta.ledger import Ledger, LedgerFile
from lakelog.delta.store import Store

# The coordinator is this much ahead of the job in expiring offsets.
GRACE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class OffsetsCompacted:
    """What a pass found and left. Nothing changed where `files_before` is `files_after`."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows_before: int = 0
    rows_after: int = 0


async def compact_offsets(
    store: Store, settings: GroupSettings | None = None, clock: Clock | None = None, *, dry_run: bool = False
) -> OffsetsCompacted:
    """One pass. A warehouse without groups has nothing to do.

    With `dry_run` it is only told what would be left; how large that is nobody knows before it is written.
    """
    settings, clock = settings or GroupSettings(), clock or SystemClock()
    offsets = Ledger(store, offset_table.NAME, offset_table.SCHEMA, clock, asyncio.to_thread)
    if not await offsets.exists():
        return OffsetsCompacted()
    facts = Ledger(store, fact_table.NAME, fact_table.SCHEMA, clock, asyncio.to_thread)
    groups = fact_table.groups_of(await facts.read())
    with_members = [group_id for group_id, group in groups.items() if group.members]
    idle_since_ms = {group_id: group.changed_ms for group_id, group in groups.items()}
    due_ms = clock.now_ms() - settings.offsets_retention_minutes * 60_000 - GRACE_MS

    def remaining(rows: pa.Table) -> pa.Table:
        latest = offset_table.latest(rows, drop_deleted=True)
        return offset_table.without_expired(latest, idle_since_ms, with_members, due_ms)

    rows = await offsets.read()
    before = offsets.files
    left = remaining(rows).num_rows
    if not dry_run and (len(before) > 1 or left < rows.num_rows):
        await offsets.rewrite(before, remaining, claimed=False)
    after = offsets.files
    if dry_run:
        return replace(_compacted(before, before), files_after=min(left, 1), rows_after=left)
    return _compacted(before, after)


def _compacted(before: Sequence[LedgerFile], after: Sequence[LedgerFile]) -> OffsetsCompacted:
    return OffsetsCompacted(
        files_before=len(before),
        files_after=len(after),
        bytes_before=sum(file.bytes for file in before),
        bytes_after=sum(file.bytes for file in after),
        rows_before=sum(file.rows for file in before),
        rows_after=sum(file.rows for file in after),
    )
