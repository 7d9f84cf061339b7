"""Key compaction: of every key the latest record stays, and the offsets of those that stay do not change.

All partitions that are due go through Spark together, in batches, and each is committed on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from compaction_jobs.commits import FAILURES, Replacement, replace
from compaction_jobs.context import Context
from compaction_jobs.dirtiness import Dirtiness, dirtiness
from compaction_jobs.halving import in_halves
from compaction_jobs.lease import Lease
from compaction_jobs.outcome import Amount, Outcome, Tell, brief
from compaction_jobs.rewriting import Rewrite, Source, Written
from compaction_jobs.runs import Run, plan_runs
from compaction_jobs.sealed import total_bytes
from lakelog.delta.parquet import codec_for
from lakelog.delta.state import CLEANER_APP
from lakelog.model.segment import Segment
from lakelog.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "compaction"
# Partitions are compacted together up to so many bytes. What a run that is killed has committed by then stays.
BATCH_BYTES = 8 * 1024**3
# The leader may merge files that a job has just read. Then the job takes the partition up again.
ATTEMPTS = 4
# Of a partition that another job has just rewritten, or the leader, who may merge again what only age has sealed.
OVERTAKEN = "another writer was faster; what is left to do the next run takes up"


@dataclass(frozen=True, slots=True)
class Unit:
    """One partition to be compacted, as it was found at `now_ms`."""

    topic: Topic
    partition: int
    found: Dirtiness
    now_ms: int

    @property
    def bytes(self) -> int:
        return total_bytes(self.found.sources)


def plan(topic: Topic, now_ms: int, *, force: bool = False, rolled_only: bool = False) -> list[Unit]:
    """The partitions of a topic that are due, or with `force` all that have anything to clean.

    A leader may still merge files that only their age has sealed; with `rolled_only` these are left out.
    """
    state = topic.state
    if not state.config.compacted:
        return []
    units: list[Unit] = []
    for number, partition in enumerate(state.partitions):
        segments = list(takewhile(_is_rolled, partition.segments)) if rolled_only else partition.segments
        found = dirtiness(segments, state.cleaned_up_to(number), state.config, now_ms)
        if found.due is not None or (force and found.anything_to_do):
            units.append(Unit(topic, number, found, now_ms))
    return units


async def run(context: Context, topics: Sequence[Topic], tell: Tell) -> None:
    units = [unit for topic in topics for unit in plan(topic, context.now_ms, force=context.force)]
    if context.dry_run:
        for unit in units:
            tell(_outcome(unit))
        return

    def done(outcome: Outcome) -> None:
        tell(outcome)
        context.progress.advance()

    context.progress.begin(NAME, len(units))
    for _ in range(ATTEMPTS):
        overtaken: list[Unit] = []
        for batch in _batches(units):
            overtaken += await _compact(context, batch, done)
        units = []
        for unit in overtaken:
            again = _again(context, unit)
            if again is None:
                done(_outcome(unit, reason=OVERTAKEN))
            else:
                units.append(again)
        if not units:
            return
    for unit in units:
        done(
            _outcome(
                unit, error="other writers merge its files faster than they are compacted; the next run takes it up"
            )
        )


def _again(context: Context, unit: Unit) -> Unit | None:
    """The partition as it is now, if something is due that no leader can get in the way of any more."""
    if not unit.topic.state.exists:
        return None
    planned = plan(unit.topic, context.now_ms, force=context.force, rolled_only=True)
    return next((each for each in planned if each.partition == unit.partition), None)


def _is_rolled(segment: Segment) -> bool:
    return segment.sealed_by_size


def _batches(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    batch: list[Unit] = []
    for unit in units:
        if batch and sum(each.bytes for each in batch) + unit.bytes > BATCH_BYTES:
            yield batch
            batch = []
        batch.append(unit)
    if batch:
        yield batch


async def _compact(context: Context, units: Sequence[Unit], tell: Tell) -> list[Unit]:
    """Those that another writer was faster with. What became of the others is told."""
    overtaken: list[Unit] = []

    async def commit(unit: Unit, written: Sequence[tuple[Run, Written]], lease: Lease, seconds: float) -> None:
        outcome = await _commit(context, unit, written, lease, seconds)
        if outcome is None:
            overtaken.append(unit)
        else:
            tell(outcome)

    await in_halves(
        context,
        units,
        lambda session, some, unique: _write(session, context, some, unique),
        commit,
        lambda unit, error, seconds: tell(_outcome(unit, seconds=seconds, error=error)),
    )
    return overtaken


def _write(
    session: SparkSession, context: Context, units: Sequence[Unit], unique: str
) -> list[list[tuple[Run, Written]]]:
    """The work on Spark: who survives, and the new files of each unit. Blocks until it is done."""
    from compaction_jobs.on_spark import KeyFile, Survivors, tasks_at_once

    access = context.access(tasks_at_once(session))
    files: list[KeyFile] = []
    for number, unit in enumerate(units):
        log_start = unit.topic.state.partitions[unit.partition].log_start_offset
        files += [
            KeyFile(len(files) + position, number, _source(unit, segment), log_start)
            for position, segment in enumerate(unit.found.sources)
        ]
    survivors = Survivors(session, access, files)
    try:
        counts = survivors.counts()
        planned: list[tuple[int, Run]] = []
        rewrites: list[Rewrite] = []
        first_file = 0
        for number, unit in enumerate(units):
            sources = unit.found.sources
            of_unit = [counts.get(first_file + position, 0) for position in range(len(sources))]
            for run in plan_runs(unit.found, of_unit, unit.topic.state.config.segment_bytes, unit.now_ms):
                planned.append((number, run))
                rewrites.append(_rewrite(unit, run, first_file + sources.index(run.segments[0]), unique))
            first_file += len(sources)
        written = survivors.write(access, rewrites) if rewrites else []
        by_unit: list[list[tuple[Run, Written]]] = [[] for _ in units]
        for (number, run), file in zip(planned, written, strict=True):
            by_unit[number].append((run, file))
        return by_unit
    finally:
        survivors.close()


def _rewrite(unit: Unit, run: Run, first_file: int, unique: str) -> Rewrite:
    return Rewrite(
        table=unit.topic.name,
        partition=unit.partition,
        sources=tuple(_source(unit, segment) for segment in run.segments),
        first_file=first_file,
        codec=codec_for(unit.topic.state.config.compression_type, merged=True),
        unique=unique,
        tombstones_go_below=unit.found.tombstones_go_below,
        range_ends=run.range_ends,
    )


def _source(unit: Unit, segment: Segment) -> Source:
    return Source(unit.topic.table.path(segment.path), segment.bytes)


def _error(run: Run, written: Written) -> str | None:
    """Why what was written can't take the place of the files. No survivor may get lost on the way."""
    found = written.records + written.dropped
    if written.error is None and found != run.survivors:
        return f"{run.survivors} records were to survive, and {found} were read"
    return written.error


async def _commit(
    context: Context, unit: Unit, written: Sequence[tuple[Run, Written]], lease: Lease, seconds: float
) -> Outcome | None:
    failed = next((error for run, file in written if (error := _error(run, file)) is not None), None)
    if failed is not None:
        # What was written for the partition stays behind as orphans, for the vacuum.
        return _outcome(unit, seconds=seconds, error=failed)
    replacements = [
        Replacement(run.segments, file, run.tags(file.tombstones) if file.path else {}) for run, file in written
    ]
    txns = {f"{CLEANER_APP}{unit.partition}": unit.found.end_offset}
    try:
        new = await replace(unit.topic, "COMPACT", replacements, lease, context.now_ms, txns)
    except FAILURES as error:
        return _outcome(unit, seconds=seconds, error=brief(error))
    if new is None:
        return None
    removed = [segment for each in replacements for segment in each.removed]
    return _outcome(unit, removed, new, seconds=seconds)


def _outcome(
    unit: Unit,
    removed: Sequence[Segment] | None = None,
    written: Sequence[Segment] | None = None,
    *,
    reason: str | None = None,
    seconds: float = 0.0,
    error: str | None = None,
) -> Outcome:
    """Without files to name, those that the unit is about, as they were and are."""
    before = Amount.of(unit.found.sources if removed is None else removed)
    return Outcome(
        job=NAME,
        topic=unit.topic.name,
        partition=unit.partition,
        reason=reason or unit.found.due or "asked for",
        before=before,
        after=before if written is None else Amount.of(written),
        cleaned_up_to=unit.found.end_offset if written is not None else None,
        seconds=seconds,
        error=error,
    )
