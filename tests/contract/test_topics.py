"""A topic is one table that any broker can create, change and delete: two at once never make two of it, or half."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.admin import HIGH_WATERMARK
from lakelog.broker import Broker
from lakelog.config import ServerSettings, topic_rows
from lakelog.delta.store import StoreUnavailable
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Position
from tests.conftest import OpenBroker
from tests.contract.records import (
    PATIENCE_S,
    append,
    append_each,
    fetch_one,
    high_watermarks,
    outcomes,
    read_all,
    records,
    values_of,
)


async def test_a_new_topic_has_the_partitions_and_the_config_it_was_given(broker: Broker) -> None:
    made = await broker.admin.create_topic("orders", 3, {"retention.ms": "1000", "cleanup.policy": "compact, delete"})
    assert made == await broker.admin.describe_topic("orders")
    assert [each.partition for each in made.partitions] == [0, 1, 2]
    assert {(each.log_start_offset, each.high_watermark, each.segments) for each in made.partitions} == {(0, 0, 0)}
    assert made.config.overrides == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    assert (made.name, made.internal) == ("orders", False)


async def test_a_topic_gets_as_many_partitions_as_the_server_says_when_nobody_else_does(
    open_broker: OpenBroker,
) -> None:
    broker = open_broker(ServerSettings(num_partitions=4))
    assert len((await broker.admin.create_topic("orders")).partitions) == 4


async def test_every_config_is_described_with_its_default_and_what_was_set(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 1, {"segment.bytes": "4096", "retention.bytes": "-1"})
    entries = {entry.name: entry for entry in (await broker.admin.describe_topic("orders")).config.describe()}
    assert entries.keys() == {row.name for row in topic_rows()}
    assert (entries["segment.bytes"].value, entries["segment.bytes"].default) == ("4096", str(128 * 1024 * 1024))
    # As in Kafka, a config that was set to its default is set.
    assert {name for name, entry in entries.items() if not entry.is_default} == {"segment.bytes", "retention.bytes"}
    assert all(entry.value == entry.default for entry in entries.values() if entry.is_default)


async def test_the_commit_budget_is_smaller_where_files_are_paid_requests(broker: Broker) -> None:
    config = (await broker.admin.create_topic("orders")).config
    assert config.flush_files_per_second == (10 if broker.store.on_object_store else 50)


async def test_topics_are_listed_by_name(broker: Broker) -> None:
    assert await broker.admin.list_topics() == []
    for name in ("zebra", "Apple", "a.b-c_d"):
        await broker.admin.create_topic(name)
    assert await broker.admin.list_topics() == ["Apple", "a.b-c_d", "zebra"]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__consumer_groups", "__maintenance", "__mine"])
async def test_names_of_the_platforms_own_make_no_topic(broker: Broker, name: str) -> None:
    for attempt in (broker.admin.create_topic(name), broker.append(name, records(["x"]))):
        with pytest.raises(LakelogError, match="platform's own") as caught:
            await attempt
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await broker.store.folders() == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "a b", "ümlaut", "x" * 250, "new\nline"])
async def test_names_that_kafka_refuses_make_no_topic(broker: Broker, name: str) -> None:
    for attempt in (broker.admin.create_topic(name), broker.append(name, records(["x"]))):
        with pytest.raises(LakelogError) as caught:
            await attempt
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await broker.store.folders() == []


@pytest.mark.parametrize("name", ["...", "-", "_", "x" * 249, "UPPER.lower_0-9"])
async def test_every_name_that_kafka_takes_can_hold_records(open_broker: OpenBroker, name: str) -> None:
    await append(open_broker(), name, records(["here"]))
    other = open_broker()
    assert await other.admin.list_topics(internal=True) == [name]
    assert await values_of(other, name) == ["here"]


async def test_a_name_that_is_the_same_in_metrics_is_refused(broker: Broker) -> None:
    await broker.admin.create_topic("eu.orders")
    with pytest.raises(LakelogError, match=r"collides with 'eu.orders'") as caught:
        await broker.admin.create_topic("eu_orders")
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await broker.admin.list_topics() == ["eu.orders"]


async def test_only_topics_whose_names_collide_are_looked_at(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("other", "eu.orders"):
        await broker.store.put(f"{name}/_delta_log/{0:020d}.json", b"{}")
    get = broker.store.get

    async def broken(path: str) -> bytes | None:
        if path.startswith(("other/", "eu.orders/")):
            raise StoreUnavailable(path)
        return await get(path)

    monkeypatch.setattr(broker.store, "get", broken)
    assert (await broker.admin.create_topic("us_orders")).name == "us_orders"
    # Nobody can say whether this one is in the way.
    with pytest.raises(LakelogError, match=r"eu\.orders") as caught:
        await broker.admin.create_topic("eu_orders")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_name_is_free_again_when_the_topic_that_collides_is_deleted(broker: Broker) -> None:
    await broker.admin.create_topic("eu.orders")
    await broker.admin.delete_topic("eu.orders")
    await broker.admin.create_topic("eu_orders")
    assert await broker.admin.list_topics() == ["eu_orders"]


@pytest.mark.parametrize("count", [0, -1, 1_001])
async def test_a_number_of_partitions_out_of_bounds_makes_no_topic(broker: Broker, count: int) -> None:
    with pytest.raises(LakelogError, match=str(count)) as caught:
        await broker.admin.create_topic("orders", count)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    assert await broker.store.folders() == []


BAD_CONFIGS = [
    ({"retention.millis": "1"}, "there is no config 'retention.millis'; did you mean retention.ms"),
    ({"retention.ms": "soon"}, "retention.ms is 'soon', but it takes a whole number, -1 or more"),
    ({"retention.ms": "-2"}, "retention.ms is '-2'"),
    ({"segment.bytes": "12"}, "segment.bytes is '12', but it takes a whole number from 1024"),
    ({"cleanup.policy": "shred"}, "one or more of delete, compact"),
    ({"compression.type": "brotli"}, "one of producer, none, lz4"),
    ({"min.cleanable.dirty.ratio": "1.5"}, "a number from 0 to 1"),
    ({"unclean.leader.election.enable": "maybe"}, "true or false"),
    ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "is more than"),
]


@pytest.mark.parametrize(("config", "reason"), BAD_CONFIGS)
async def test_a_bad_config_is_refused_with_the_reason_and_changes_nothing(
    broker: Broker, config: dict[str, str], reason: str
) -> None:
    with pytest.raises(LakelogError, match=reason) as caught:
        await broker.admin.create_topic("orders", 1, config)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert await broker.admin.list_topics() == []

    made = await broker.admin.create_topic("orders", 1, {"retention.ms": "7"})
    with pytest.raises(LakelogError, match=reason) as caught:
        await broker.admin.alter_config("orders", {"segment.bytes": "2048", **config})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert await broker.admin.describe_topic("orders") == made


async def test_configs_are_set_and_unset_in_one_step_and_the_rest_stays(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2, {"retention.ms": "1000", "segment.ms": "50"})
    altered = await broker.admin.alter_config("orders", {"max.message.bytes": "9"}, unset=["retention.ms"])
    assert altered.config.overrides == {"segment.ms": "50", "max.message.bytes": "9"}
    assert altered.config.retention_ms == 604_800_000
    assert len(altered.partitions) == 2


async def test_a_config_cannot_be_set_and_unset_at_once(broker: Broker) -> None:
    made = await broker.admin.create_topic("orders")
    with pytest.raises(LakelogError, match=r"retention.ms") as caught:
        await broker.admin.alter_config("orders", {"retention.ms": "1"}, unset=["retention.ms"])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(LakelogError, match="no config 'speed'"):
        await broker.admin.alter_config("orders", unset=["speed"])
    assert await broker.admin.describe_topic("orders") == made


async def test_a_change_made_by_one_broker_binds_the_other(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await ours.admin.create_topic("orders", 1)
    await append(theirs, "orders", records(["long enough"]))
    await ours.admin.alter_config("orders", {"max.message.bytes": "4"})
    with pytest.raises(LakelogError) as caught:
        await append(theirs, "orders", records(["too long"]))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (await theirs.admin.describe_topic("orders")).config.overrides == {"max.message.bytes": "4"}


async def test_a_limit_that_one_broker_has_lifted_does_not_refuse_at_the_other(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await ours.admin.create_topic("orders", 1, {"max.message.bytes": "4"})
    await append(theirs, "orders", records(["abc"]))
    await ours.admin.alter_config("orders", unset=["max.message.bytes"])
    await append(theirs, "orders", records(["long enough"]))
    assert await values_of(ours, "orders") == ["abc", "long enough"]


async def test_of_changes_at_the_same_time_none_is_lost(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker()]
    await brokers[0].admin.create_topic("orders", 1)
    configs = {"retention.ms": "1", "retention.bytes": "2", "segment.ms": "3", "segment.bytes": "4096"}
    await asyncio.gather(
        brokers[0].admin.add_partitions("orders", 3),
        *(
            brokers[number % 2].admin.alter_config("orders", {name: value})
            for number, (name, value) in enumerate(configs.items())
        ),
    )
    for broker in brokers:
        description = await broker.admin.describe_topic("orders")
        assert description.config.overrides == configs
        assert len(description.partitions) == 3


async def test_partitions_are_added_and_what_was_written_stays_where_it_is(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2, {"retention.ms": "5"})
    await append(broker, "orders", records(["a", "b"], partition=1))
    grown = await broker.admin.add_partitions("orders", 5)
    assert [each.high_watermark for each in grown.partitions] == [0, 2, 0, 0, 0]
    assert grown.config.overrides == {"retention.ms": "5"}
    await append(broker, "orders", records(["c"], partition=4))
    assert await values_of(broker, "orders", 4) == ["c"]


@pytest.mark.parametrize("total", [3, 2, 1, 0, 1_001])
async def test_partitions_never_become_fewer(broker: Broker, total: int) -> None:
    made = await broker.admin.create_topic("orders", 3)
    with pytest.raises(LakelogError) as caught:
        await broker.admin.add_partitions("orders", total)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    assert await broker.admin.describe_topic("orders") == made


async def test_partitions_added_by_one_broker_are_written_and_read_by_the_other(open_broker: OpenBroker) -> None:
    ours, writer, reader = open_broker(), open_broker(), open_broker()
    await ours.admin.create_topic("orders", 1)
    await append(writer, "orders", records(["old"]))
    assert await values_of(reader, "orders") == ["old"]
    await ours.admin.add_partitions("orders", 2)
    await append(writer, "orders", records(["new"], partition=1))
    assert (await fetch_one(reader, "orders", 1)).rows["value"].to_pylist() == [b"new"]


@pytest.mark.parametrize("brokers", [1, 2, 4])
async def test_a_topic_created_many_times_at_once_is_one_topic_and_clear_errors(
    open_broker: OpenBroker, brokers: int
) -> None:
    several = [open_broker() for _ in range(brokers)]
    counts = range(1, 9)
    made, refused = await outcomes(*(several[count % brokers].admin.create_topic("orders", count) for count in counts))
    assert len(made) == 1
    assert {error.code for error in refused} == {ErrorCode.TOPIC_ALREADY_EXISTS}
    assert all("'orders'" in error.message for error in refused)
    for broker in several:
        assert await broker.admin.describe_topic("orders") == made[0]


async def test_a_topic_that_exists_is_not_created_again(open_broker: OpenBroker) -> None:
    made = await open_broker().admin.create_topic("orders", 2)
    other = open_broker()
    with pytest.raises(LakelogError, match="orders") as caught:
        await other.admin.create_topic("orders", 5)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert await other.admin.describe_topic("orders") == made


async def test_the_first_record_creates_its_topic_also_when_many_come_at_once(open_broker: OpenBroker) -> None:
    settings = ServerSettings(num_partitions=2)
    brokers = [open_broker(settings), open_broker(settings)]
    await asyncio.gather(*(append(brokers[n % 2], "fresh", records([str(n)], partition=1)) for n in range(10)))
    assert sorted(await values_of(brokers[0], "fresh", 1), key=int) == [str(n) for n in range(10)]
    assert await high_watermarks(brokers[1], "fresh") == [0, 10]


async def test_a_topic_is_not_created_by_a_record_where_the_server_forbids_it(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(auto_create_topics_enable=False))
    with pytest.raises(LakelogError, match="'fresh'") as caught:
        await append(broker, "fresh", records(["x"]))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await broker.store.folders() == []


async def test_a_topic_that_is_not_there_cannot_be_described_changed_read_or_deleted(broker: Broker) -> None:
    await broker.admin.create_topic("other")
    for attempt in (
        broker.admin.describe_topic("orders"),
        broker.admin.alter_config("orders", {"retention.ms": "1"}),
        broker.admin.add_partitions("orders", 9),
        broker.admin.delete_records("orders", {0: 0}),
        broker.admin.delete_topic("orders"),
        broker.offset_at("orders", 0, Position.LATEST),
        fetch_one(broker, "orders"),
    ):
        with pytest.raises(LakelogError, match="'orders'") as caught:
            await attempt
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await broker.store.folders() == ["other"]


async def test_records_below_an_offset_are_no_longer_served(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic("orders", 2)
    await append(broker, "orders", records(["a", "b", "c"], partition=0))
    await append_each(broker, "orders", ["d", "e"])
    await append(broker, "orders", records(["kept"], partition=1))
    assert await broker.admin.delete_records("orders", {0: 4}) == {0: 4}

    for each in (broker, open_broker()):
        description = await each.admin.describe_topic("orders")
        assert [(p.log_start_offset, p.high_watermark) for p in description.partitions] == [(4, 5), (0, 1)]
        assert [(row["offset"], row["value"]) for row in await read_all(each, "orders")] == [(4, b"e")]
        assert (await each.offset_at("orders", 0, Position.EARLIEST)).offset == 4
        with pytest.raises(LakelogError) as caught:
            await fetch_one(each, "orders", 0, 3)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await values_of(each, "orders", 1) == ["kept"]


async def test_records_in_the_middle_of_a_file_can_be_deleted(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["a", "b", "c", "d"]))
    assert await broker.admin.delete_records("orders", {0: 2}) == {0: 2}
    assert await values_of(open_broker(), "orders") == ["c", "d"]
    # Further back is no move at all, as in Kafka.
    assert await broker.admin.delete_records("orders", {0: 1}) == {0: 2}


async def test_deleting_all_records_leaves_an_empty_partition_that_goes_on_at_its_offset(
    open_broker: OpenBroker,
) -> None:
    broker = open_broker()
    await append_each(broker, "orders", ["a", "b", "c"])
    assert await broker.admin.delete_records("orders", {0: HIGH_WATERMARK}) == {0: 3}
    assert await read_all(broker, "orders") == []
    for number, each in enumerate((broker, open_broker())):
        assert (await append(each, "orders", records(["next"]))).offsets.tolist() == [3 + number]


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ({0: 4}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({0: -2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({0: 1, 1: 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({-1: 0}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_deleting_records_that_are_not_there_is_refused_whole(
    broker: Broker, before: dict[int, int], code: ErrorCode
) -> None:
    await append(broker, "orders", records(["a", "b", "c"]))
    with pytest.raises(LakelogError) as caught:
        await broker.admin.delete_records("orders", before)
    assert caught.value.code is code
    assert await values_of(broker, "orders") == ["a", "b", "c"]


async def test_a_reader_learns_that_another_broker_has_deleted_records(open_broker: OpenBroker) -> None:
    ours, reader = open_broker(), open_broker()
    await append_each(ours, "orders", ["a", "b", "c"])
    assert (await fetch_one(reader, "orders")).rows.num_rows == 3
    await ours.admin.delete_records("orders", {0: 2})

    async def fetch_until_refused() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await fetch_one(reader, "orders")
                await asyncio.sleep(0)  # a fetch from memory waits for nothing, and would let nobody else run

    with pytest.raises(LakelogError, match="2 to 3") as caught:
        await fetch_until_refused()
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
