"""Runs a job over one topic or all of them, and writes down in `__maintenance` what became of every partition."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from compaction_jobs.commits import FAILURES, told
from compaction_jobs.context import Context
from compaction_jobs.jobs import compaction, merge, offsets, retention, vacuum
from compaction_jobs.journal import Journal
from compaction_jobs.outcome import WHOLE_TOPIC, Outcome, Outcomes, Tell
from compaction_jobs.surroundings import JOB_NAMES
from lakelog.errors import ErrorCode, LakelogError
from lakelog.topics import Topic, unknown_topic

log = logging.getLogger(__name__)

Job: TypeAlias = Callable[[Context, Sequence[Topic], Tell], Awaitable[None]]

# Those that go over topics; `offsets` is about a table of its own.
TOPIC_JOBS: dict[str, Job] = {
    retention.NAME: retention.run,
    compaction.NAME: compaction.run,
    merge.NAME: merge.run,
    vacuum.NAME: vacuum.run,
}
SPARK_JOBS = frozenset({compaction.NAME, merge.NAME})


async def run_job(
    context: Context, job: str, topic_names: Sequence[str] = (), outcomes: Outcomes | None = None
) -> list[Outcome]:
    """The outcomes, one for each partition that the job had something to do with. No topics stands for all.

    Whoever gives `outcomes` finds them there also if this raises: what was done until then is done, and written down.
    """
    if job not in JOB_NAMES:
        raise LakelogError(ErrorCode.INVALID_REQUEST, f"there is no job {job!r}; there are {', '.join(JOB_NAMES)}")
    outcomes = Outcomes() if outcomes is None else outcomes
    started_ms = context.now_ms
    try:
        if job != offsets.NAME:
            await _over_topics(context, job, topic_names, outcomes.tell)
        elif not topic_names:
            await offsets.run(context, outcomes.tell)
    except BaseException:
        try:
            await _write_down(context, started_ms, outcomes)
        except FAILURES as error:  # why the job stopped is what there is to tell
            log.warning("what %s did before it stopped could not be written down: %s", job, told(error))
        raise
    await _write_down(context, started_ms, outcomes)
    return list(outcomes)


async def _write_down(context: Context, started_ms: int, outcomes: Outcomes) -> None:
    if not context.dry_run:
        journal = Journal(context.broker.store, context.broker.clock)
        await journal.write(secrets.token_hex(8), started_ms, list(outcomes))


async def _over_topics(context: Context, job: str, topic_names: Sequence[str], tell: Tell) -> None:
    topics, missing = await open_topics(context, topic_names)
    for name, why in missing.items():
        tell(Outcome(job=job, topic=name, partition=WHOLE_TOPIC, reason="", error=why))
    if job != vacuum.NAME or topic_names:
        await TOPIC_JOBS[job](context, topics, tell)
        return
    deleted = await deleted_topics(context, {*missing, *(topic.name for topic in topics)})
    await vacuum.run(context, [*topics, *deleted], tell)
    await vacuum.run_beside_topics(context, tell)


async def open_topics(context: Context, names: Sequence[str] = ()) -> tuple[list[Topic], dict[str, str]]:
    """The topics of these names as they are now, or all of them, and why others can't be had.

    Among the others is one that was named and is not there, unless the context has it that it need not be.
    """
    broker = context.broker
    # Named twice, a topic would be rewritten twice.
    wanted = dict.fromkeys(names) or await broker.admin.folders(internal=True)
    found = await broker.admin.survey(wanted, max_age_ms=0)
    for topic in found.topics:
        # Nobody appends here, so nothing else would let go of producers that fell silent.
        topic.state.producers.forget_before(context.now_ms - broker.settings.producer_expiration_ms)
    missing = {name: error.message for name, error in found.unreadable.items()}
    if not context.if_exists:
        there = {*missing, *(topic.name for topic in found.topics)}
        missing |= {name: unknown_topic(name).message for name in names if name not in there}
    return found.topics, missing


async def deleted_topics(context: Context, others: Collection[str]) -> list[Topic]:
    """Those whose folders say that they were deleted, be it that all of their files are gone or not."""
    found: list[Topic] = []
    for folder in await context.broker.admin.folders(internal=True):
        if folder in others:
            continue
        try:
            topic = await context.broker.topics.find(folder)
        except LakelogError:
            continue  # no name for a topic, or another kind of table
        if topic.state.is_topic and not topic.state.exists:
            found.append(topic)
    return found
