"""Offsets: of what groups have committed the latest stays, and what has outlived its group goes.

The table `__consumer_offsets` and the rule are those of `consumer_groups`; here the pass is run and told. No Spark: the
table is about as large as what it says, because the coordinator folds it too while it is at work.
"""

from __future__ import annotations

from compaction_jobs.commits import FAILURES
from compaction_jobs.context import Context
from compaction_jobs.due import PartitionStatus
from compaction_jobs.outcome import WHOLE_TOPIC, Amount, Outcome, Tell, brief
from consumer_groups import offset_table
from consumer_groups.group_settings import GroupSettings
from consumer_groups.offset_compaction import OffsetsCompacted, compact_offsets

NAME = "offsets"


async def run(context: Context, tell: Tell) -> None:
    clock = context.broker.clock
    started_ms = clock.monotonic_ms()
    done, error = OffsetsCompacted(), None
    try:
        done = await _pass(context, dry_run=context.dry_run)
    except FAILURES as failure:
        error = brief(failure)
    before, after = _amounts(done)
    if before != after or error is not None:
        tell(
            Outcome(
                job=NAME,
                topic=offset_table.NAME,
                partition=WHOLE_TOPIC,
                reason=_reason(done),
                before=before,
                after=after,
                seconds=(clock.monotonic_ms() - started_ms) / 1000,
                error=error,
            )
        )


async def status(context: Context) -> list[PartitionStatus]:
    """The table as a line among the partitions of topics, if there is one."""
    found = await _pass(context, dry_run=True)
    if found.files_before == 0:
        return []
    due = {NAME: _reason(found)} if found.rows_after < found.rows_before else {}
    return [PartitionStatus(WHOLE_TOPIC, found.files_before, found.bytes_before, found.rows_before, due)]


def _amounts(done: OffsetsCompacted) -> tuple[Amount, Amount]:
    before = Amount(done.files_before, done.bytes_before, done.rows_before)
    return before, Amount(done.files_after, done.bytes_after, done.rows_after)


def _reason(done: OffsetsCompacted) -> str:
    return f"{done.rows_before - done.rows_after} commits that no longer count"


async def _pass(context: Context, *, dry_run: bool) -> OffsetsCompacted:
    settings = GroupSettings(offsets_retention_minutes=context.offsets_retention_minutes)
    return await compact_offsets(context.broker.store, settings, context.broker.clock, dry_run=dry_run)
