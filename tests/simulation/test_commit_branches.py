"""Tries to break the commit, one branch at a time: each test leads two servers to one fork and looks where they go.

What a branch must never do is the same everywhere: commit twice, lose what was acknowledged, answer from an old view of
the table, or leave somebody waiting for ever.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import pytest

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.delta.checkpoint import LastCheckpoint
from lakelog.delta.table import STALE_AFTER_MS
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import FetchFrom
from lakelog.log.producers import TOPIC_STREAM, ProducerBatch
from lakelog.log.stamp import Appended
from lakelog.model.batch import ListRecords
from lakelog.produce import Acks
from tests.simulation.faulty_store import Fate, Faults, FaultyStore, Warehouse
from tests.simulation.ledger import check_history
from tests.simulation.virtual_time import VirtualClock, in_virtual_time
from tests.simulation.world import SETTINGS, TOPIC, broker_on, read_all, small_steps

COMMIT = ".json"
SEGMENT = ".parquet"


@dataclass(slots=True)
class Side:
    store: FaultyStore
    broker: Broker

    async def append(
        self,
        *values: str,
        partition: int | None = 0,
        producer: ProducerBatch | None = None,
        expected: dict[int, int] | None = None,
        acks: Acks = Acks.ALL,
    ) -> Appended:
        records = ListRecords(
            [value.encode() for value in values],
            sum(map(len, values)),
            partitions=None if partition is None else [partition] * len(values),
        )
        appended = await self.broker.append(TOPIC, records, producer=producer, expected_offsets=expected, acks=acks)
        assert appended is not None
        return appended

    async def offsets(self, *values: str, partition: int = 0) -> list[int]:
        offsets: list[int] = (await self.append(*values, partition=partition)).offsets.tolist()
        return offsets


class Pair:
    """Two servers that have both seen the topic, `ours` being the one whose branch is looked at."""

    def __init__(self, settings: ServerSettings = SETTINGS) -> None:
        self.settings = settings
        self.warehouse = Warehouse(VirtualClock())
        self.ours, self.theirs = self.side(), self.side()

    def side(self, *, skew_ms: int = 0) -> Side:
        store = FaultyStore(self.warehouse)
        return Side(store, broker_on(store, skew_ms=skew_ms, settings=self.settings))

    async def values(self, partition: int = 0) -> list[str]:
        """What one who was never there before reads, with the table's history checked on the way."""
        check_history(self.warehouse.created)
        log, starts, ends = await read_all(self.side().broker, TOPIC)
        assert [offset for offset, _ in log[partition]] == list(range(starts[partition], ends[partition]))
        return [row.value.decode() for _, row in log[partition]]

    def segments(self) -> set[str]:
        return {path for path in self.warehouse.files if path.endswith(SEGMENT) and "_delta_log" not in path}

    async def live_segments(self) -> set[str]:
        topic = await self.side().broker.topics.get(TOPIC)
        return {topic.table.path(path) for path in topic.state.live}

    def commits(self) -> list[str]:
        """The operations of the table's history, oldest first."""
        lines = (json.loads(line) for path, data in sorted(self.warehouse.created) for line in data.splitlines())
        return [line["commitInfo"]["operation"] for line in lines if "commitInfo" in line]

    def foreign_commit(self, *actions: dict[str, object]) -> None:
        """A commit of somebody who is not Lakelog, at the next version there is."""
        version = sum(path.endswith(COMMIT) for path in self.warehouse.files)
        data = "\n".join(json.dumps(action) for action in actions).encode()
        assert self.warehouse.create(f"{TOPIC}/_delta_log/{version:020d}.json", data)


async def pair(partitions: int = 2, settings: ServerSettings = SETTINGS) -> Pair:
    both = Pair(settings)
    await both.ours.broker.admin.create_topic(TOPIC, partitions)
    await both.theirs.broker.admin.describe_topic(TOPIC)
    return both


@pytest.fixture
def _often() -> Iterator[None]:
    with small_steps():
        yield


def producer(sequence: int, *, epoch: int = 0, stream: int = TOPIC_STREAM) -> ProducerBatch:
    return ProducerBatch(7, epoch, sequence, stream)


# -- the race for a version ------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_lost_race_for_another_partition_takes_the_same_files_to_the_next_version() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs", partition=1))
    assert await both.ours.offsets("ours") == [0]
    assert both.ours.store.asked("put", "partition=0/") == 1, "the file was written once"
    assert await both.values(0) == ["ours"]
    assert await both.values(1) == ["theirs"]


@in_virtual_time
async def test_a_foreign_append_to_the_same_partition_moves_our_offsets_and_drops_the_orphan() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs 0", "theirs 1"))
    assert await both.ours.offsets("ours") == [2]
    assert await both.values() == ["theirs 0", "theirs 1", "ours"]
    assert both.segments() == await both.live_segments(), "no file without a commit is left"


@in_virtual_time
async def test_a_race_that_is_lost_many_times_in_a_row_is_won_in_the_end() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, times=20, meanwhile=lambda: both.theirs.append("theirs"))
    assert await both.ours.offsets("ours") == [20]
    assert (await both.values())[20:] == ["ours"]


@in_virtual_time
async def test_the_files_of_a_lost_race_that_cannot_be_dropped_do_no_harm() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs"))
    both.ours.store.when("delete", SEGMENT, Fate.NEVER_ARRIVES)
    assert await both.ours.offsets("ours") == [1]
    assert await both.values() == ["theirs", "ours"]


@in_virtual_time
async def test_a_winner_that_cannot_be_read_at_first_is_read_later() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs"))
    both.ours.store.when("get", COMMIT, Fate.NEVER_ARRIVES, times=2)
    assert await both.ours.offsets("ours") == [1]
    assert await both.values() == ["theirs", "ours"]


# -- conditions of a request, under a race ---------------------------------------------------------------------


@in_virtual_time
async def test_a_condition_that_a_foreign_append_breaks_on_the_way_is_refused() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs"))
    with pytest.raises(LakelogError) as refused:
        await both.ours.append("ours", expected={0: 0})
    assert refused.value.code is ErrorCode.EXPECTED_OFFSET_MISMATCH
    assert await both.values() == ["theirs"]


@in_virtual_time
async def test_a_condition_on_a_partition_that_gets_no_record_is_kept_too() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs", partition=1))
    with pytest.raises(LakelogError) as refused:
        await both.ours.append("ours", partition=0, expected={1: 0})
    assert refused.value.code is ErrorCode.EXPECTED_OFFSET_MISMATCH
    assert await both.values(0) == []


@in_virtual_time
async def test_a_condition_that_only_an_old_view_breaks_is_kept() -> None:
    both = await pair()
    await both.theirs.append("theirs")
    assert (await both.ours.append("ours", expected={0: 1})).offsets.tolist() == [1]


@in_virtual_time
async def test_a_leader_acknowledgement_is_not_refused_by_an_old_view() -> None:
    both = await pair(partitions=1)
    await both.theirs.broker.admin.add_partitions(TOPIC, 3)
    await both.ours.append("ours", partition=2, acks=Acks.LEADER)
    await both.ours.broker.close()
    assert await both.values(2) == ["ours"]


@in_virtual_time
async def test_one_batch_on_two_servers_at_the_same_time_is_stored_once() -> None:
    both = await pair()
    one, other = await asyncio.gather(
        both.ours.append("a", "b", producer=producer(0)), both.theirs.append("a", "b", producer=producer(0))
    )
    assert one.offsets.tolist() == other.offsets.tolist() == [0, 1]
    assert sorted([one.duplicate, other.duplicate]) == [False, True]
    assert await both.values() == ["a", "b"]


@in_virtual_time
async def test_an_old_instance_is_fenced_also_where_the_new_one_wrote_to_another_partition() -> None:
    both = await pair()
    both.ours.store.when(
        "create", COMMIT, meanwhile=lambda: both.theirs.append("new", partition=1, producer=producer(0, epoch=1))
    )
    with pytest.raises(LakelogError) as refused:
        await both.ours.append("old", partition=0, producer=producer(0, epoch=0))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await both.values(0) == []


@in_virtual_time
async def test_a_repetition_is_not_answered_from_a_log_that_is_gone() -> None:
    both = await pair()
    await both.ours.append("old", producer=producer(0))
    await both.theirs.broker.admin.delete_topic(TOPIC)
    await both.theirs.broker.admin.create_topic(TOPIC, 1)
    again = await both.ours.append("new", producer=producer(0))
    assert not again.duplicate
    assert await both.values() == ["new"]


@in_virtual_time
async def test_a_repetition_gets_its_first_places_also_after_partitions_were_added() -> None:
    both = await pair(partitions=2)
    values = [f"value {number}" for number in range(8)]
    keys: list[bytes | None] = [f"key {number}".encode() if number % 4 else None for number in range(8)]
    records = ListRecords([value.encode() for value in values], 64, keys=keys)
    first = await both.ours.broker.append(TOPIC, records, producer=producer(0))
    await both.theirs.broker.admin.add_partitions(TOPIC, 5)
    again = await both.ours.broker.append(TOPIC, records, producer=producer(0))
    assert first is not None
    assert again is not None
    assert again.duplicate
    assert again.partitions.tolist() == first.partitions.tolist()
    assert again.offsets.tolist() == first.offsets.tolist()


@in_virtual_time
async def test_a_repetition_is_known_also_after_its_records_were_deleted() -> None:
    both = await pair()
    await both.ours.append("once", producer=producer(0))
    await both.ours.broker.admin.delete_records(TOPIC, {0: 1})
    assert (await both.side().append("once", producer=producer(0))).duplicate
    assert await both.values() == []


@pytest.mark.usefixtures("_often")
@in_virtual_time
async def test_a_producer_goes_on_after_a_restart_whatever_the_clocks_of_its_servers_say() -> None:
    both = await pair(partitions=1)
    ahead = both.side(skew_ms=3_600_000)
    for sequence in range(12):
        side = (ahead, both.theirs)[sequence % 2]
        await side.append(f"{sequence}", producer=producer(sequence))
        await side.broker.upkeep.settle()
    fresh = both.side()
    assert (await fresh.append("11", producer=producer(11))).duplicate
    assert (await fresh.append("12", producer=producer(12))).offsets.tolist() == [12]
    assert fresh.store.asked("get", ".checkpoint.parquet") == 1, "it began at a checkpoint"


# -- another's metadata and protocol ---------------------------------------------------------------------------


@in_virtual_time
async def test_a_config_that_changes_on_the_way_is_the_one_that_counts() -> None:
    both = await pair()
    limit = {"max.message.bytes": "3"}
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.broker.admin.alter_config(TOPIC, limit))
    with pytest.raises(LakelogError) as refused:
        await both.ours.append("too long")
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert await both.ours.offsets("ok") == [0]
    assert await both.values() == ["ok"]
    assert both.segments() == await both.live_segments()


@in_virtual_time
async def test_two_changes_of_config_at_the_same_time_are_both_made() -> None:
    both = await pair()
    await asyncio.gather(
        both.ours.broker.admin.alter_config(TOPIC, {"retention.ms": "1000"}),
        both.theirs.broker.admin.alter_config(TOPIC, {"segment.ms": "2000"}),
    )
    config = (await both.side().broker.admin.describe_topic(TOPIC)).config
    assert (config.retention_ms, config.segment_ms) == (1000, 2000)


@in_virtual_time
async def test_partitions_that_are_added_on_the_way_are_seen() -> None:
    both = await pair(partitions=1)
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.broker.admin.add_partitions(TOPIC, 3))
    assert await both.ours.offsets("first") == [0]
    assert await both.ours.offsets("second", partition=2) == [0]
    assert await both.values(2) == ["second"]


@in_virtual_time
async def test_a_topic_that_is_deleted_on_the_way_takes_nothing_more() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.broker.admin.delete_topic(TOPIC))
    with pytest.raises(LakelogError) as refused:
        await both.ours.append("ours")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert both.segments() == set()


@in_virtual_time
async def test_a_topic_that_is_deleted_and_created_again_on_the_way_takes_the_records_from_offset_0() -> None:
    both = await pair(partitions=4)
    await both.ours.append("of the first topic", partition=None)

    async def replace() -> None:
        await both.theirs.broker.admin.delete_topic(TOPIC)
        await both.theirs.broker.admin.create_topic(TOPIC, 1)

    both.ours.store.when("create", COMMIT, meanwhile=replace)
    # Without a key: where it goes was to be one of four, and there is one.
    assert (await both.ours.append("of the second", partition=None)).offsets.tolist() == [0]
    assert await both.values() == ["of the second"]


@in_virtual_time
async def test_a_server_that_did_not_hear_of_the_new_topic_does_not_commit_into_the_log_of_the_old_one() -> None:
    both = await pair()
    for number in range(5):
        await both.theirs.append(f"{number}")
    await both.theirs.broker.admin.delete_topic(TOPIC)
    await both.theirs.broker.admin.create_topic(TOPIC, 2)
    assert await both.ours.offsets("acknowledged") == [0]
    assert await both.values() == ["acknowledged"]


@in_virtual_time
async def test_two_who_create_a_topic_at_the_same_time_make_one() -> None:
    both = Pair()
    outcomes = await asyncio.gather(
        both.ours.broker.admin.create_topic(TOPIC, 1),
        both.theirs.broker.admin.create_topic(TOPIC, 2),
        return_exceptions=True,
    )
    refusals = [outcome for outcome in outcomes if isinstance(outcome, LakelogError)]
    assert [refusal.code for refusal in refusals] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert both.commits() == ["CREATE TOPIC"]


@pytest.mark.parametrize(
    ("protocol", "feature"),
    [
        ({"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, "rowTracking"),
        ({"minReaderVersion": 2, "minWriterVersion": 5}, "columnMapping"),
    ],
)
def test_a_protocol_that_asks_for_more_than_we_write_is_refused_by_its_name(
    protocol: dict[str, object], feature: str
) -> None:
    @in_virtual_time
    async def meet() -> None:
        both = await pair()
        await both.ours.append("before")

        async def upgrade() -> None:
            both.foreign_commit({"protocol": protocol})

        both.ours.store.when("create", COMMIT, meanwhile=upgrade)
        for side in (both.ours, both.ours, both.side()):  # on the way, afterwards, and by one who opens it
            with pytest.raises(LakelogError, match=feature) as refused:
                await side.append("after")
            assert refused.value.code is ErrorCode.UNSUPPORTED_TABLE
        assert len(both.warehouse.created) == 3, "created, appended, upgraded, and nothing since"

    meet()


@in_virtual_time
async def test_a_foreign_commit_that_changes_nothing_of_ours_is_no_conflict() -> None:
    both = await pair()
    both.foreign_commit(
        {"commitInfo": {"operation": "OPTIMIZE", "timestamp": 1}}, {"txn": {"appId": "x", "version": 3}}
    )
    assert await both.ours.offsets("ours") == [0]
    assert await both.values() == ["ours"]


# -- a put whose outcome is unknown ----------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [Fate.REPLY_LOST, Fate.NEVER_ARRIVES, Fate.LATE])
def test_a_put_that_nobody_answers_for_is_committed_once(fate: Fate) -> None:
    @in_virtual_time
    async def meet() -> None:
        both = await pair()
        both.ours.store.when("create", COMMIT, fate, times=3)
        assert await both.ours.offsets("ours") == [0]
        assert await both.ours.offsets("next") == [1]
        await asyncio.sleep(10)  # until the late ones have arrived
        assert await both.values() == ["ours", "next"]
        assert both.commits() == ["CREATE TOPIC", "APPEND", "APPEND"]

    meet()


@in_virtual_time
async def test_a_put_that_landed_and_was_built_upon_before_we_looked_is_known_again() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, Fate.REPLY_LOST)
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs"))
    assert await both.ours.offsets("ours") == [0]
    assert await both.values() == ["ours", "theirs"]


@in_virtual_time
async def test_a_put_that_did_not_land_before_another_took_its_version_moves_on() -> None:
    both = await pair()
    both.ours.store.when("create", COMMIT, Fate.NEVER_ARRIVES)
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("theirs"))
    assert await both.ours.offsets("ours") == [1]
    assert await both.values() == ["theirs", "ours"]


@in_virtual_time
async def test_a_store_that_never_replies_does_not_keep_an_append_beyond_its_deadline() -> None:
    both = await pair()
    asked_ms = both.ours.broker.clock.monotonic_ms()
    both.ours.store.when("create", COMMIT, delay_ms=3_600_000)
    with pytest.raises(LakelogError) as failed:
        await both.ours.append("unknown")
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert both.ours.broker.clock.monotonic_ms() - asked_ms < 2 * SETTINGS.commit_timeout_ms


@in_virtual_time
async def test_a_version_that_is_taken_and_can_not_be_read_is_given_up_at_the_deadline() -> None:
    both = await pair()

    async def taken(path: str, data: bytes) -> bool:
        await asyncio.sleep(0)
        return False

    both.ours.store.create = taken  # type: ignore[method-assign]
    with pytest.raises(LakelogError, match="taken") as failed:
        await both.ours.append("unknown")
    assert failed.value.retriable


@pytest.mark.parametrize(("fate", "landed"), [(Fate.REPLY_LOST, True), (Fate.NEVER_ARRIVES, False)])
def test_an_outcome_that_stays_unknown_is_a_retriable_error_and_the_next_append_finds_out(
    fate: Fate, landed: bool
) -> None:
    @in_virtual_time
    async def meet() -> None:
        both = await pair()
        both.ours.store.when("create", COMMIT, fate)
        away = both.ours.store.when("create", COMMIT, Fate.NEVER_ARRIVES, times=1_000)
        with pytest.raises(LakelogError) as failed:
            await both.ours.append("unknown", producer=producer(0))
        assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert failed.value.retriable
        away.times = 0
        again = await both.ours.append("unknown", producer=producer(0))
        assert again.duplicate is landed
        assert again.offsets.tolist() == [0]
        assert await both.ours.offsets("next") == [1]
        assert await both.values() == ["unknown", "next"]

    meet()


@pytest.mark.usefixtures("_often")
@in_virtual_time
async def test_a_commit_whose_reply_comes_after_minutes_keeps_its_files() -> None:
    both = await pair(partitions=1)
    both.ours.store.when("create", COMMIT, delay_ms=STALE_AFTER_MS + 60_000)
    ours = asyncio.ensure_future(both.ours.append("ours"))
    await asyncio.sleep(1)
    for number in range(12):  # enough for others to go on, and to write a checkpoint beyond
        await both.theirs.append(f"{number}")
        await both.theirs.broker.upkeep.settle()
        await asyncio.sleep(1)
    # What it is told is its server's affair; what it was told has to be true, and the table has to be whole.
    outcome = (await asyncio.gather(ours, return_exceptions=True))[0]
    assert isinstance(outcome, Appended) or (isinstance(outcome, LakelogError) and outcome.retriable)
    assert await both.values() == ["ours", *map(str, range(12))]
    assert await both.ours.offsets("next") == [13]


@pytest.mark.usefixtures("_often")
@in_virtual_time
async def test_a_server_that_slept_through_the_cleaning_of_the_log_does_not_commit_into_its_past() -> None:
    both = await pair(partitions=1)
    await both.ours.broker.admin.alter_config(TOPIC, {"delta.log.retention.ms": "600000", "file.delete.delay.ms": "0"})
    await both.ours.append("before")
    await asyncio.sleep(3_600)
    for number in range(30):
        await both.theirs.append(f"{number}")
        await both.theirs.broker.upkeep.settle()
        await asyncio.sleep(60)
    assert f"{TOPIC}/_delta_log/{3:020d}.json" not in both.warehouse.files, "the next version, as we knew it, is free"
    assert await both.ours.offsets("after") == [31]
    assert await both.values() == ["before", *map(str, range(30)), "after"]


class FrozenClock(VirtualClock):
    """Of a machine that its host can freeze: what measures ages stands still then, and the time of day goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._frozen_at_ms: float | None = None
        self._missed_ms = 0.0

    def freeze(self) -> None:
        self._frozen_at_ms = super().monotonic_ms()

    def thaw(self) -> None:
        assert self._frozen_at_ms is not None
        self._missed_ms += super().monotonic_ms() - self._frozen_at_ms

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() - self._missed_ms


class Sleeper:
    """A server that is frozen for so long that the log is cleaned beyond what it knows of it."""

    FREE_AS_IT_KNEW = f"{TOPIC}/_delta_log/{3:020d}.json"

    def __init__(self, both: Pair) -> None:
        self._both = both
        self._clock = FrozenClock()
        store = FaultyStore(both.warehouse)
        # The timers of a frozen process stand still like its clock; here they go on, so none may run out meanwhile.
        settings = replace(both.settings, commit_timeout_ms=24 * 3_600_000)
        self.side = Side(store, Broker(store, settings, clock=self._clock))

    async def sleep(self) -> None:
        self._clock.freeze()
        await asyncio.sleep(3_600)
        for number in range(30):
            await self._both.theirs.append(f"{number}")
            await self._both.theirs.broker.upkeep.settle()
            await asyncio.sleep(60)
        self._clock.thaw()
        assert self.FREE_AS_IT_KNEW not in self._both.warehouse.files


async def sleeper_and_others() -> tuple[Sleeper, Pair]:
    both = await pair(partitions=1)
    await both.theirs.broker.admin.alter_config(
        TOPIC, {"delta.log.retention.ms": "600000", "file.delete.delay.ms": "0"}
    )
    sleeper = Sleeper(both)
    await sleeper.side.append("before")
    return sleeper, both


@pytest.mark.usefixtures("_often")
@in_virtual_time
async def test_a_server_whose_clock_stood_still_meanwhile_does_not_commit_into_its_past() -> None:
    sleeper, both = await sleeper_and_others()
    await sleeper.sleep()
    assert await sleeper.side.offsets("after") == [31]
    assert await both.values() == ["before", *map(str, range(30)), "after"]


@pytest.mark.usefixtures("_often")
@in_virtual_time
async def test_a_server_that_was_frozen_in_its_commit_does_not_acknowledge_what_nobody_reads() -> None:
    sleeper, both = await sleeper_and_others()
    sleeper.side.store.when("create", COMMIT, meanwhile=sleeper.sleep)
    with pytest.raises(LakelogError) as told:
        await sleeper.side.append("void")
    assert told.value.retriable
    void, _ = both.warehouse.files[sleeper.FREE_AS_IT_KNEW]
    both.warehouse.created.remove((sleeper.FREE_AS_IT_KNEW, void))  # the history went on without it
    assert await sleeper.side.offsets("after") == [31]
    assert await both.values() == ["before", *map(str, range(30)), "after"]


@pytest.mark.usefixtures("_often")
@in_virtual_time
async def test_a_hint_that_went_back_to_an_older_checkpoint_leads_nobody_into_the_past() -> None:
    both = await pair(partitions=1)
    await both.ours.broker.admin.alter_config(TOPIC, {"delta.log.retention.ms": "600000", "file.delete.delay.ms": "0"})
    await both.ours.append("before")
    await asyncio.sleep(3_600)
    for number in range(30):
        await both.theirs.append(f"{number}")
        await both.theirs.broker.upkeep.settle()
        await asyncio.sleep(60)
    # As of a server that was held up between its checkpoint and its hint.
    both.warehouse.put(f"{TOPIC}/_delta_log/_last_checkpoint", msgspec.json.encode(LastCheckpoint(1)))
    assert await both.ours.offsets("after") == [31]
    assert await both.values() == ["before", *map(str, range(30)), "after"]


# -- files that are gone under a rewrite -----------------------------------------------------------------------


@in_virtual_time
async def test_a_merge_whose_files_are_deleted_on_the_way_is_given_up() -> None:
    both = await pair(partitions=1)
    for number in range(15):
        await both.ours.append(f"{number}")
    both.ours.store.when("create", COMMIT)  # the sixteenth append, after which a merge is due
    merge = both.ours.store.when(
        "create", COMMIT, meanwhile=lambda: both.theirs.broker.admin.delete_records(TOPIC, {0: 9})
    )
    await both.ours.append("15")
    await both.ours.broker.upkeep.settle()
    assert merge.times == 0, "the merge came to its commit"
    assert both.commits().count("MERGE TAIL") == 0
    assert await both.values() == [f"{number}" for number in range(9, 16)]
    assert await both.ours.offsets("16") == [16]


@in_virtual_time
async def test_of_two_servers_that_merge_the_same_files_one_does() -> None:
    both = await pair(partitions=1)
    for number in range(15):
        await both.theirs.append(f"{number}")
    await both.ours.broker.admin.describe_topic(TOPIC)
    both.theirs.store.when("create", COMMIT)  # the append
    # Ours appends to the same tail just before theirs commits its merge, finds a merge due, and makes it first.
    both.theirs.store.when("create", COMMIT, meanwhile=lambda: _append_and_settle(both.ours, "16"))
    await both.theirs.append("15")
    await both.theirs.broker.upkeep.settle()
    assert both.commits().count("MERGE TAIL") == 1
    assert await both.values() == [f"{number}" for number in range(17)]
    await asyncio.sleep(1)
    assert await both.theirs.offsets("17") == [17]


async def _append_and_settle(side: Side, value: str) -> None:
    await side.append(value)
    await side.broker.upkeep.settle()


@in_virtual_time
async def test_appends_meanwhile_are_no_conflict_for_a_merge() -> None:
    both = await pair(partitions=1)
    for number in range(15):
        await both.ours.append(f"{number}")
    both.ours.store.when("create", COMMIT)
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("16"))
    await both.ours.append("15")
    await both.ours.broker.upkeep.settle()
    assert both.commits().count("MERGE TAIL") == 1
    assert len(await both.live_segments()) == 2
    assert await both.values() == [f"{number}" for number in range(17)]


@in_virtual_time
async def test_a_merge_of_unknown_outcome_is_made_once() -> None:
    both = await pair(partitions=1)
    for number in range(15):
        await both.ours.append(f"{number}")
    both.ours.store.when("create", COMMIT)
    both.ours.store.when("create", COMMIT, Fate.REPLY_LOST)
    await both.ours.append("15")
    await both.ours.broker.upkeep.settle()
    assert both.commits().count("MERGE TAIL") == 1
    assert await both.values() == [f"{number}" for number in range(16)]
    assert both.segments() >= await both.live_segments()


@in_virtual_time
async def test_of_two_who_delete_records_at_the_same_time_the_higher_log_start_stays() -> None:
    both = await pair(partitions=1)
    await both.ours.append(*(f"{number}" for number in range(10)))
    lower = both.ours.broker.admin.delete_records(TOPIC, {0: 3})
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.broker.admin.delete_records(TOPIC, {0: 7}))
    await lower
    await (await both.ours.broker.topics.get(TOPIC)).table.checkpoint()
    assert await both.values() == ["7", "8", "9"]


@in_virtual_time
async def test_a_deletion_of_a_topic_takes_what_was_appended_on_the_way_with_it() -> None:
    both = await pair()
    await both.ours.append("0")
    both.ours.store.when("create", COMMIT, meanwhile=lambda: both.theirs.append("1"))
    await both.ours.broker.admin.delete_topic(TOPIC)
    assert both.segments() == set()
    with pytest.raises(LakelogError) as refused:
        await both.theirs.append("2")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- a store that fails ----------------------------------------------------------------------------------------


@in_virtual_time
async def test_store_errors_that_pass_are_not_seen_by_the_sender() -> None:
    both = await pair()
    both.ours.store.when("put", SEGMENT, Fate.NEVER_ARRIVES, times=3)
    both.ours.store.when("create", COMMIT, Fate.NEVER_ARRIVES, times=3)
    assert await both.ours.offsets("ours") == [0]
    assert await both.values() == ["ours"]


@pytest.mark.parametrize("faults", [Faults(outage=True), Faults(refuses=True)], ids=["outage", "refused"])
@pytest.mark.parametrize("appends", [1, 30])
def test_store_errors_that_stay_are_a_clear_retriable_error_and_later_appends_work(
    faults: Faults, appends: int
) -> None:
    @in_virtual_time
    async def meet() -> None:
        both = await pair()
        await both.ours.append("before")
        both.ours.store.faults.become(faults)
        failures = await asyncio.gather(
            *(both.ours.append(f"never {number}") for number in range(appends)), return_exceptions=True
        )
        for failure in failures:
            assert isinstance(failure, LakelogError), failure
            assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert failure.retriable
        assert both.ours.broker.produce_path.in_flight.bytes == 0
        both.ours.store.faults.become(Faults())
        assert await both.ours.offsets("after") == [1]
        assert await both.values() == ["before", "after"]

    meet()


@in_virtual_time
async def test_a_reader_is_told_of_a_store_that_is_away_and_goes_on_when_it_is_back() -> None:
    both = await pair()
    await both.theirs.append("0")
    reader = both.side()
    await reader.broker.admin.describe_topic(TOPIC)
    reader.store.faults.become(Faults(outage=True))
    (reply,) = await reader.broker.fetch([FetchFrom(TOPIC, 0, 0)], max_wait_ms=1_000)
    assert reply.error is not None
    assert reply.error.code is ErrorCode.KAFKA_STORAGE_ERROR
    reader.store.faults.become(Faults())
    (reply,) = await reader.broker.fetch([FetchFrom(TOPIC, 0, 0)], max_wait_ms=1_000)
    assert reply.rows.column("value").to_pylist() == [b"0"]


@in_virtual_time
async def test_a_reader_that_moves_to_a_server_that_is_behind_is_not_out_of_range() -> None:
    both = await pair(settings=ServerSettings(follow_interval_ms=60_000))
    await both.theirs.append("0", "1")
    (reply,) = await both.ours.broker.fetch([FetchFrom(TOPIC, 0, 2)])
    assert reply.error is None, reply.error
    assert reply.high_watermark == 2


@in_virtual_time
async def test_records_that_were_given_up_while_they_waited_leave_their_room_to_others() -> None:
    settings = ServerSettings(in_flight_bytes_max=10, in_flight_wait_ms=1_000)
    both = await pair(settings=settings)
    in_flight = both.ours.broker.produce_path.in_flight
    await in_flight.enter(10)
    waiting = asyncio.ensure_future(in_flight.enter(10))
    await asyncio.sleep(0.1)
    in_flight.leave(10)  # its turn has come, and in the same instant it is given up
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert in_flight.bytes == 0
    assert await both.ours.offsets("0123456789") == [0]


@in_virtual_time
async def test_a_server_that_dies_at_any_of_its_requests_leaves_all_or_nothing() -> None:
    for calls in range(40):
        both = await pair(partitions=1)
        acknowledged: list[str] = []
        both.ours.store.cut_after(calls)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        both.ours.store.on_cut = lambda gone=gone: gone.set_result(None)  # type: ignore[misc]
        appending = asyncio.ensure_future(_append_all(both.ours, [f"{n}" for n in range(30)], acknowledged))
        await asyncio.wait({appending, gone}, return_when=asyncio.FIRST_COMPLETED)
        appending.cancel()
        await asyncio.sleep(10)
        there = await both.values()
        assert there[: len(acknowledged)] == acknowledged
        assert len(there) <= len(acknowledged) + 1, "at most what was in flight"
        assert await both.theirs.offsets("next") == [len(there)]


async def _append_all(side: Side, values: Sequence[str], acknowledged: list[str]) -> None:
    for value in values:
        await side.append(value)
        acknowledged.append(value)
