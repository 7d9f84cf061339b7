"""A topic that can't be read is told, by jobs and by Spark's source alike, and keeps no other from what it is due."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from compaction_jobs.context import Context
from compaction_jobs.journal import Journal
from compaction_jobs.outcome import WHOLE_TOPIC
from compaction_jobs.runner import run_job
from compaction_jobs.scheduler import due_jobs, run_due
from lakelog.broker import Broker
from lakelog.delta.store import Store, StoreRefused
from lakelog.errors import LakelogError
from lakelog.spark.options import Address, Subscribe, SubscribePattern, Subscription
from lakelog.spark.planning import TopicView
from lakelog.spark.warehouse import Warehouse as OpenWarehouse
from tests.conftest import OpenBroker, Warehouse
from tests.contract.records import COLD, MovedClock, append_each
from tests.contract.test_foreign_tables import FOREIGN_ADD, METADATA, SPARK_INFO, commit, commit_next, protocol

UNREADABLE = {
    "garbled": "the log of 'garbled' is not Delta's",
    "lost": "the log of 'lost' is not Delta's",
    "refused": "reading topic 'refused': access denied",
    "unfit": "not written by Lakelog",
}


class RefusingStore:
    """A real store that refuses one folder, as one with rules of its own does."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, path: str) -> bytes | None:
        if path.startswith(f"{self._folder}/"):
            raise StoreRefused("access denied")
        return await self._store.get(path)


@pytest.fixture
async def due(open_broker: OpenBroker, warehouse: Warehouse) -> Broker:
    """Topics that have something to expire, of which one can be read, among tables that are none of ours."""
    clock = MovedClock()
    writer = open_broker(COLD, clock=clock)
    for topic in (*UNREADABLE, "fine"):
        await writer.admin.create_topic(topic, 1, {"retention.ms": "1000", "segment.ms": "1000"})
        await append_each(writer, topic, ["old"])
    clock.ahead_ms += 5000
    await writer.store.put(f"garbled/_delta_log/{2:020d}.json", b"not JSON")
    await (await writer.topics.get("lost")).table.checkpoint()
    await writer.store.put(f"lost/_delta_log/{1:020d}.checkpoint.parquet", b"not Parquet")
    await commit_next(writer, "unfit", [FOREIGN_ADD])
    await commit(writer.store, "sales", 0, [SPARK_INFO, protocol(3, 7, "deletionVectors"), METADATA, FOREIGN_ADD])
    await writer.store.put("no name for one/notes.txt", b"somebody else's")
    store: Any = RefusingStore(writer.store, "refused")
    return Broker(store, COLD, clock=clock)


@pytest.mark.parametrize("job", ["retention", "vacuum"])
async def test_the_others_are_cleaned_and_each_that_can_not_be_read_is_told(
    due: Broker, warehouse: Warehouse, job: str
) -> None:
    outcomes = await run_job(Context(due, warehouse.url, warehouse.options), job)
    told = {each.topic: each.error or "" for each in outcomes if each.partition == WHOLE_TOPIC}
    assert set(told) == set(UNREADABLE)
    assert all(told[topic].startswith(why) for topic, why in UNREADABLE.items())
    if job == "retention":
        assert [(each.topic, each.log_start) for each in outcomes if each.error is None] == [("fine", 1)]
    errors = {run.topic: run.error for run in (await Journal(due.store, due.clock).last_runs()).values()}
    assert {topic: why for topic, why in errors.items() if why} == told


async def test_the_schedule_goes_on_and_tells_what_failed(
    due: Broker, warehouse: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    context = Context(due, warehouse.url, warehouse.options)
    assert await due_jobs(context) == {"retention": {"fine": "1 files: retention.ms"}}
    with caplog.at_level(logging.WARNING, "compaction_jobs.scheduler"):
        await run_due(context, await due_jobs(context), with_clocked=False)
    assert await due_jobs(context) == {}
    warned = [record.getMessage() for record in caplog.records]
    assert [message.partition(":")[0] for message in warned] == [f"retention of {name} failed" for name in UNREADABLE]


async def test_a_read_by_pattern_meets_them_only_where_it_names_them(due: Broker, warehouse: Warehouse) -> None:
    def topics(subscription: Subscription) -> dict[str, TopicView]:
        with OpenWarehouse(Address(warehouse.url, tuple(warehouse.options.items()))) as opened:
            return opened.topics(subscription)

    assert set(await asyncio.to_thread(topics, SubscribePattern("f.*|sales|no.*|refused"))) == {"fine", "refused"}
    for subscription in (SubscribePattern("unfit|fine"), SubscribePattern(".*"), Subscribe(("fine", "unfit"))):
        with pytest.raises(LakelogError, match=r"topic '\w+' can't be read: (not written by Lakelog|the log of)"):
            await asyncio.to_thread(topics, subscription)
