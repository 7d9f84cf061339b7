"""Keeps the topics of a warehouse clean without anybody's doing: looks what is due, and runs it.

Lives in a process of its own. Jobs that need no Spark run in it, round by round. For those that do it starts one local
Spark application beside the rounds, which ends with its work, so that no memory is held while there is nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import TextIO, TypeAlias

from compaction_jobs.application import run_application
from compaction_jobs.commits import FAILURES, told
from compaction_jobs.context import Context
from compaction_jobs.due import partition_status
from compaction_jobs.jobs import offsets, retention, vacuum
from compaction_jobs.outcome import Outcomes, partition_name
from compaction_jobs.runner import SPARK_JOBS, open_topics, run_job
from compaction_jobs.surroundings import options_variable

log = logging.getLogger(__name__)

# Vacuum lists whole folders and offsets are read to see what counts, so these do not go round every time.
CLOCKED_JOBS = (offsets.NAME, vacuum.NAME)
CLOCK_INTERVAL_MS = 600_000
# After Spark has failed, be it that there is none: what is wrong will hardly be mended within a minute.
SPARK_BACKOFF_MS = 600_000
# No run takes that long unless it hangs. The schedules under deploy/ have the same limit.
SPARK_LIMIT_S = 6 * 3600

# The jobs that are due, and of each the topics with one of the reasons.
Due: TypeAlias = dict[str, dict[str, str]]


async def keep_clean(context: Context, every_s: float, until: TextIO | None = None) -> None:
    """Go round every so often. With `until`, only as long as that stream is open: it closes with its writer."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    ended = asyncio.create_task(_end_of(until)) if until is not None else None
    rounds = asyncio.create_task(_rounds(context, every_s))
    tasks = [task for task in (ended, rounds) if task is not None]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    rounds.cancel()
    await asyncio.gather(rounds, return_exceptions=True)


async def _end_of(stream: TextIO) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    while await reader.read(1024):
        pass


async def _rounds(context: Context, every_s: float) -> None:
    clocked_ms = context.broker.clock.monotonic_ms()  # when those may run next
    async with aclosing(SparkBeside(context)) as beside:
        while True:
            await asyncio.sleep(every_s)
            now_ms = context.broker.clock.monotonic_ms()
            try:
                due = await due_jobs(context)
                await run_due(context, due, with_clocked=now_ms >= clocked_ms)
                if now_ms >= clocked_ms:
                    clocked_ms = now_ms + CLOCK_INTERVAL_MS
                beside.take_up(due)
            except FAILURES as error:
                log.warning("maintenance was put off: %s", told(error))
            except Exception:
                log.exception("maintenance failed")


async def run_due(context: Context, due: Due, *, with_clocked: bool) -> None:
    """Run what needs no Spark, here and now. What one job can't do is told, and the others are run."""
    jobs = [retention.NAME] if retention.NAME in due else []
    for job in [*jobs, *(CLOCKED_JOBS if with_clocked else ())]:
        _tell(job, due.get(job, {}))
        outcomes = Outcomes()
        try:
            await run_job(context, job, outcomes=outcomes)
        except FAILURES as error:
            log.warning("%s was put off: %s", job, told(error))
        except Exception:
            log.exception("%s failed", job)
        for each in outcomes:
            if each.error is not None:
                log.warning("%s of %s failed: %s", job, partition_name(each.topic, each.partition), each.error)


class SparkBeside:
    """The jobs that need Spark, beside the rounds: one application at a time, and after a failure none for a while."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._not_before_ms = float("-inf")

    def take_up(self, due: Due) -> None:
        """Start what is due, unless something is at work or has failed a moment ago."""
        jobs = [job for job in due if job in SPARK_JOBS]
        if not jobs or self._task is not None or self._clock_ms() < self._not_before_ms:
            return
        for job in jobs:
            _tell(job, due[job])
        topics = sorted({topic for job in jobs for topic in due[job]})
        self._task = asyncio.create_task(self._work(jobs, topics))

    async def _work(self, jobs: Sequence[str], topics: Sequence[str]) -> None:
        done = False
        try:
            done = await _spark_application(self._context, jobs, topics)
        except Exception:
            log.exception("maintenance on Spark failed")
        finally:
            self._task = None
            if not done:
                self._not_before_ms = self._clock_ms() + SPARK_BACKOFF_MS

    def _clock_ms(self) -> float:
        return self._context.broker.clock.monotonic_ms()

    async def aclose(self) -> None:
        """End what is at work."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def due_jobs(context: Context) -> Due:
    topics, _ = await open_topics(context)  # those that can't be read are told by the jobs that meet them
    found: Due = {}
    for topic in topics:
        for number in range(len(topic.state.partitions)):
            for job, why in partition_status(topic.state, number, context.now_ms).due.items():
                found.setdefault(job, {})[topic.name] = why
    return found


def _tell(job: str, topics: dict[str, str]) -> None:
    for topic, why in topics.items():
        log.info("%s of %s is due: %s", job, topic, why)


async def _spark_application(context: Context, jobs: Sequence[str], topics: Sequence[str]) -> bool:
    """Whether it did all that it was to do."""
    # A topic may be deleted until its turn comes: no reason to leave the others alone for a while.
    command = [sys.executable, "-m", "compaction_jobs", "run", *jobs, "--if-exists", "--warehouse", context.url]
    for topic in topics:
        command += ["--topic", topic]
    if context.io_bytes_per_second:
        command += ["--io-bytes-per-second", str(context.io_bytes_per_second)]
    if context.broker.settings.fsync:
        command += ["--fsync"]
    environment = {**os.environ, **options_variable(context.options), "COLUMNS": "200"}
    try:
        ended = await run_application(command, environment, limit_s=SPARK_LIMIT_S)
    except OSError as error:
        log.warning("%s could not be started: %s", " and ".join(jobs), error)
        return False
    if ended.code != 0:
        how = "failed" if ended.code is not None else f"took more than {SPARK_LIMIT_S // 3600} hours, was ended"
        log.warning("%s %s, and is left alone for a while:\n%s", " and ".join(jobs), how, ended.last_words)
    return ended.code == 0
