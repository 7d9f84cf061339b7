"""Runs a job over one topic or all of them, and writes down in `__maintenance` what became of every partition."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from compaction_jobs.context import Context
from compaction_jobs.jobs import compaction, merge, offsets, retention, vacuum
from compaction_jobs.journal import Journal
from compaction_jobs.outcome import WHOLE_TOPIC, Outcome
from compaction_jobs.surroundings import JOB_NAMES
from lakelog.errors import ErrorCode, LakelogError
from lakelog.topics import Topic

Job: TypeAlias = Callable[[Context, Sequence[Topic]], Awaitable[list[Outcome]]]

# Those that go over topics; `offsets` is about a table of its own.
TOPIC_JOBS: dict[str, Job] = {
    retention.NAME: retention.run,
    compaction.NAME: compaction.run,
    merge.NAME: merge.run,
    vacuum.NAME: vacuum.run,
}
SPARK_JOBS = frozenset({compaction.NAME, merge.NAME})


async def run_job(context: Context, job: str, topic_names: Sequence[str] = ()) -> list[Outcome]:
    """The outcomes, one for each partition that the job had something to do with. No topics stands for all."""
    if job not in JOB_NAMES:
        raise LakelogError(ErrorCode.INVALID_REQUEST, f"there is no job {job!r}; there are {', '.join(JOB_NAMES)}")
    started_ms = context.now_ms
    if job == offsets.NAME:
        outcomes = [] if topic_names else await offsets.run(context)
    else:
        outcomes = await _over_topics(context, job, topic_names)
    if not context.dry_run:
        await Journal(context.broker.store, context.broker.clock).write(secrets.token_hex(8), started_ms, outcomes)
    return outcomes


async def _over_topics(context: Context, job: str, topic_names: Sequence[str]) -> list[Outcome]:
    topics, unreadable = await open_topics(context, topic_names)
    outcomes = [
        Outcome(job=job, topic=name, partition=WHOLE_TOPIC, reason="", error=why) for name, why in unreadable.items()
    ]
    if job != vacuum.NAME or topic_names:
        return [*outcomes, *await TOPIC_JOBS[job](context, topics)]
    deleted = await deleted_topics(context, {*unreadable, *(topic.name for topic in topics)})
    return [*outcomes, *await vacuum.run(context, [*topics, *deleted]), *await vacuum.run_beside_topics(context)]


async def open_topics(context: Context, names: Sequence[str]) -> tuple[list[Topic], dict[str, str]]:
    """The topics as they are now, and why others can't be had. One that was named and is not there is an error."""
    found: list[Topic] = []
    unreadable: dict[str, str] = {}
    broker = context.broker
    for name in names or await broker.admin.list_topics(internal=True):
        try:
            topic = await broker.topics.get(name, max_age_ms=0)
        except LakelogError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if names:
                    raise
            else:
                unreadable[name] = error.message
            continue
        # Nobody appends here, so nothing else would let go of producers that fell silent.
        topic.state.producers.forget_before(context.now_ms - broker.settings.producer_expiration_ms)
        found.append(topic)
    return found, unreadable


async def deleted_topics(context: Context, others: Collection[str]) -> list[Topic]:
    """Those whose folders say that they were deleted, be it that all of their files are gone or not."""
    found: list[Topic] = []
    for folder in await context.broker.store.folders():
        if folder in others:
            continue
        try:
            topic = await context.broker.topics.find(folder)
        except LakelogError:
            continue  # no name for a topic, or another kind of table
        if topic.state.is_topic and not topic.state.exists:
            found.append(topic)
    return found
