"""What goes wrong with one partition, or with Spark itself, is told for what it is and leaves the others alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from compaction_jobs.context import Context, Progress
from compaction_jobs.jobs import compaction, merge
from compaction_jobs.journal import Journal
from compaction_jobs.lease import Lease
from compaction_jobs.outcome import Outcome, Outcomes, Tell
from compaction_jobs.rewriting import Written
from compaction_jobs.runner import TOPIC_JOBS, run_job
from lakelog.broker import Broker
from lakelog.delta.store import StoreUnavailable
from lakelog.errors import ErrorCode, LakelogError
from tests.conftest import OpenBroker, Warehouse
from tests.contract.records import COLD, MovedClock, append, records

TOPICS = ("bad", "fine", "good", "well")


@pytest.fixture
async def due(open_broker: OpenBroker) -> Broker:
    """Topics that have something to be compacted and to be merged."""
    clock = MovedClock()
    broker = open_broker(COLD, clock=clock)
    for topic in TOPICS:
        await broker.admin.create_topic(topic, 1, {"cleanup.policy": "compact", "segment.ms": "1000"})
        for value in ("a", "b"):
            await append(broker, topic, records([value], keys=[b"key"]))
    clock.ahead_ms += 2000
    return broker


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that is meant for Spark is done without a session."""

    async def here(self: Context, work: Callable[[Any], Any]) -> Any:
        return work(None)

    monkeypatch.setattr(Context, "on_spark", here)


async def test_why_a_job_stopped_is_told_also_where_it_can_not_be_written_down(
    due: Broker, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(context: Context, topics: object, tell: Tell) -> None:
        tell(Outcome(job="retention", topic="fine", partition=0, reason=""))
        raise LakelogError(ErrorCode.UNKNOWN_SERVER_ERROR, "it ended")

    async def fails(self: Journal, *_: object) -> None:
        raise StoreUnavailable("connection reset")

    monkeypatch.setitem(TOPIC_JOBS, "retention", ends)
    monkeypatch.setattr(Journal, "write", fails)
    with pytest.raises(LakelogError, match="it ended"):
        await run_job(Context(due, warehouse.url, warehouse.options), "retention")


def names_of(units: Sequence[Any]) -> list[str]:
    return [unit.topic.name for unit in units]


async def run(job: str, broker: Broker, warehouse: Warehouse) -> dict[str, Outcome]:
    outcomes = await run_job(Context(broker, warehouse.url, warehouse.options), job)
    assert len(outcomes) == len(TOPICS)
    return {each.topic: each for each in outcomes}


@pytest.mark.usefixtures("without_spark")
async def test_a_merge_that_fails_on_spark_is_done_again_in_halves(
    due: Broker, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[list[str]] = []

    def write(session: None, context: Context, units: Sequence[merge.Pack], unique: str) -> list[Written]:
        tried.append(names_of(units))
        if "bad" in tried[-1]:
            raise RuntimeError("a task ran out of memory")
        return [Written(error="written on Spark") for _ in units]

    monkeypatch.setattr(merge, "_write", write)
    outcomes = await run("merge", due, warehouse)
    assert tried == [list(TOPICS), ["bad", "fine"], ["bad"], ["fine"], ["good", "well"]]
    errors = {topic: each.error for topic, each in outcomes.items()}
    assert errors == {**dict.fromkeys(TOPICS, "written on Spark"), "bad": "a task ran out of memory"}
    last = await Journal(due.store, due.clock).last_runs()
    assert {topic: run.error for (_, topic, _), run in last.items()} == errors


@pytest.mark.usefixtures("without_spark")
async def test_a_compaction_that_fails_on_spark_is_done_again_in_halves(
    due: Broker, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[list[str]] = []

    def write(session: None, context: Context, units: Sequence[compaction.Unit], unique: str) -> list[Any]:
        tried.append(names_of(units))
        if "well" in tried[-1]:
            raise RuntimeError("a task ran out of memory")
        return [[(None, Written(error="written on Spark"))] for _ in units]

    monkeypatch.setattr(compaction, "_write", write)
    monkeypatch.setattr(compaction, "_error", lambda run, written: written.error)
    outcomes = await run("compaction", due, warehouse)
    assert tried == [list(TOPICS), ["bad", "fine"], ["good", "well"], ["good"], ["well"]]
    assert outcomes["well"].error == "a task ran out of memory"
    assert outcomes["good"].error == "written on Spark"


class CountedProgress(Progress):
    def __init__(self) -> None:
        self.total = self.done = 0

    def begin(self, what: str, total: int) -> None:
        self.total = total

    def advance(self) -> None:
        self.done += 1


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize("job", [merge, compaction])
@pytest.mark.parametrize("what", ["Spark", "the store"])
async def test_what_was_done_before_a_job_stops_is_told_and_written_down(
    due: Broker, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, job: Any, what: str
) -> None:
    begun = iter(range(len(TOPICS)))
    enter = Lease.__aenter__

    async def fails_the_third_time(self: Lease) -> Lease:
        if next(begun) == 2 and what == "the store":
            raise StoreUnavailable("the store is away")
        return await enter(self)

    def write(session: None, context: Context, units: Sequence[Any], unique: str) -> list[Any]:
        if names_of(units) == ["good"]:
            raise LakelogError(ErrorCode.UNKNOWN_SERVER_ERROR, "Spark is away")
        failed = Written(error="written")
        return [failed if job is merge else [(None, failed)] for _ in units]

    monkeypatch.setattr(Lease, "__aenter__", fails_the_third_time)
    monkeypatch.setattr(job, "BATCH_BYTES", 0)  # each partition is a batch of its own
    monkeypatch.setattr(job, "_write", write)
    monkeypatch.setattr(compaction, "_error", lambda run, written: written.error)
    outcomes, progress = Outcomes(), CountedProgress()
    context = Context(due, warehouse.url, warehouse.options, progress=progress)
    with pytest.raises((LakelogError, StoreUnavailable), match=f"{what} is away"):
        await run_job(context, job.NAME, outcomes=outcomes)
    assert [(each.topic, each.error) for each in outcomes] == [("bad", "written"), ("fine", "written")]
    assert {topic for _, topic, _ in await Journal(due.store, due.clock).last_runs()} == {"bad", "fine"}
    assert (progress.done, progress.total) == (2, len(TOPICS))


@pytest.mark.usefixtures("without_spark")
async def test_a_compaction_that_is_overtaken_says_so(
    due: Broker, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where only age has sealed the files, the next run takes them up: the leader may still be merging them."""

    async def overtaken(*_: object) -> None: ...

    monkeypatch.setattr(compaction, "_write", lambda session, context, units, unique: [[] for _ in units])
    monkeypatch.setattr(compaction, "replace", overtaken)
    outcomes = await run("compaction", due, warehouse)
    assert {each.reason for each in outcomes.values()} == {compaction.OVERTAKEN}
    assert all(each.before == each.after and each.error is None for each in outcomes.values())


class DeadSession:
    """A session whose JVM was killed: whatever is asked of it, nobody answers."""

    @property
    def sparkContext(self) -> Any:
        def nobody(*_: object) -> Any:
            raise ConnectionRefusedError("[Errno 111] Connection refused")

        return SimpleNamespace(statusTracker=nobody, _jsc=SimpleNamespace(sc=nobody))


async def test_spark_that_has_died_is_told_once_and_not_looked_for_in_halves(
    due: Broker, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def write(session: DeadSession, context: Context, units: Sequence[merge.Pack], unique: str) -> list[Written]:
        tried.append(len(units))
        raise ConnectionRefusedError("[Errno 111] Connection refused")

    monkeypatch.setattr(merge, "_write", write)
    context = Context(due, warehouse.url, warehouse.options, session=DeadSession())  # type: ignore[arg-type]
    monkeypatch.setattr(Context, "spark", lambda self: self.session)
    with pytest.raises(LakelogError, match=r"Spark has ended before its work was done: .*Connection refused"):
        await run_job(context, "merge")
    assert tried == [len(TOPICS)]


async def test_a_spark_that_does_not_say_how_far_it_is_may_still_do_its_work(
    broker: Broker, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, told = asyncio.Event(), asyncio.get_running_loop()

    class Silent:
        @property
        def sparkContext(self) -> Any:
            told.call_soon_threadsafe(asked.set)
            raise ConnectionResetError("nobody answers just now")

    def work(session: Any) -> str:
        asyncio.run_coroutine_threadsafe(asked.wait(), told).result()
        return "done"

    monkeypatch.setattr("compaction_jobs.context.TELL_EVERY_S", 0)
    context = Context(broker, warehouse.url, warehouse.options, session=Silent())  # type: ignore[arg-type]
    monkeypatch.setattr(Context, "spark", lambda self: self.session)
    assert await context.on_spark(work) == "done"
