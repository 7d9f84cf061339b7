"""Keeps the topics of a warehouse clean without anybody's doing: looks what is due, and runs it.

Lives in a process of its own. Jobs that need no Spark run in it; for those that do it starts one local Spark
application, which ends with its work, so that no memory is held while there is nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import TextIO, TypeAlias

from compaction_jobs.context import Context
from compaction_jobs.due import partition_status
from compaction_jobs.jobs import offsets, retention, vacuum
from compaction_jobs.runner import SPARK_JOBS, open_topics, run_job
from compaction_jobs.surroundings import options_variable
from lakelog.delta.store import StoreRefused, StoreUnavailable
from lakelog.errors import LakelogError

log = logging.getLogger(__name__)

# Vacuum lists whole folders and offsets are read to see what counts, so these do not go round every time.
CLOCKED_JOBS = (offsets.NAME, vacuum.NAME)
CLOCK_INTERVAL_MS = 600_000
# After Spark has failed, be it that there is none: what is wrong will hardly be mended within a minute.
SPARK_BACKOFF_MS = 600_000
OUTPUT_TOLD_CHARS = 4000

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
    clocked_ms = spark_ms = context.broker.clock.monotonic_ms()  # when each may run next
    while True:
        await asyncio.sleep(every_s)
        now_ms = context.broker.clock.monotonic_ms()
        try:
            due = await due_jobs(context)
            await run_due(context, due, with_clocked=now_ms >= clocked_ms)
            if now_ms >= clocked_ms:
                clocked_ms = now_ms + CLOCK_INTERVAL_MS
            if now_ms >= spark_ms and not await run_due_on_spark(context, due):
                spark_ms = now_ms + SPARK_BACKOFF_MS
        except (LakelogError, StoreUnavailable, StoreRefused) as error:
            log.warning("maintenance was put off: %s", error)
        except Exception:
            log.exception("maintenance failed")


async def run_due(context: Context, due: Due, *, with_clocked: bool) -> None:
    """Run what needs no Spark, here and now."""
    if retention.NAME in due:
        _tell(retention.NAME, due[retention.NAME])
        await run_job(context, retention.NAME)
    if with_clocked:
        for job in CLOCKED_JOBS:
            await run_job(context, job)


async def run_due_on_spark(context: Context, due: Due) -> bool:
    """Run what needs Spark in an application of its own, to its end. False if that failed."""
    jobs = [job for job in due if job in SPARK_JOBS]
    for job in jobs:
        _tell(job, due[job])
    topics = sorted({topic for job in jobs for topic in due[job]})
    return not jobs or await _spark_application(context, jobs, topics)


async def due_jobs(context: Context) -> Due:
    topics, _ = await open_topics(context, ())
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
    command = [sys.executable, "-m", "compaction_jobs", "run", *jobs, "--warehouse", context.url]
    for topic in topics:
        command += ["--topic", topic]
    if context.io_bytes_per_second:
        command += ["--io-bytes-per-second", str(context.io_bytes_per_second)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **options_variable(context.options), "COLUMNS": "200"},
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    if process.returncode:
        told = output.decode(errors="replace")[-OUTPUT_TOLD_CHARS:]
        log.warning("%s failed, and is left alone for a while:\n%s", " and ".join(jobs), told)
    return process.returncode == 0
