"""The jobs that need no Spark, on every kind of store: retention, vacuum, and the table that tells of all runs."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from compaction_jobs import runner, scheduler
from compaction_jobs.context import Context
from compaction_jobs.journal import Journal
from compaction_jobs.lease import LEASE_FOLDER, Lease
from compaction_jobs.orphans import ON_ITS_WAY_MS
from compaction_jobs.outcome import WHOLE_TOPIC, Amount, Outcome
from compaction_jobs.runner import run_job
from compaction_jobs.scheduler import due_jobs, run_due
from consumer_groups.assignors import TopicPartition
from consumer_groups.service import GroupService
from lakelog.broker import Broker
from lakelog.delta import drafts
from lakelog.delta.rows import FOLD_FILES
from lakelog.delta.store import StoreUnavailable
from lakelog.errors import LakelogError
from lakelog.log.tiers import FAN
from lakelog.spark import staging
from lakelog.spark.staging import BatchId, Manifest, Piece
from tests.conftest import OpenBroker, Warehouse
from tests.contract.group_members import commit_simply, offsets_of
from tests.contract.records import COLD, MovedClock, append, append_each, batch_of, records, values_of

TOPIC = "events"
# Every file is a sealed segment: none is smaller than this.
SEALED = {"segment.bytes": "1024"}
PADDING = random.Random(6).randbytes(2000).hex()  # which no codec makes small


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


async def run(job: str, broker: Broker, warehouse: Warehouse, *topics: str, **how: Any) -> list[Outcome]:
    return await run_job(Context(broker, warehouse.url, warehouse.options, **how), job, topics)


async def data_files(broker: Broker) -> set[str]:
    return {
        file.path
        for file in await broker.store.files(TOPIC)
        if file.path.endswith(".parquet") and "partition=" in file.path
    }


async def log_files(broker: Broker) -> list[str]:
    return [file.path for file in await broker.store.files(f"{TOPIC}/_delta_log") if file.path.endswith(".json")]


# -- retention -------------------------------------------------------------------------------------------------


async def test_old_segments_expire_and_the_log_starts_after_them(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 2, {**SEALED, "retention.ms": "60000"})
    await append_each(broker, TOPIC, [f"a{PADDING}", f"b{PADDING}"])
    clock.ahead_ms += 61_000
    await append_each(broker, TOPIC, [f"c{PADDING}"])
    planned = await run("retention", broker, warehouse, dry_run=True)
    assert [(each.partition, each.before.files) for each in planned] == [(0, 2)]
    assert len(await values_of(broker, TOPIC)) == 3
    (done,) = await run("retention", broker, warehouse)
    assert (done.partition, done.log_start, done.before.records, done.reason) == (0, 2, 2, "retention.ms")
    assert await values_of(broker, TOPIC) == [f"c{PADDING}"]
    assert await values_of(open_broker(COLD), TOPIC) == [f"c{PADDING}"]
    assert await run("retention", broker, warehouse) == []
    assert (await broker.admin.describe_topic(TOPIC)).partitions[0].log_start_offset == 2


async def test_too_many_bytes_expire_per_partition(open_broker: OpenBroker, warehouse: Warehouse) -> None:
    broker = open_broker(COLD)
    await broker.admin.create_topic(TOPIC, 2, {**SEALED, "retention.bytes": "1"})
    for partition in range(2):
        await append_each(broker, TOPIC, [f"{n}{PADDING}" for n in range(3)], partition=partition)
    outcomes = await run("retention", broker, warehouse, TOPIC)
    assert [(each.partition, each.log_start) for each in outcomes] == [(0, 2), (1, 2)]
    for partition in range(2):
        assert await values_of(broker, TOPIC, partition) == [f"2{PADDING}"]


async def test_nothing_of_the_active_segment_expires(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, {"retention.ms": "1", "retention.bytes": "0"})
    await append_each(broker, TOPIC, ["a", "b"])
    clock.ahead_ms += 60_000
    assert await run("retention", broker, warehouse) == []
    assert await values_of(broker, TOPIC) == ["a", "b"]


async def test_retention_beside_an_append_and_a_merge_loses_neither(
    open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    leader, other = open_broker(COLD), open_broker(COLD)
    await leader.admin.create_topic(TOPIC, 1, {"retention.ms": "0", "segment.ms": "1"})
    acknowledged: list[str] = []

    async def write() -> None:
        for number in range(4 * FAN):
            await append_each(leader, TOPIC, [str(number)])
            acknowledged.append(str(number))

    writing = asyncio.create_task(write())
    while not writing.done():
        assert all(each.error is None for each in await run("retention", other, warehouse))
    await writing
    await leader.upkeep.settle()
    start = (await other.admin.describe_topic(TOPIC)).partitions[0].log_start_offset
    assert await values_of(other, TOPIC) == acknowledged[start:]


async def test_a_producer_is_remembered_though_its_records_have_expired(
    open_broker: OpenBroker, warehouse: Warehouse
) -> None:
    broker = open_broker(COLD)
    await broker.admin.create_topic(TOPIC, 1, {**SEALED, "retention.bytes": "0"})
    batch = records([PADDING], partition=0)
    await append(broker, TOPIC, batch, producer=batch_of(1, 0))
    await run("retention", broker, warehouse)
    assert await values_of(broker, TOPIC) == []
    again = await append(open_broker(COLD), TOPIC, batch, producer=batch_of(1, 0))
    assert again.offsets.tolist() == [0]


# -- vacuum ----------------------------------------------------------------------------------------------------


async def test_removed_files_stay_for_the_delay_and_then_go(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, {"file.delete.delay.ms": "1200000"})
    await append_each(broker, TOPIC, [str(n) for n in range(FAN)])
    await broker.upkeep.settle()
    assert len(await data_files(broker)) == FAN + 1
    clock.ahead_ms += 1_140_000  # well short of the delay: the clock runs on meanwhile
    assert await run("vacuum", broker, warehouse) == []
    clock.ahead_ms += 61_000
    assert len(await run("vacuum", broker, warehouse, dry_run=True)) == 1
    assert len(await data_files(broker)) == FAN + 1
    # Also by a process that has not seen the removal itself.
    (done,) = await run("vacuum", open_broker(COLD, clock=clock), warehouse)
    assert (done.partition, done.before.files, done.after.files) == (0, FAN + 1, 1)
    assert len(await data_files(broker)) == 1
    assert await values_of(open_broker(COLD), TOPIC) == [str(n) for n in range(FAN)]


async def test_orphans_go_when_nobody_can_be_about_to_commit_them(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, {"file.delete.delay.ms": "0"})
    await append_each(broker, TOPIC, ["kept"])
    live = await data_files(broker)
    orphan = f"{TOPIC}/partition=0/{0:020d}-orphan.parquet"
    async with Lease(broker.store, clock) as lease:
        claimed = f"{TOPIC}/partition=0/{0:020d}-{lease.id}01.parquet"
        for path in (orphan, claimed, f"{TOPIC}/notes.txt"):
            await broker.store.put(path, b"no longer needed")
        assert await run("vacuum", broker, warehouse) == []
        # The run at work is still alive when the orphan is old enough.
        clock.ahead_ms += ON_ITS_WAY_MS - 1000
        await lease._touch()
    clock.ahead_ms += 2000
    (done,) = await run("vacuum", broker, warehouse)
    assert done.after.files == 1
    assert await data_files(broker) == live
    assert await broker.store.get(f"{TOPIC}/notes.txt") is not None, "what is not ours is left alone"
    assert await values_of(broker, TOPIC) == ["kept"]


async def test_files_that_a_killed_writer_began_on_a_disk_go_too(tmp_path: Path, clock: MovedClock) -> None:
    warehouse = Warehouse(str(tmp_path), {})
    async with Broker(warehouse.open_store(), COLD, clock=clock) as broker:
        await broker.admin.create_topic(TOPIC, 1)
        await append_each(broker, TOPIC, ["kept"])
        async with Lease(broker.store, clock) as lease:
            of_nobody = [
                tmp_path / TOPIC / "partition=0" / "1.parquet#1",
                tmp_path / TOPIC / "_delta_log" / "9.json#12",
            ]
            of_a_run = tmp_path / TOPIC / "partition=0" / f"2-{lease.id}.parquet#1"
            for path in (*of_nobody, of_a_run):
                path.write_bytes(b"half of a")
            assert await run("vacuum", broker, warehouse) == []
            clock.ahead_ms += 3_600_000
            await lease._touch()
            os.utime(tmp_path / LEASE_FOLDER / lease.id, times=(clock.now_ms() / 1000,) * 2)
            (done,) = await run("vacuum", broker, warehouse)
        assert (done.reason, done.before.files, done.after.files) == ("unfinished files", 2, 0)
        assert [path.exists() for path in (*of_nobody, of_a_run)] == [False, False, True]
        assert await values_of(broker, TOPIC) == ["kept"]


async def test_old_commits_go_and_a_checkpoint_stands_for_them(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1)
    await append_each(broker, TOPIC, ["a", "b", "c"])
    assert await run("vacuum", broker, warehouse) == []
    clock.ahead_ms += 3 * 3_600_000
    (done,) = await run("vacuum", open_broker(COLD, clock=clock), warehouse)
    assert (done.partition, done.reason) == (WHOLE_TOPIC, "old commits")
    assert len(await log_files(broker)) == 1
    assert await run("vacuum", open_broker(COLD, clock=clock), warehouse) == [], "and there it rests"
    assert await values_of(open_broker(COLD), TOPIC) == ["a", "b", "c"]
    await append_each(broker, TOPIC, ["d"])
    assert await values_of(open_broker(COLD), TOPIC) == ["a", "b", "c", "d"]


async def test_files_of_a_topic_whose_deletion_died_go_after_the_delay(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 2, {"file.delete.delay.ms": "1200000"})
    await append_each(broker, TOPIC, ["a", "b"])
    await append_each(broker, TOPIC, ["c"], partition=1)
    # All that was done of the deletion.
    table = (await broker.topics.get(TOPIC)).table
    await table.commit(drafts.delete(table.state, clock.now_ms()))
    await broker.store.put(f"{TOPIC}/partition=0/{0:020d}-orphan.parquet", b"nobody's")
    for path in ("not_a_topic/partition=0/1.parquet", "no name for one/partition=0/1.parquet"):
        await broker.store.put(path, b"somebody else's")
    # Well short of the delay: the clock runs on meanwhile, and a store may tell a file's age in whole seconds.
    clock.ahead_ms += 1_140_000
    assert await run("vacuum", open_broker(COLD, clock=clock), warehouse) == []
    clock.ahead_ms += 60_000
    outcomes = await run("vacuum", open_broker(COLD, clock=clock), warehouse)
    assert [(each.topic, each.partition, each.before.files, each.after.files) for each in outcomes] == [
        (TOPIC, 0, 3, 0),
        (TOPIC, 1, 1, 0),
    ]
    assert await data_files(broker) == set()
    for folder in ("not_a_topic", "no name for one"):
        assert len(await broker.store.files(folder)) == 1
    # Nothing is different for the next topic of the name.
    await broker.admin.create_topic(TOPIC, 1, {"file.delete.delay.ms": "1200000"})
    await append_each(broker, TOPIC, ["new"])
    clock.ahead_ms += 1_300_000
    await run("vacuum", open_broker(COLD, clock=clock), warehouse)
    assert await values_of(open_broker(COLD), TOPIC) == ["new"]


async def test_what_writes_of_spark_have_left_goes_unless_somebody_may_come_back_for_it(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    store = broker.store
    unnamed = BatchId(f"{staging.UNNAMED}{uuid.uuid4()}", 0)
    named, query, killed = BatchId("nightly", 7, TOPIC), BatchId(str(uuid.uuid4()), 3), BatchId("killed", 1)

    async def stage(batch: BatchId, name: str) -> Piece:
        path = f"{batch.folder}/{name}.arrow"
        await store.put(path, b"records")
        return Piece(TOPIC, path, 1, 7)

    frozen = {batch: await stage(batch, "frozen") for batch in (unnamed, named, query)}
    for batch, piece in frozen.items():
        await staging.freeze(store, batch, (piece,), clock.now_ms())
    await staging.finish(store, query, Manifest(clock.now_ms(), ()))
    for batch in (*frozen, killed):
        await stage(batch, "of another attempt")
    everything = await store.files(staging.FOLDER)
    assert len(everything) == 10
    clock.ahead_ms += staging.ABANDONED_MS - 60_000
    assert await run("vacuum", broker, warehouse) == []
    clock.ahead_ms += 120_000
    assert len(await run("vacuum", broker, warehouse, dry_run=True)) == 1
    assert await store.files(staging.FOLDER) == everything
    (done,) = await run("vacuum", broker, warehouse)
    assert (done.topic, done.partition, done.before.files, done.after.files) == (staging.FOLDER, WHOLE_TOPIC, 7, 0)
    left = [file.path for file in await store.files(staging.FOLDER)]
    assert sorted(left) == sorted([named.manifest, frozen[named].path, query.manifest])
    assert await run("vacuum", broker, warehouse) == []


# -- offsets ---------------------------------------------------------------------------------------------------


async def test_of_what_groups_committed_the_latest_stays_until_it_expires(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    assert await run("offsets", broker, warehouse) == [], "there are no groups"
    await broker.admin.create_topic(TOPIC, 2)
    first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    async with GroupService(broker) as service:
        for offset in range(5):
            await commit_simply(service, {first: offset, second: offset})
        (planned,) = await run("offsets", broker, warehouse, dry_run=True)
        assert (planned.before.files, planned.before.records, planned.after.records) == (5, 10, 2)
        (done,) = await run("offsets", broker, warehouse)
        assert (done.before, done.after.files, done.after.records) == (planned.before, 1, 2)
        assert done.reason == "8 commits that no longer count"
        assert await run("offsets", broker, warehouse) == []
        assert await run("offsets", broker, warehouse, TOPIC) == [], "a topic's name is not about offsets"
        await commit_simply(service, {first: 9})
        assert await offsets_of(service) == {first: 9, second: 4}
    # A day, and the hour that the coordinator is ahead. Nobody coordinates now.
    clock.ahead_ms += 25 * 3_600_000 + 1000
    assert len(await run("offsets", broker, warehouse, offsets_retention_minutes=2 * 1440)) == 1
    (expired,) = await run("offsets", broker, warehouse, offsets_retention_minutes=1440)
    assert (expired.before.records, expired.after.records) == (2, 0)
    (line,) = (await Journal(broker.store, clock).last_runs()).values()
    assert (line.job, line.topic, line.partition) == ("offsets", "__consumer_offsets", WHOLE_TOPIC)


# -- the journal and the schedule ------------------------------------------------------------------------------


async def test_every_run_is_written_down_and_the_table_stays_small(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    for number in range(FOLD_FILES + 3):
        outcome = Outcome(job="merge", topic=TOPIC, partition=number % 2, reason="", before=Amount(number, 1, 1))
        # Two processes take turns, each with a table of its own.
        await Journal(broker.store, clock).write(str(number), clock.now_ms() + number, [outcome])
    last = await Journal(broker.store, clock).last_runs()
    assert set(last) == {("merge", TOPIC, 0), ("merge", TOPIC, 1)}
    files = [file.path for file in await broker.store.files("__maintenance")]
    assert any("checkpoint" in path for path in files)
    clock.ahead_ms += 31 * 86_400_000
    for _ in range(FOLD_FILES):
        await Journal(broker.store, clock).write("later", clock.now_ms(), [outcome])
    assert set(await Journal(broker.store, clock).last_runs()) == {("merge", TOPIC, outcome.partition)}
    assert len(await broker.store.files("__maintenance")) < 3 * FOLD_FILES


async def test_writers_of_the_journal_do_not_get_in_each_others_way(broker: Broker, clock: MovedClock) -> None:
    outcomes = [Outcome(job="merge", topic=f"t{number}", partition=0, reason="") for number in range(8)]
    journals = [Journal(broker.store, clock) for _ in outcomes]
    await asyncio.gather(*(each.write("run", 0, [one]) for each, one in zip(journals, outcomes, strict=True)))
    assert len(await Journal(broker.store, clock).last_runs()) == 8


async def test_a_round_of_the_schedule_runs_what_is_due(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock
) -> None:
    broker = open_broker(COLD, clock=clock)
    context = Context(broker, warehouse.url, warehouse.options)
    await broker.admin.create_topic(TOPIC, 1, {**SEALED, "retention.ms": "60000"})
    await append_each(broker, TOPIC, [PADDING])
    assert await due_jobs(context) == {}
    clock.ahead_ms += 4 * 3_600_000
    assert await due_jobs(context) == {"retention": {TOPIC: "1 files: retention.ms"}}
    await run_due(context, await due_jobs(context), with_clocked=True)
    assert await due_jobs(context) == {}
    assert await values_of(broker, TOPIC) == []
    last = await Journal(broker.store, clock).last_runs()
    assert set(last) == {("retention", TOPIC, 0), ("vacuum", TOPIC, WHOLE_TOPIC)}


async def test_one_job_that_fails_does_not_keep_the_others_of_a_round(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker(COLD, clock=clock)
    await broker.admin.create_topic(TOPIC, 1, {**SEALED, "retention.ms": "60000", "file.delete.delay.ms": "0"})
    await append_each(broker, TOPIC, [PADDING])
    await broker.store.put(f"{TOPIC}/partition=0/{0:020d}-orphan.parquet", b"nobody's")
    clock.ahead_ms += 4 * 3_600_000

    async def fails(*_: object) -> NoReturn:
        raise StoreUnavailable("connection reset")

    monkeypatch.setitem(runner.TOPIC_JOBS, "retention", fails)
    context = Context(broker, warehouse.url, warehouse.options)
    await run_due(context, await due_jobs(context), with_clocked=True)
    assert len(await data_files(broker)) == 1


async def test_spark_works_beside_the_rounds_and_one_at_a_time(
    open_broker: OpenBroker, warehouse: Warehouse, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker(COLD, clock=clock)
    begun: asyncio.Queue[list[str]] = asyncio.Queue()
    ends: asyncio.Queue[bool] = asyncio.Queue()
    ended: list[BaseException | bool] = []

    async def application(context: Context, jobs: list[str], topics: list[str]) -> bool:
        begun.put_nowait([*jobs, *topics])
        try:
            ended.append(await ends.get())
        except asyncio.CancelledError as error:
            ended.append(error)
            raise
        return ended[-1] is True

    monkeypatch.setattr(scheduler, "_spark_application", application)
    due = {"retention": {TOPIC: "old"}, "merge": {TOPIC: "small files"}}
    async with aclosing(scheduler.SparkBeside(Context(broker, warehouse.url))) as beside:

        async def end_with(success: bool) -> None:
            assert beside._task is not None
            ends.put_nowait(success)
            await beside._task

        beside.take_up({"retention": {TOPIC: "old"}})
        assert beside._task is None
        beside.take_up(due)
        assert await begun.get() == ["merge", TOPIC]
        beside.take_up(due)
        await end_with(True)
        assert begun.empty()
        beside.take_up(due)
        await begun.get()
        await end_with(False)
        beside.take_up(due)
        assert beside._task is None, "what has failed is left alone for a while"
        clock.ahead_ms += scheduler.SPARK_BACKOFF_MS
        beside.take_up(due)
        await begun.get()
    assert ended[:2] == [True, False]
    assert isinstance(ended[2], asyncio.CancelledError), "the application ends with the scheduler"


async def test_what_does_not_exist_is_told_and_keeps_nobody(broker: Broker, warehouse: Warehouse) -> None:
    await broker.admin.create_topic(TOPIC, 1, {**SEALED, "retention.bytes": "0"})
    await append_each(broker, TOPIC, [PADDING])
    planned = await run("retention", broker, warehouse, "nowhere", TOPIC, dry_run=True)
    assert [(each.topic, each.error) for each in planned] == [("nowhere", "there is no topic 'nowhere'"), (TOPIC, None)]
    (done,) = await run("retention", broker, warehouse, "nowhere", TOPIC, if_exists=True)
    assert (done.topic, done.error) == (TOPIC, None)
    with pytest.raises(LakelogError, match="no job 'sweep'"):
        await run("sweep", broker, warehouse)
