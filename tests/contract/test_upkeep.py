"""What a broker does for its own tail takes nothing from anybody: no record, no offset, no file that is still read."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from lakelog import upkeep
from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.delta import table as table_module
from lakelog.delta.state import TableState
from lakelog.delta.store import Store, StoreUnavailable, open_store
from lakelog.errors import LakelogError
from lakelog.log.tiers import FAN, plan_merge
from lakelog.model.segment import Segment
from lakelog.upkeep import CHECKPOINT_COMMITS
from tests.conftest import OpenBroker
from tests.contract.records import (
    COLD,
    MovedClock,
    append,
    append_each,
    fetch_one,
    read_all,
    records,
    values_of,
)

TOPIC = "orders"
HOUR_MS = 3_600_000


async def state_of(broker: Broker) -> TableState:
    return (await broker.topics.get(TOPIC, max_age_ms=0)).state


async def data_files(broker: Broker) -> set[str]:
    """Every data file in the topic's folder, whether the table names it or not."""
    paths = (file.path.removeprefix(f"{TOPIC}/") for file in await broker.store.files(TOPIC))
    return {path for path in paths if path.startswith("partition=")}


async def log_versions(broker: Broker, ending: str) -> list[int]:
    names = (file.path.rsplit("/", 1)[-1] for file in await broker.store.files(f"{TOPIC}/_delta_log"))
    return [int(name.removesuffix(ending)) for name in names if name.endswith(ending)]


async def places_of(broker: Broker, partition: int = 0) -> list[tuple[int, str]]:
    return [(row["offset"], row["value"].decode()) for row in await read_all(broker, TOPIC, partition)]


def numbered(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def in_their_places(values: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(values))


async def append_and_settle(broker: Broker, values: list[str]) -> None:
    await append_each(broker, TOPIC, values)
    await broker.upkeep.settle()


async def test_a_full_tier_becomes_one_file_of_the_next(open_broker: OpenBroker) -> None:
    broker = open_broker()
    values = numbered(0, FAN * FAN + FAN + 1)
    await append_and_settle(broker, values)
    segments = (await state_of(broker)).partitions[0].segments
    spans = [(each.base_offset, each.end_offset, each.tier) for each in segments]
    assert spans == [
        (0, FAN * FAN, 2),
        (FAN * FAN, FAN * FAN + FAN, 1),
        (FAN * FAN + FAN, len(values), 0),
    ]
    for reader in (broker, open_broker(COLD)):
        assert await places_of(reader) == in_their_places(values)


async def test_a_merge_that_reaches_the_size_of_a_segment_is_sealed(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, TOPIC, records(["0"], partition=0))
    one_file = (await state_of(broker)).partitions[0].bytes
    await broker.admin.alter_config(TOPIC, {"segment.bytes": str(max(1024, 3 * one_file))})
    await append_and_settle(broker, numbered(1, 8))
    sealed = [each for each in (await state_of(broker)).partitions[0].segments if each.sealed_by_size]
    assert sealed
    assert all(each.records < FAN for each in sealed)
    before = [each.path for each in sealed]
    await append_and_settle(broker, numbered(8, 30))
    assert set(before) <= (await state_of(broker)).live.keys()
    assert await places_of(open_broker(COLD)) == in_their_places(numbered(0, 30))


async def test_each_partition_is_merged_by_itself(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic(TOPIC, 2)
    for number in range(FAN):
        await append(broker, TOPIC, records([f"a{number}"], partition=0))
        if number:
            await append(broker, TOPIC, records([f"b{number}"], partition=1))
    await broker.upkeep.settle()
    state = await state_of(broker)
    assert [len(each.segments) for each in state.partitions] == [1, FAN - 1]
    reader = open_broker(COLD)
    assert await values_of(reader, TOPIC, 0) == [f"a{number}" for number in range(FAN)]
    assert await values_of(reader, TOPIC, 1) == [f"b{number}" for number in range(1, FAN)]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions whose files were looked through for a merge, one entry per look."""
    looks: list[int] = []

    def noted(segments: Sequence[Segment], *terms: Any) -> Any:
        looks.extend({each.partition for each in segments})
        return plan_merge(segments, *terms)

    monkeypatch.setattr(upkeep, "plan_merge", noted)
    return looks


async def test_only_partitions_that_have_grown_are_looked_at(open_broker: OpenBroker, looked_at: list[int]) -> None:
    broker = open_broker()
    await broker.admin.create_topic(TOPIC, 50)
    for partition in range(50):
        await append(broker, TOPIC, records(["x"], partition=partition))
    looked_at.clear()
    await append_and_settle(broker, ["y"])
    assert set(looked_at) == {0}


async def test_what_a_broker_finds_undone_it_does_with_its_first_append(open_broker: OpenBroker) -> None:
    first = open_broker()
    await first.admin.create_topic(TOPIC, 2)
    await first.upkeep.close()
    await append_each(first, TOPIC, numbered(0, FAN), partition=1)
    broker = open_broker()
    await append_and_settle(broker, ["x"])
    assert [len(each.segments) for each in (await state_of(broker)).partitions] == [1, 1]


async def test_a_merge_that_failed_is_made_after_the_next_append_to_any_partition(
    open_broker: OpenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker()
    await broker.admin.create_topic(TOPIC, 2)

    async def fails(*_: object) -> None:
        raise StoreUnavailable("for a while")

    with monkeypatch.context() as patch:
        patch.setattr(broker.upkeep, "merge", fails)
        await append_each(broker, TOPIC, numbered(0, FAN), partition=1)
        await broker.upkeep.settle()
    assert len((await state_of(broker)).partitions[1].segments) == FAN
    await append_and_settle(broker, ["x"])
    assert len((await state_of(broker)).partitions[1].segments) == 1


async def test_other_sizes_of_segments_have_all_partitions_looked_at(
    open_broker: OpenBroker, looked_at: list[int]
) -> None:
    broker = open_broker()
    await broker.admin.create_topic(TOPIC, 3)
    for partition in range(3):
        await append(broker, TOPIC, records(["x"], partition=partition))
    await broker.upkeep.settle()
    await broker.admin.alter_config(TOPIC, {"segment.bytes": "1024"})
    looked_at.clear()
    await append_and_settle(broker, ["y"])
    assert set(looked_at) == {0, 1, 2}


async def test_nothing_is_kept_of_topics_that_are_closed(
    open_broker: OpenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CHECKPOINT_COMMITS", 2)
    broker = open_broker(ServerSettings(open_topics_max=1))
    for number in range(6):
        await append_each(broker, f"topic-{number}", numbered(0, 2))
        await broker.upkeep.settle()
    gc.collect()
    kept = [len(each) for each in vars(broker.upkeep).values() if hasattr(each, "__len__")]
    assert max(kept) <= 2, "the one that is open, and the one before it"


async def test_a_merge_reads_from_files_what_memory_no_longer_holds(open_broker: OpenBroker) -> None:
    await append_and_settle(open_broker(), numbered(0, FAN - 1))
    broker = open_broker(COLD)
    await append_and_settle(broker, numbered(FAN - 1, FAN))
    assert len((await state_of(broker)).live) == 1
    assert await places_of(open_broker(COLD)) == in_their_places(numbered(0, FAN))


async def test_files_that_were_merged_stay_for_readers_of_the_table_as_it_was(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append_each(broker, TOPIC, numbered(0, FAN - 1))
    before = set((await state_of(broker)).live)
    await append_and_settle(broker, numbered(FAN - 1, FAN))
    state = await state_of(broker)
    assert before.isdisjoint(state.live)
    assert before <= await data_files(broker)
    assert before < state.tombstones.times_ms().keys()


async def test_a_long_log_gets_a_checkpoint_that_opens_the_topic(open_broker: OpenBroker) -> None:
    broker = open_broker()
    values = numbered(0, CHECKPOINT_COMMITS)
    await append_and_settle(broker, values)
    (checkpoint,) = await log_versions(broker, ".checkpoint.parquet")
    assert checkpoint + 1 >= CHECKPOINT_COMMITS
    # Commits stay while somebody may still follow them; who opens the topic does not need them.
    commits = await log_versions(broker, ".json")
    assert commits == list(range((await state_of(broker)).version + 1))
    await broker.store.delete(
        [f"{TOPIC}/_delta_log/{version:020d}.json" for version in commits if version < checkpoint]
    )
    assert await places_of(open_broker(COLD)) == in_their_places(values)


async def test_a_checkpoint_is_not_written_again_before_its_time(open_broker: OpenBroker) -> None:
    clock = MovedClock()
    broker = open_broker(clock=clock)
    await append_and_settle(broker, numbered(0, CHECKPOINT_COMMITS))
    first = await log_versions(broker, ".checkpoint.parquet")
    await append_and_settle(broker, numbered(0, CHECKPOINT_COMMITS))
    assert await log_versions(broker, ".checkpoint.parquet") == first
    clock.ahead_ms += HOUR_MS
    await append_and_settle(broker, ["x"])
    assert len(await log_versions(broker, ".checkpoint.parquet")) == 2


async def test_what_is_old_leaves_the_log_and_the_store_and_nothing_else_does(open_broker: OpenBroker) -> None:
    clock = MovedClock()
    broker = open_broker(clock=clock)
    values = numbered(0, CHECKPOINT_COMMITS)
    await append_and_settle(broker, values)
    reader = open_broker(COLD, clock=clock)
    assert (await fetch_one(reader, TOPIC, max_bytes=1)).next_offset == 1
    removed = await data_files(broker) - (await state_of(broker)).live.keys()
    assert len(removed) >= FAN
    more = numbered(CHECKPOINT_COMMITS, 2 * CHECKPOINT_COMMITS)
    clock.ahead_ms += 3 * HOUR_MS
    await append_and_settle(broker, more)
    checkpoint = max(await log_versions(broker, ".checkpoint.parquet"))
    assert await log_versions(broker, ".checkpoint.parquet") == [checkpoint]
    assert min(await log_versions(broker, ".json")) == checkpoint
    files = await data_files(broker)
    assert removed.isdisjoint(files)
    assert (await state_of(broker)).live.keys() <= files
    # One who was in the middle of a file that is gone goes on in the one that took its place.
    rest = await read_all(reader, TOPIC, 0, 1)
    assert [row["offset"] for row in rest] == list(range(1, len(values + more)))
    assert await places_of(open_broker(COLD)) == in_their_places(values + more)


class Witness:
    """A store that notes what is read and deleted of the log, in turn: how many commits at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.steps: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, path: str) -> bytes | None:
        self._note("get", [path])
        return await self._store.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        self._note("get_many", paths)
        return await self._store.get_many(paths)

    async def delete(self, paths: Sequence[str]) -> None:
        self._note("delete", paths)
        await self._store.delete(paths)

    def _note(self, step: str, paths: Sequence[str]) -> None:
        commits = sum(path.endswith(".json") for path in paths)
        if commits:
            self.steps.append((step, commits))


@pytest.mark.parametrize("limit", ["CLEANED_FILES_MOST", "CLEANED_BYTES_MOST"])
async def test_a_long_log_is_cleaned_some_commits_at_a_time(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Witness(open_store(f"memory://{uuid.uuid4().hex}"))
    async with Broker(store) as broker:
        await append_and_settle(broker, numbered(0, 2 * FAN))
        await append_and_settle(broker, [str(2 * FAN)])
        table = (await broker.topics.get(TOPIC)).table
        await table.checkpoint()
        commits = len(await log_versions(broker, ".json")) - 1  # the newest one stays
        removed = set(table.state.tombstones.times_ms())
        sizes = sorted(file.size for file in await store.files(f"{TOPIC}/_delta_log"))
        monkeypatch.setattr(table_module, limit, 10 if limit == "CLEANED_FILES_MOST" else 10 * sizes[0])
        store.steps.clear()
        assert await table.clean_log(before_ms=1 << 62) == commits
        counts = [count for step, count in store.steps if step == "delete"]
        assert sum(counts) == commits
        assert max(counts) <= 10
        assert store.steps == [(step, count) for count in counts for step in ("get_many", "delete")]
        assert removed
        assert removed.isdisjoint(await data_files(broker))
        assert await places_of(broker) == in_their_places(numbered(0, 2 * FAN + 1))


async def test_to_delete_a_topic_reads_each_commit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MovedClock()
    store = Witness(open_store(f"memory://{uuid.uuid4().hex}"))
    async with Broker(store, clock=clock) as broker:
        await append_and_settle(broker, numbered(0, FAN))
        clock.ahead_ms += HOUR_MS  # old enough to be cleaned
        store.steps.clear()
        await broker.admin.delete_topic(TOPIC)
        versions = (await broker.topics.find(TOPIC)).state.version
        assert sum(count for step, count in store.steps if step == "get_many") == versions
        assert await data_files(broker) == set()


async def test_removed_files_stay_for_as_long_as_the_topic_says(open_broker: OpenBroker) -> None:
    clock = MovedClock()
    broker = open_broker(clock=clock)
    await broker.admin.create_topic(TOPIC, 1, {"file.delete.delay.ms": str(10 * HOUR_MS)})
    await append_and_settle(broker, numbered(0, CHECKPOINT_COMMITS))
    removed = await data_files(broker) - (await state_of(broker)).live.keys()
    clock.ahead_ms += 9 * HOUR_MS
    await append_and_settle(broker, numbered(0, CHECKPOINT_COMMITS))
    assert removed <= await data_files(broker)
    assert removed <= (await state_of(open_broker(COLD))).tombstones.times_ms().keys()
    clock.ahead_ms += 2 * HOUR_MS
    await append_and_settle(broker, numbered(0, CHECKPOINT_COMMITS))
    assert removed.isdisjoint(await data_files(broker))
    assert removed.isdisjoint((await state_of(open_broker(COLD))).tombstones.times_ms())


async def test_two_brokers_look_after_one_topic_at_once(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker()]
    await brokers[0].admin.create_topic(TOPIC, 2)

    async def write(broker: Broker, name: str, partition: int) -> None:
        await append_each(broker, TOPIC, [f"{name}{number}" for number in range(2 * FAN)], partition=partition)

    names = {"a": (0, 0), "b": (1, 0), "c": (0, 1), "d": (1, 1)}
    await asyncio.gather(*(write(brokers[which], name, partition) for name, (which, partition) in names.items()))
    for broker in brokers:
        await broker.upkeep.settle()
    fresh = open_broker(COLD)
    for partition in (0, 1):
        places = await places_of(fresh, partition)
        assert [offset for offset, _ in places] == list(range(4 * FAN))
        for name, (_, its_partition) in names.items():
            if its_partition == partition:
                sent = [f"{name}{number}" for number in range(2 * FAN)]
                assert [value for _, value in places if value.startswith(name)] == sent
    # A merge that came second leaves nothing behind.
    state = await state_of(fresh)
    assert await data_files(fresh) == state.live.keys() | state.tombstones.times_ms().keys()
    assert max(each.tier for each in state.live.values()) >= 1


async def test_a_topic_that_is_deleted_under_its_upkeep_stays_deleted(open_broker: OpenBroker) -> None:
    broker, other = open_broker(), open_broker(ServerSettings(auto_create_topics_enable=False))
    await append_each(broker, TOPIC, numbered(0, FAN))  # the last one starts a merge
    await other.admin.delete_topic(TOPIC)
    await broker.upkeep.settle()
    assert await data_files(other) == set()
    with pytest.raises(LakelogError, match="there is no topic"):
        await other.admin.describe_topic(TOPIC)
