"""What every job is given: the warehouse, the time, how it is to run, and whom to tell how far it is.

A Spark session is made only when a job asks for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from compaction_jobs.outcome import brief
from compaction_jobs.rewriting import Access
from compaction_jobs.surroundings import OFFSETS_RETENTION_MINUTES
from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError
from lakelog.spark.session import LOCAL_SETTINGS, SparkUnavailable, is_submitted, require_java, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

APP_NAME = "lakelog-jobs"
TELL_EVERY_S = 0.5


class Progress:
    """Hears how far a job is. This one keeps it to itself."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self) -> None: ...

    def detail(self, text: str) -> None: ...


@dataclass(slots=True)
class Context:
    broker: Broker
    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False
    force: bool = False  # compact also what is not due
    if_exists: bool = False  # a topic that was named may be gone
    io_bytes_per_second: float = 0.0  # 0 is without a limit
    offsets_retention_minutes: int = OFFSETS_RETENTION_MINUTES
    progress: Progress = field(default_factory=Progress)
    session: SparkSession | None = None

    @property
    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def spark(self) -> SparkSession:
        """The session, made at the first call. Jobs read and write files themselves, so it needs no jar of Delta."""
        if self.url.startswith("memory:"):
            raise LakelogError(
                ErrorCode.INVALID_CONFIG, "a memory:// warehouse is inside one process, and Spark's tasks are not in it"
            )
        if self.session is None:
            try:
                require_spark()
                require_java()
            except SparkUnavailable as missing:
                raise LakelogError(ErrorCode.INVALID_CONFIG, str(missing)) from missing
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.appName(APP_NAME)
            if not is_submitted():
                # Tasks need this package too, and Spark would take whichever python3 comes first on the PATH.
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
                for name, value in {**LOCAL_SETTINGS, "spark.master": "local[*]"}.items():
                    builder = builder.config(name, value)
            try:
                self.session = builder.getOrCreate()
            except Exception as error:  # too little memory, a master that does not answer, a setting that is wrong
                raise LakelogError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"Spark could not be started: {brief(error)}"
                ) from error
        return self.session

    async def on_spark(self, work: Callable[[SparkSession], T]) -> T:
        """Run what blocks on Spark in a thread, and tell how far its tasks are.

        Raises what the work raises, and a LakelogError where there is no Spark or it ended under the work.
        """
        session = await asyncio.to_thread(self.spark)
        working = asyncio.create_task(asyncio.to_thread(work, session))
        while not (await asyncio.wait({working}, timeout=TELL_EVERY_S))[0]:
            with suppress(Exception):  # a Spark that does not answer is told of by the work itself
                self.progress.detail(_tasks_of(session))
        try:
            return await working
        except Exception as error:
            if await asyncio.to_thread(_is_alive, session):
                raise
            raise LakelogError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"Spark has ended before its work was done: {brief(error)}"
            ) from error

    def access(self, tasks_at_once: int) -> Access:
        """What a task is given. The limit is for all tasks together."""
        limit = self.io_bytes_per_second / max(1, tasks_at_once)
        return Access(self.broker.store.url, self.options, limit, self.broker.settings.fsync)


def _tasks_of(session: SparkSession) -> str:
    tracker = session.sparkContext.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
    done = sum(stage.numCompletedTasks for stage in stages)
    return f"{done} of {sum(stage.numTasks for stage in stages)} tasks of Spark"


def _is_alive(session: SparkSession) -> bool:
    """Whether the JVM of the session answers, and has not stopped its work for good."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False
