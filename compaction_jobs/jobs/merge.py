"""Merging: small neighbours, which sealing by age and compaction leave behind, become segments of a good size.

The same records in the same order. Each new file is a commit of its own, so what is done is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compaction_jobs.commits import FAILURES, Replacement, replace
from compaction_jobs.context import Context
from compaction_jobs.halving import in_halves
from compaction_jobs.lease import Lease
from compaction_jobs.outcome import Amount, Outcome, Tell, brief
from compaction_jobs.packing import pack_small
from compaction_jobs.rewriting import Rewrite, Source, Written
from compaction_jobs.sealed import sealed
from compaction_jobs.tombstones import cleaned_ranges, cleaned_tag
from lakelog.delta.parquet import codec_for
from lakelog.model.segment import Segment
from lakelog.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "merge"
# Files are merged together in one Spark job up to so many bytes.
BATCH_BYTES = 8 * 1024**3


@dataclass(frozen=True, slots=True)
class Pack:
    topic: Topic
    partition: int
    segments: tuple[Segment, ...]


def plan(topic: Topic, partition: int, now_ms: int) -> list[tuple[Segment, ...]]:
    state = topic.state
    below = sealed(state.partitions[partition].segments, state.config, now_ms)
    return pack_small(below, state.config.segment_bytes, state.cleaned_up_to(partition))


async def run(context: Context, topics: Sequence[Topic], tell: Tell) -> None:
    packs = [
        Pack(topic, number, segments)
        for topic in topics
        for number in range(len(topic.state.partitions))
        for segments in plan(topic, number, context.now_ms)
    ]
    if context.dry_run:
        for pack in packs:
            tell(_outcome(pack, Amount.of(pack.segments)))
        return
    context.progress.begin(NAME, len(packs))
    while packs:
        count = _fitting(packs)
        await _merge(context, packs[:count], tell)
        packs = packs[count:]


def _fitting(packs: Sequence[Pack]) -> int:
    total = 0
    for count, pack in enumerate(packs):
        total += sum(segment.bytes for segment in pack.segments)
        if count and total > BATCH_BYTES:
            return count
    return len(packs)


async def _merge(context: Context, packs: Sequence[Pack], tell: Tell) -> None:
    def done(outcome: Outcome) -> None:
        tell(outcome)
        context.progress.advance()

    async def commit(pack: Pack, file: Written, lease: Lease, seconds: float) -> None:
        done(await _commit(context, pack, file, lease, seconds))

    await in_halves(
        context,
        packs,
        lambda session, some, unique: _write(session, context, some, unique),
        commit,
        lambda pack, error, seconds: done(_outcome(pack, Amount.of(pack.segments), seconds=seconds, error=error)),
    )


def _write(session: SparkSession, context: Context, packs: Sequence[Pack], unique: str) -> list[Written]:
    """The work on Spark. Blocks until it is done."""
    from compaction_jobs.on_spark import tasks_at_once, write_all

    rewrites = [
        Rewrite(
            table=pack.topic.name,
            partition=pack.partition,
            sources=tuple(Source(pack.topic.table.path(each.path), each.bytes) for each in pack.segments),
            first_file=0,
            codec=codec_for(pack.topic.state.config.compression_type, merged=True),
            unique=unique,
        )
        for pack in packs
    ]
    return write_all(session, context.access(tasks_at_once(session)), rewrites)


async def _commit(context: Context, pack: Pack, written: Written, lease: Lease, seconds: float) -> Outcome:
    before = Amount.of(pack.segments)
    if written.error is not None:
        return _outcome(pack, before, seconds=seconds, error=written.error)
    if written.records != before.records:
        error = f"{before.records} records were to be merged, and {written.records} were read"
        return _outcome(pack, before, seconds=seconds, error=error)
    tags = cleaned_tag(each for segment in pack.segments for each in cleaned_ranges(segment))
    try:
        new = await replace(pack.topic, "MERGE", [Replacement(pack.segments, written, tags)], lease, context.now_ms)
    except FAILURES as error:
        return _outcome(pack, before, seconds=seconds, error=brief(error))
    if new is None:  # somebody else has just merged or compacted them: that is as good
        return _outcome(pack, before, seconds=seconds, reason="another writer was faster")
    return _outcome(pack, Amount.of(new), seconds=seconds)


def _outcome(
    pack: Pack,
    after: Amount,
    *,
    seconds: float = 0.0,
    error: str | None = None,
    reason: str = "small files",
) -> Outcome:
    return Outcome(
        job=NAME,
        topic=pack.topic.name,
        partition=pack.partition,
        reason=reason,
        before=Amount.of(pack.segments),
        after=after,
        seconds=seconds,
        error=error,
    )
