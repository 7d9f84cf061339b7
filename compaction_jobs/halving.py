"""Several partitions in one application of Spark, and what becomes of them when it fails.

One partition can take the work of all others with it: a task that runs out of memory, an executor that is lost. So what
fails is done again in halves, and these too, until the partition at fault is alone and left behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from compaction_jobs.context import Context
from compaction_jobs.lease import Lease
from compaction_jobs.outcome import brief
from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

U = TypeVar("U")
W = TypeVar("W")


async def in_halves(
    context: Context,
    units: Sequence[U],
    write: Callable[[SparkSession, Sequence[U], str], Sequence[W]],
    commit: Callable[[U, W, Lease, float], Awaitable[None]],
    failed: Callable[[U, str, float], None],
) -> None:
    """Each unit is committed or has failed, one after the other, in their order.

    `write` is the work on Spark: it is given the id of the lease, for the names of the files, and returns what it wrote
    for each unit. Each unit is then committed on its own. `commit` and `failed` are told how many seconds it took.
    """
    clock = context.broker.clock
    started_ms = clock.monotonic_ms()

    def seconds() -> float:
        return (clock.monotonic_ms() - started_ms) / 1000

    async with Lease(context.broker.store, clock) as lease:
        try:
            written = await context.on_spark(lambda session: write(session, units, lease.id))
        except LakelogError:
            raise  # there is no Spark: nothing that has to do with any one unit
        except Exception as error:
            if len(units) == 1:
                failed(units[0], brief(error), seconds())
                return
        else:
            for unit, files in zip(units, written, strict=True):
                await commit(unit, files, lease, seconds())
            return
    half = len(units) // 2
    await in_halves(context, units[:half], write, commit, failed)
    await in_halves(context, units[half:], write, commit, failed)
