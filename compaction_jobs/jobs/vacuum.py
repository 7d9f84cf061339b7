"""Vacuum: files that left the table, that never came into it or were never finished, and commits under a checkpoint.

Topics that were deleted are visited too, for the files whose deletion did not come to its end, and so is what writes of
Spark have staged.

No Spark: folders are listed and files are deleted. What is deleted is looked up in a state of the table that is newer
than the listing, so a file that was committed in between is seen as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace as copied

from compaction_jobs.commits import FAILURES
from compaction_jobs.context import Context
from compaction_jobs.lease import leases
from compaction_jobs.orphans import dispensable
from compaction_jobs.outcome import WHOLE_TOPIC, Amount, Outcome, Tell, brief
from lakelog.delta.store import StoredFile
from lakelog.spark import staging
from lakelog.topics import Topic

NAME = "vacuum"
LOG_FOLDER = "_delta_log/"
_DATA_FILE = re.compile(r"partition=(\d+)/[^/]+\.parquet")


async def run(context: Context, topics: Sequence[Topic], tell: Tell) -> None:
    context.progress.begin(NAME, len(topics))
    for topic in topics:
        try:
            await _vacuum(context, topic, tell)
        except FAILURES as error:
            tell(_whole_folder(topic.name, "", (), (), error=brief(error)))
        context.progress.advance()
    if not context.dry_run:
        _, void = await leases(context.broker.store, context.now_ms)
        await context.broker.store.delete(void)


async def run_beside_topics(context: Context, tell: Tell) -> None:
    """What writes of Spark have staged and will never append."""
    started_ms = context.broker.clock.monotonic_ms()
    try:
        files = await staging.abandoned(context.broker.store, context.now_ms)
        if not context.dry_run:
            await context.broker.store.delete([file.path for file in files])
    except FAILURES as error:
        tell(_whole_folder(staging.FOLDER, "", (), (), error=brief(error)))
        return
    seconds = (context.broker.clock.monotonic_ms() - started_ms) / 1000
    if files:
        tell(_whole_folder(staging.FOLDER, "writes that never ended", files, (), seconds))


async def _vacuum(context: Context, topic: Topic, tell: Tell) -> None:
    started_ms = context.broker.clock.monotonic_ms()
    store = context.broker.store
    inside = topic.table.path("")
    present = [copied(file, path=file.path.removeprefix(inside)) for file in await store.files(topic.name)]
    held, _ = await leases(store, context.now_ms)
    await topic.table.refresh()
    state = topic.state
    state.require_sound()  # but it need not exist any more
    data = [file for file in present if _DATA_FILE.fullmatch(file.path)]
    delay_ms = state.config.file_delete_delay_ms
    removed_ms = state.tombstones.times_ms()
    doomed = dispensable(data, state.live, removed_ms, held, delay_ms, context.now_ms)
    unfinished = dispensable(await store.unfinished(topic.name), (), {}, held, delay_ms, context.now_ms)
    gone = set(doomed)
    if not context.dry_run:
        await store.delete([topic.table.path(file.path) for file in doomed] + [file.path for file in unfinished])
    seconds = (context.broker.clock.monotonic_ms() - started_ms) / 1000
    for partition, files in _by_partition(data).items():
        if not gone.isdisjoint(files):
            left = [file for file in files if file not in gone]
            tell(
                Outcome(
                    job=NAME,
                    topic=topic.name,
                    partition=partition,
                    reason="files out of the table",
                    before=_amount(files),
                    after=_amount(left),
                    seconds=seconds,
                )
            )
    if unfinished:
        tell(_whole_folder(topic.name, "unfinished files", unfinished, (), seconds))
    log = [file for file in present if file.path.startswith(LOG_FOLDER)]
    if not context.dry_run and await _clean_log(context, topic, log):
        kept = await store.files(topic.table.path(LOG_FOLDER.rstrip("/")))
        seconds = (context.broker.clock.monotonic_ms() - started_ms) / 1000
        tell(_whole_folder(topic.name, "old commits", log, kept, seconds))


async def _clean_log(context: Context, topic: Topic, log: Sequence[StoredFile]) -> int:
    """Cut the log where a checkpoint stands for it, and write one first if there is none that is new enough."""
    config, table = topic.state.config, topic.table
    before_ms = context.now_ms - max(config.delta_log_retention_ms, config.file_delete_delay_ms)
    newest = f"{LOG_FOLDER}{topic.state.version:020d}"
    if not any(file.modified_ms < before_ms and file.path < newest and file.path.endswith(".json") for file in log):
        return 0
    if table.checkpoint_version < topic.state.version:
        await table.checkpoint()
    return await table.clean_log(before_ms=before_ms)


def _whole_folder(
    name: str,
    reason: str,
    before: Sequence[StoredFile],
    after: Sequence[StoredFile],
    seconds: float = 0.0,
    error: str | None = None,
) -> Outcome:
    return Outcome(
        job=NAME,
        topic=name,
        partition=WHOLE_TOPIC,
        reason=reason,
        before=_amount(before),
        after=_amount(after),
        seconds=seconds,
        error=error,
    )


def _by_partition(files: Sequence[StoredFile]) -> dict[int, list[StoredFile]]:
    found: dict[int, list[StoredFile]] = {}
    for file in files:
        matched = _DATA_FILE.fullmatch(file.path)
        assert matched is not None
        found.setdefault(int(matched[1]), []).append(file)
    return found


def _amount(files: Sequence[StoredFile]) -> Amount:
    return Amount(len(files), sum(file.size for file in files))
