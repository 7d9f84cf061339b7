"""An append is taken whole or refused whole; what was acknowledged is there, in order, dense, for every broker."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.producers import ProducerBatch
from lakelog.model.batch import RECORD_OVERHEAD_BYTES, ListRecords, from_arrow
from lakelog.produce import Acks, encode_append
from tests.conftest import OpenBroker
from tests.contract.records import (
    append,
    append_each,
    fetch_one,
    high_watermarks,
    outcomes,
    read_all,
    records,
    values_of,
)

HOUR_MS = 3_600_000


# -- where records go --------------------------------------------------------------------------------------------------


async def test_keys_land_where_a_kafka_client_puts_them(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 7)
    # toPositive(murmur2(key)) % 7, by Kafka's own published test vectors.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    expected = [(number & 0x7FFFFFFF) % 7 for number in hashes.values()]
    appended = await append(broker, "orders", records(["x"] * 3, keys=list(hashes)))
    assert appended.partitions.tolist() == expected


async def test_a_named_partition_goes_before_the_key(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 5)
    batch = from_arrow(
        pa.table(
            {
                "value": pa.array([b"a", b"b", b"c"]),
                "key": pa.array([b"21", b"21", b"21"]),
                "partition": pa.array([4, None, 0], type=pa.int64()),
            }
        )
    )
    by_key = (await append(broker, "orders", records(["x"], keys=[b"21"]))).partitions.tolist()[0]
    assert (await append(broker, "orders", batch)).partitions.tolist() == [4, by_key, 0]


async def test_records_without_a_key_stay_together_and_requests_take_turns(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 4)
    chosen = [(await append(broker, "orders", records(["x"] * 5))).partitions.tolist() for _ in range(8)]
    assert all(len(set(partitions)) == 1 for partitions in chosen)
    assert await high_watermarks(broker, "orders") == [10, 10, 10, 10]


async def test_one_request_over_many_partitions_keeps_the_order_in_each(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 3)
    keys = [str(number % 11).encode() for number in range(300)]
    appended = await append(broker, "orders", records([str(n) for n in range(300)], keys=keys))
    for partition in range(3):
        mine = [n for n in range(300) if appended.partitions[n] == partition]
        assert appended.offsets[mine].tolist() == list(range(len(mine)))
        assert await values_of(broker, "orders", partition) == [str(n) for n in mine]


# -- what is stored ----------------------------------------------------------------------------------------------------


async def test_every_kind_of_record_comes_back_as_it_was_sent(open_broker: OpenBroker) -> None:
    broker = open_broker()
    values = [b"", None, bytes(range(256)), "größe".encode(), b"x" * 100_000]
    keys = [b"k", b"", None, b"\x00\xff", b"k" * 1000]
    headers: list[Any] = [
        None,
        [],
        [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}],
        [{"key": "ümlaut", "value": None}, {"key": "", "value": b""}],
        [{"key": "trace", "value": bytes(range(256))}],
    ]
    times = [0, 1, 1_700_000_000_123, 1_700_000_000_000, 999]
    await append(broker, "orders", records(values, keys=keys, headers=headers, timestamps_ms=times))
    for each in (broker, open_broker()):
        rows = await read_all(each, "orders")
        assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]
        assert [row["value"] for row in rows] == values
        assert [row["key"] for row in rows] == keys
        assert [row["headers"] for row in rows] == headers
        assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == times


async def test_columns_of_kindred_types_are_taken(broker: Broker) -> None:
    for column in (
        pa.array(["text"]),
        pa.array(["text"], type=pa.large_string()),
        pa.array([b"text"], type=pa.large_binary()),
        pa.array([b"text"], type=pa.binary(4)),
        pa.array(["text"]).dictionary_encode(),
        pa.chunked_array([["text"]]),
    ):
        await append(broker, "orders", from_arrow(pa.table({"value": column})))
    assert await values_of(broker, "orders") == ["text"] * 6


async def test_a_slice_of_a_larger_batch_is_stored_alone(broker: Broker) -> None:
    headers = [[{"key": f"h{n}", "value": b"x" * n}] for n in range(100)]
    whole = pa.table({"value": [f"v{n}" for n in range(100)], "key": [f"k{n}" for n in range(100)], "headers": headers})
    await append(broker, "orders", from_arrow(whole.slice(40, 3)))
    rows = await read_all(broker, "orders")
    assert [(row["key"], row["value"]) for row in rows] == [(f"k{n}".encode(), f"v{n}".encode()) for n in (40, 41, 42)]
    assert [row["headers"] for row in rows] == headers[40:43]


async def test_lists_are_as_good_as_arrow(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2)
    batch = ListRecords(
        values=[b"a", None],
        keys=[b"k", None],
        headers=[[("h", b"1"), ("n", None)], None],
        timestamps_ms=[5, 6],
        partitions=[1, 1],
        size_bytes=5,
    )
    appended = await broker.append("orders", batch)
    assert appended is not None
    assert appended.partitions.tolist() == [1, 1]
    rows = await read_all(broker, "orders", 1)
    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b"a"), (None, None)]
    assert [row["headers"] for row in rows] == [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None]


@pytest.mark.parametrize("codec", ["none", "uncompressed", "lz4", "zstd", "snappy", "gzip", "producer"])
async def test_records_read_the_same_in_every_codec(open_broker: OpenBroker, codec: str) -> None:
    broker = open_broker()
    await broker.admin.create_topic("orders", 1, {"compression.type": codec})
    await append_each(broker, "orders", [f"value {n}" for n in range(17)])
    await broker.upkeep.settle()
    assert await values_of(open_broker(), "orders") == [f"value {n}" for n in range(17)]


# -- acks --------------------------------------------------------------------------------------------------------------


async def test_with_acks_all_the_record_is_in_the_table_when_the_answer_comes(open_broker: OpenBroker) -> None:
    broker = open_broker()
    for number in range(3):
        assert (await append(broker, "orders", records([str(number)]))).offsets.tolist() == [number]
        assert await values_of(open_broker(), "orders") == [str(n) for n in range(number + 1)]


async def test_with_acks_one_the_offset_comes_and_the_record_follows(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic("orders", 1)
    assert (await append(broker, "orders", records(["a", "b"]), acks=Acks.LEADER)).offsets.tolist() == [0, 1]
    assert (await fetch_one(broker, "orders", max_wait_ms=10_000)).rows.num_rows == 2


async def test_with_acks_none_no_answer_comes_and_the_record_does(broker: Broker) -> None:
    assert await broker.append("orders", records(["a"]), acks=Acks.NONE) is None
    reply = await fetch_one(broker, "orders", max_wait_ms=10_000)
    assert reply.rows["value"].to_pylist() == [b"a"]


async def test_what_nobody_waits_for_is_committed_before_a_broker_closes(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic("orders", 1)
    for number in range(10):
        await broker.append("orders", records([str(number)]), acks=Acks.NONE)
    await broker.close()
    assert await values_of(open_broker(), "orders") == [str(n) for n in range(10)]
    with pytest.raises(LakelogError, match="shutting down") as caught:
        await broker.append("orders", records(["late"]))
    assert caught.value.retriable


async def test_a_sender_that_goes_away_leaves_no_hole_and_no_lost_room(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(in_flight_bytes_max=1000))
    await append(broker, "orders", records(["first"]))
    given_up = [asyncio.create_task(append(broker, "orders", records(["x" * 400]))) for _ in range(6)]
    await asyncio.sleep(0)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    await append(broker, "orders", records(["y" * 1000]))
    rows = await read_all(broker, "orders")
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert rows[-1]["value"] == b"y" * 1000
    assert broker.produce_path.in_flight.bytes == 0


# -- timestamps --------------------------------------------------------------------------------------------------------


async def test_a_record_without_a_time_gets_the_servers(broker: Broker) -> None:
    before_ms = time.time_ns() // 1_000_000
    appended = await append(broker, "orders", records(["a", "b"], timestamps_ms=[None, 5]))
    after_ms = time.time_ns() // 1_000_000
    first, second = [round(row["timestamp"].timestamp() * 1000) for row in await read_all(broker, "orders")]
    assert before_ms <= first <= after_ms
    assert second == 5
    assert appended.timestamp_ms is None


async def test_with_log_append_time_the_servers_clock_goes_before_the_producers(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})
    before_ms = time.time_ns() // 1_000_000
    far_ahead_ms = before_ms + 100 * HOUR_MS  # no bounds apply to what is not used
    appended = await append(broker, "orders", records(["a", "b"], timestamps_ms=[1, far_ahead_ms]))
    assert appended.timestamp_ms is not None
    assert before_ms <= appended.timestamp_ms <= time.time_ns() // 1_000_000
    times = [round(row["timestamp"].timestamp() * 1000) for row in await read_all(broker, "orders")]
    assert times == [appended.timestamp_ms] * 2


@pytest.mark.parametrize(
    ("config", "ahead_ms", "taken"),
    [
        ({}, 2 * HOUR_MS, False),  # an hour ahead is the default
        ({}, HOUR_MS // 2, True),
        ({}, -20 * 365 * 24 * HOUR_MS, True),
        ({"message.timestamp.before.max.ms": str(HOUR_MS)}, -2 * HOUR_MS, False),
        ({"message.timestamp.before.max.ms": str(HOUR_MS)}, -HOUR_MS // 2, True),
        ({"message.timestamp.after.max.ms": str(9 * HOUR_MS)}, 8 * HOUR_MS, True),
        ({"message.timestamp.after.max.ms": str(2**63 - 1)}, 9000 * 365 * 24 * HOUR_MS, False),  # beyond the year 9999
    ],
)
async def test_times_are_taken_within_their_bounds(
    broker: Broker, config: dict[str, str], ahead_ms: int, taken: bool
) -> None:
    await broker.admin.create_topic("orders", 1, config)
    now_ms = time.time_ns() // 1_000_000
    batch = records(["a", "b"], timestamps_ms=[now_ms, now_ms + ahead_ms])
    if taken:
        await append(broker, "orders", batch)
    else:
        with pytest.raises(LakelogError, match=r"record 1 .* timestamp") as caught:
            await append(broker, "orders", batch)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert await high_watermarks(broker, "orders") == [2 if taken else 0]


async def test_a_time_before_the_epoch_is_refused(broker: Broker) -> None:
    with pytest.raises(LakelogError) as caught:
        await append(broker, "orders", records(["a"], timestamps_ms=[-1]))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


# -- many at once ------------------------------------------------------------------------------------------------------


async def test_many_requests_at_once_share_commits_and_keep_their_order(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2)
    version = (await broker.admin.describe_topic("orders")).version
    appended = await asyncio.gather(
        *(append(broker, "orders", records([f"{n}a", f"{n}b"], partition=n % 2)) for n in range(100))
    )
    for n, each in enumerate(appended):
        assert each.offsets.tolist() == [n // 2 * 2, n // 2 * 2 + 1]
    for partition in (0, 1):
        expected = [f"{n}{half}" for n in range(partition, 100, 2) for half in "ab"]
        assert await values_of(broker, "orders", partition) == expected
    assert (await broker.admin.describe_topic("orders")).version - version < 20


async def test_two_brokers_on_one_partition_keep_offsets_dense_and_unique(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker(), open_broker()]
    await brokers[0].admin.create_topic("orders", 2)

    async def produce(name: int) -> list[tuple[int, int, str]]:
        got = []
        for number in range(12):
            value = f"{name}-{number}"
            appended = await append(brokers[name], "orders", records([value] * 3, keys=[b"a", b"b", b"c"]))
            got += [(p, o, value) for p, o in zip(appended.partitions.tolist(), appended.offsets.tolist(), strict=True)]
        return got

    acknowledged = [each for got in await asyncio.gather(*map(produce, range(3))) for each in got]
    for reader in (*brokers, open_broker()):
        stored = []
        for partition in (0, 1):
            rows = await read_all(reader, "orders", partition)
            assert [row["offset"] for row in rows] == list(range(len(rows)))
            stored += [(partition, row["offset"], row["value"].decode()) for row in rows]
        assert sorted(stored) == sorted(acknowledged)
    for name in range(3):  # what one producer sent first has the lower offset
        for partition in (0, 1):
            mine = [value for value in await values_of(brokers[0], "orders", partition) if value.startswith(f"{name}-")]
            assert mine == sorted(mine, key=lambda value: int(value.split("-")[1]))


async def test_an_expected_offset_that_holds_appends_and_one_that_does_not_refuses_all(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 3)
    await append(broker, "orders", records(["a", "b"], partition=0), expected_offsets={0: 0})
    appended = await append(broker, "orders", records(["c"], partition=0), expected_offsets={0: 2, 1: 0})
    assert appended.offsets.tolist() == [2]
    batch = from_arrow(pa.table({"value": ["x", "y"], "partition": [0, 1]}))
    for wrong in ({0: 2, 1: 0}, {0: 3, 1: 1}, {0: 3, 1: 0, 2: 7}, {0: 4}):
        with pytest.raises(LakelogError, match="goes on at offset") as caught:
            await append(broker, "orders", batch, expected_offsets=wrong)
        assert caught.value.code is ErrorCode.EXPECTED_OFFSET_MISMATCH
    with pytest.raises(LakelogError) as caught:
        await append(broker, "orders", batch, expected_offsets={0: 3, 3: 0})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await high_watermarks(broker, "orders") == [3, 0, 0]


async def test_of_many_that_expect_the_same_offset_one_appends(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker()]
    await append(brokers[0], "orders", records(["first"]))
    attempts = (append(brokers[n % 2], "orders", records([f"n{n}"]), expected_offsets={0: 1}) for n in range(10))
    done, refused = await outcomes(*attempts)
    assert len(done) == 1
    assert {error.code for error in refused} == {ErrorCode.EXPECTED_OFFSET_MISMATCH}
    assert len(await values_of(brokers[0], "orders")) == 2


@pytest.mark.parametrize("acks", [Acks.ALL, Acks.LEADER])
async def test_an_expectation_is_held_against_what_the_table_says_now(open_broker: OpenBroker, acks: Acks) -> None:
    ours, theirs = open_broker(), open_broker()
    await append(theirs, "orders", records(["a"]))
    await append_each(ours, "orders", ["b", "c"])
    # Their broker has not seen those yet; nobody is refused for that.
    appended = await append(theirs, "orders", records(["d"]), expected_offsets={0: 3}, acks=acks)
    assert appended.offsets.tolist() == [3]
    await append(theirs, "orders", records(["e"]))
    assert await values_of(ours, "orders") == ["a", "b", "c", "d", "e"]


# -- large requests ----------------------------------------------------------------------------------------------------


async def test_a_large_request_is_several_files_of_one_commit_and_known_again(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(encode_threads=3))
    await broker.admin.create_topic("orders", 1)
    await append(broker, "orders", records(["first"]))
    large = records([f"{n:06d}" * 1000 for n in range(1500)])  # 9 MB
    batch = ProducerBatch(7, epoch=0, sequence=0)
    appended = await append(broker, "orders", large, producer=batch)
    assert appended.offsets.tolist() == list(range(1, 1501))

    state = (await broker.topics.get("orders")).state
    assert state.version == 2
    spans = [(each.base_offset, each.end_offset) for each in state.partitions[0].segments]
    assert spans == [(0, 1), (1, 501), (501, 1001), (1001, 1501)]

    again = open_broker()
    assert (await append(again, "orders", large, producer=batch)).duplicate
    assert await values_of(again, "orders") == ["first", *(f"{n:06d}" * 1000 for n in range(1500))]
    await append(again, "orders", records(["last"]))
    assert await high_watermarks(again, "orders") == [1502]


# -- backpressure ------------------------------------------------------------------------------------------------------


async def test_appends_beyond_the_room_wait_for_the_commits_before_them(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(in_flight_bytes_max=1000))
    await broker.admin.create_topic("orders", 1)
    await asyncio.gather(*(append(broker, "orders", records([str(n) * 900])) for n in range(8)))
    assert len(set(await values_of(broker, "orders"))) == 8
    assert broker.produce_path.in_flight.bytes == 0


async def test_an_append_that_finds_no_room_in_time_fails_and_can_be_sent_again(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(in_flight_bytes_max=1000, in_flight_wait_ms=0))
    await broker.admin.create_topic("orders", 1)
    room = broker.produce_path.in_flight
    await room.enter(900)  # as an append does that is on its way
    done, refused = await outcomes(*(append(broker, "orders", records(["x" * 900])) for _ in range(5)))
    room.leave(900)
    assert (len(done), len(refused)) == (0, 5)
    assert {error.code for error in refused} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert all(error.retriable and "in_flight_bytes_max=1000" in error.message for error in refused)
    await append(broker, "orders", records(["again" * 100]))
    assert await high_watermarks(broker, "orders") == [1]


@pytest.mark.parametrize("headers", [0, 1])
async def test_records_without_a_byte_of_payload_take_room_and_end_a_group(
    open_broker: OpenBroker, headers: int
) -> None:
    broker = open_broker(ServerSettings(group_bytes_max=100 * RECORD_OVERHEAD_BYTES))
    created = await broker.admin.create_topic("orders", 1)
    arrow = records([None] * 60, headers=[[{"key": "", "value": b""}] * headers] * 60)
    lists = ListRecords([None] * 60, 0, headers=[[("", b"")] * headers] * 60)
    answers = [await broker.produce_path.submit("orders", each) for each in (arrow, lists, arrow, lists)]
    assert broker.produce_path.in_flight.bytes == 4 * 60 * (1 + headers) * RECORD_OVERHEAD_BYTES
    await asyncio.gather(*(answer for answer in answers if answer is not None))
    assert broker.produce_path.in_flight.bytes == 0
    assert (await broker.admin.describe_topic("orders")).version == created.version + 4, "no two share a commit"


async def test_payload_alone_decides_which_request_is_too_large(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(request_bytes_max=100))
    await append(broker, "orders", records(["x"] * 100))
    with pytest.raises(LakelogError) as refused:
        await append(broker, "orders", records(["x"] * 101))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


async def test_a_request_larger_than_all_the_room_goes_alone(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(in_flight_bytes_max=10))
    await asyncio.gather(*(append(broker, "orders", records(["x" * 5000])) for _ in range(3)))
    assert await high_watermarks(broker, "orders") == [3]


async def test_an_append_that_waits_for_room_is_answered_when_its_broker_closes(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(in_flight_bytes_max=1000))
    await broker.admin.create_topic("orders", 1)
    waiting = [asyncio.create_task(append(broker, "orders", records(["x" * 900]))) for _ in range(4)]
    await asyncio.sleep(0)
    await broker.close()
    async with asyncio.timeout(10):
        done, refused = await outcomes(*waiting)
    assert {error.code for error in refused} <= {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert await high_watermarks(open_broker(), "orders") == [len(done)]


@pytest.mark.parametrize(("codec", "on_the_loop"), [("gzip", False), ("zstd", True), ("producer", True)])
async def test_small_groups_are_encoded_on_the_loop_unless_their_codec_is_slow(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, codec: str, on_the_loop: bool
) -> None:
    encoded_by: list[int] = []

    def watched(*arguments: Any) -> Any:
        encoded_by.append(threading.get_ident())
        return encode_append(*arguments)

    monkeypatch.setattr("lakelog.produce.encode_append", watched)
    await broker.admin.create_topic("orders", 1, {"compression.type": codec})
    await append(broker, "orders", records(["a"]))
    assert [each == threading.get_ident() for each in encoded_by] == [on_the_loop]
