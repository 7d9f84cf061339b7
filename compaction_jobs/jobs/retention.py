"""Retention: segments that are too old or too many leave the table, and the log starts after them.

No Spark: nothing is read or written but the log of the table. A partition is one commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from compaction_jobs.commits import FAILURES
from compaction_jobs.context import Context
from compaction_jobs.outcome import Amount, Outcome, Tell, brief
from compaction_jobs.retention import Expiry, plan_retention
from lakelog.delta import drafts
from lakelog.delta.table import Stale
from lakelog.topics import Topic

NAME = "retention"
# Each one against another writer who merges the same files at the same moment.
ATTEMPTS = 16


def plan(topic: Topic, partition: int, now_ms: int) -> Expiry | None:
    state = topic.state.partitions[partition]
    return plan_retention(state.segments, state.log_start_offset, topic.state.config, now_ms)


async def run(context: Context, topics: Sequence[Topic], tell: Tell) -> None:
    partitions = [(topic, number) for topic in topics for number in range(len(topic.state.partitions))]
    context.progress.begin(NAME, len(partitions))
    for topic, number in partitions:
        outcome = await _expire(context, topic, number)
        if outcome is not None:
            tell(outcome)
        context.progress.advance()


async def _expire(context: Context, topic: Topic, partition: int) -> Outcome | None:
    started_ms = context.broker.clock.monotonic_ms()
    expiry = plan(topic, partition, context.now_ms)
    if expiry is None or context.dry_run:
        return None if expiry is None else _outcome(topic, partition, expiry)
    error: str | None = "other writers merge its files all the time; the next run takes it up"
    try:
        for _ in range(ATTEMPTS):
            starts = {partition: expiry.log_start}
            try:
                await topic.table.commit(drafts.expire("EXPIRE", starts, expiry.removed, topic.state, context.now_ms))
                error = None
                break
            except Stale:
                topic.require()
                again = plan(topic, partition, context.now_ms)
                if again is None:
                    return None
                expiry = again
    except FAILURES as failure:
        error = brief(failure)
    seconds = (context.broker.clock.monotonic_ms() - started_ms) / 1000
    return _outcome(topic, partition, expiry, seconds=seconds, error=error)


def _outcome(
    topic: Topic, partition: int, expiry: Expiry, *, seconds: float = 0.0, error: str | None = None
) -> Outcome:
    before = Amount.of(expiry.removed)
    return Outcome(
        job=NAME,
        topic=topic.name,
        partition=partition,
        reason=expiry.reason,
        before=before,
        after=before if error else Amount(),
        log_start=None if error else expiry.log_start,
        seconds=seconds,
        error=error,
    )
