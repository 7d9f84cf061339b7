"""A deleted topic is gone for everybody, with its files, and a new one of its name has nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lakelog import deleted_topics
from lakelog.broker import Broker
from lakelog.clock import SystemClock
from lakelog.config import ServerSettings
from lakelog.delta import drafts
from lakelog.delta.table import STALE_AFTER_MS, Stale
from lakelog.errors import ErrorCode, LakelogError
from tests.conftest import OpenBroker
from tests.contract.records import (
    append,
    append_each,
    batch_of,
    fetch_one,
    high_watermarks,
    outcomes,
    records,
    values_of,
)

FOREVER_MS = 3_600_000
NO_NEW_TOPICS = ServerSettings(auto_create_topics_enable=False)


async def test_a_deleted_topic_is_gone_with_its_files(open_broker: OpenBroker) -> None:
    broker = open_broker(NO_NEW_TOPICS)
    await broker.admin.create_topic("orders", 2)
    await append_each(broker, "orders", [str(n) for n in range(20)])
    await broker.upkeep.settle()
    await broker.admin.delete_topic("orders")

    for each in (broker, open_broker(NO_NEW_TOPICS)):
        assert await each.admin.list_topics() == []
        for attempt in (
            each.admin.describe_topic("orders"),
            fetch_one(each, "orders"),
            broker.admin.delete_topic("orders"),
        ):
            with pytest.raises(LakelogError) as caught:
                await attempt
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(LakelogError) as caught:
            await append(each, "orders", records(["x"]))
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [file.path for file in await broker.store.files("orders") if "partition=" in file.path] == []


async def test_a_topic_created_again_starts_afresh(open_broker: OpenBroker) -> None:
    broker = open_broker()
    first = await broker.admin.create_topic("orders", 3, {"retention.ms": "5"})
    await append(broker, "orders", records(["old"] * 5, partition=2), producer=batch_of(7, 0))
    await broker.admin.delete_topic("orders")
    second = await broker.admin.create_topic("orders", 1)
    assert second.topic_id != first.topic_id
    assert second.config.overrides == {}

    for each in (broker, open_broker()):
        assert await high_watermarks(each, "orders") == [0]
    # Neither the records nor the producer's count are remembered.
    appended = await append(broker, "orders", records(["new"] * 5, partition=0), producer=batch_of(7, 0))
    assert appended.offsets.tolist() == [0, 1, 2, 3, 4]
    assert not appended.duplicate
    for each in (broker, open_broker()):
        assert await values_of(each, "orders") == ["new"] * 5


async def test_a_broker_that_had_the_topic_open_finds_the_new_one(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await ours.admin.create_topic("orders", 2)
    await append(theirs, "orders", records(["old"] * 3, partition=1))
    assert await values_of(theirs, "orders", 1) == ["old"] * 3
    await ours.admin.delete_topic("orders")
    await ours.admin.create_topic("orders", 2)
    assert (await append(theirs, "orders", records(["new"], partition=1))).offsets.tolist() == [0]
    assert await values_of(theirs, "orders", 1) == ["new"]
    assert await values_of(ours, "orders", 1) == ["new"]


async def test_nothing_is_acknowledged_into_a_topic_that_another_broker_has_deleted(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(NO_NEW_TOPICS), open_broker(NO_NEW_TOPICS)
    await ours.admin.create_topic("orders", 1)
    await append(theirs, "orders", records(["seen by both"]))
    # Their view of the table is now several commits behind the one that deletes it.
    await append_each(ours, "orders", ["a", "b", "c"])
    await ours.admin.delete_topic("orders")
    with pytest.raises(LakelogError) as caught:
        await append(theirs, "orders", records(["lost"]))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(LakelogError) as caught:
        await theirs.admin.describe_topic("orders")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_record_that_comes_between_is_deleted_with_its_topic(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await ours.admin.create_topic("orders", 1)
    topic = await ours.topics.get("orders", max_age_ms=0)
    deletion = drafts.delete(topic.state, now_ms=ours.clock.now_ms())
    await append(theirs, "orders", records(["between"]))
    # As it stands it would leave the new file in the table, for readers that know nothing of our properties.
    with pytest.raises(Stale):
        await topic.table.commit(deletion)
    assert await values_of(ours, "orders") == ["between"]


async def test_deleting_while_others_append_leaves_either_all_of_a_topic_or_nothing(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(NO_NEW_TOPICS), open_broker(NO_NEW_TOPICS)
    await ours.admin.create_topic("orders", 1)
    await append(theirs, "orders", records(["first"]))
    appends = [append(theirs, "orders", records([str(n)])) for n in range(20)]
    _, refused = await outcomes(*appends, ours.admin.delete_topic("orders"))
    assert {error.code for error in refused} <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with pytest.raises(LakelogError):
        await theirs.admin.describe_topic("orders")
    await ours.admin.create_topic("orders", 1)
    assert await high_watermarks(theirs, "orders") == [0]


async def test_a_topic_is_deleted_once_however_many_ask(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker()]
    await append(brokers[0], "orders", records(["x"]))
    done, refused = await outcomes(*(brokers[n % 2].admin.delete_topic("orders") for n in range(6)))
    assert len(done) == 1
    assert {error.code for error in refused} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_reader_that_waits_is_told_that_its_topic_is_deleted(broker: Broker) -> None:
    await append(broker, "orders", records(["x"]))
    waiting = asyncio.create_task(fetch_one(broker, "orders", 0, 1, max_wait_ms=60_000))
    await asyncio.sleep(0)
    await broker.admin.delete_topic("orders")
    with pytest.raises(LakelogError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Hurried(SystemClock):
    """Time that can be made to pass."""

    passed_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.passed_ms


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker], list[str]]:
    """What a broker reads whole from its store, from now on."""

    def watched(broker: Broker) -> list[str]:
        get, seen = broker.store.get, list[str]()

        async def counted(path: str) -> bytes | None:
            seen.append(path)
            return await get(path)

        monkeypatch.setattr(broker.store, "get", counted)
        return seen

    return watched


async def deleted(broker: Broker, name: str) -> int:
    """A topic that was; returns the last version of its table."""
    await broker.admin.create_topic(name)
    topic = await broker.topics.get(name)
    await broker.admin.delete_topic(name)
    return topic.state.version


async def test_a_deleted_topic_is_not_loaded_again_by_whoever_asks_for_it(
    open_broker: OpenBroker, reads: Callable[[Broker], list[str]]
) -> None:
    version = await deleted(open_broker(), "orders")
    clock = Hurried()
    broker = open_broker(clock=clock)
    assert await broker.admin.list_topics() == []
    seen = reads(broker)
    with pytest.raises(LakelogError):
        await broker.topics.get("orders", max_age_ms=FOREVER_MS)
    assert seen == []
    with pytest.raises(LakelogError):
        await broker.topics.get("orders")
    assert seen == [f"orders/_delta_log/{version + 1:020d}.json"]
    seen.clear()
    # Its log may have been cut meanwhile, so that the next commit says nothing any more.
    clock.passed_ms += STALE_AFTER_MS + 1
    with pytest.raises(LakelogError):
        await broker.topics.get("orders")
    assert "orders/_delta_log/_last_checkpoint" in seen


async def test_a_deleted_topic_that_another_broker_creates_again_is_found(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await deleted(ours, "orders")
    assert await theirs.admin.list_topics() == []
    await ours.admin.create_topic("orders", 2)
    assert (await theirs.admin.describe_topic("orders")).partitions[1].partition == 1
    await ours.admin.delete_topic("orders")
    assert await ours.admin.list_topics() == []
    assert await theirs.admin.list_topics() in ([], ["orders"]), "a listing may be a second old"
    with pytest.raises(LakelogError):
        await theirs.admin.describe_topic("orders")


async def test_of_deleted_topics_only_so_many_are_remembered(
    open_broker: OpenBroker, reads: Callable[[Broker], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleted_topics, "DELETED_REMEMBERED_MAX", 2)
    broker = open_broker()
    for name in ("a", "b", "c"):
        await deleted(broker, name)
        with pytest.raises(LakelogError):
            await broker.topics.get(name)
    seen = reads(broker)
    for name in ("b", "c", "a"):
        with pytest.raises(LakelogError):
            await broker.topics.get(name, max_age_ms=FOREVER_MS)
    assert {path.split("/")[0] for path in seen} == {"a"}
