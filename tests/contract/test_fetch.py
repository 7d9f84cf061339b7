"""A fetch gives exactly the records that were asked for and are committed, within its limits, from memory or files."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.delta import drafts
from lakelog.delta.parquet import SegmentFile
from lakelog.delta.state import CLEANER_APP
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Fetched, FetchFrom, FetchPath, OffsetAt, Position, behind, joined
from lakelog.model.batch import RECORD_OVERHEAD_BYTES
from lakelog.model.segment import segment_path
from lakelog.observer import Observer
from tests.conftest import OpenBroker
from tests.contract.records import COLD, PATIENCE_S, append, append_each, fetch_one, read_all, records, values_of

VALUE_BYTES = 84
RECORD_BYTES = VALUE_BYTES + RECORD_OVERHEAD_BYTES
LONG_MS = 1_000 * PATIENCE_S * 10  # a wait that would outlast the test's patience


@pytest.fixture(params=["hot", "cold"])
async def reader(request: pytest.FixtureRequest, open_broker: OpenBroker) -> Broker:
    """Holds `orders`: ten records of a hundred bytes in partition 0, in three files, and five more in partition 1."""
    writer = open_broker()
    await writer.admin.create_topic("orders", 3)
    for partition, count in ((0, 4), (0, 5), (0, 1), (1, 5)):
        await append(writer, "orders", records(["x" * VALUE_BYTES] * count, partition=partition))
    return writer if request.param == "hot" else open_broker(COLD)


def offsets(reply: Fetched) -> list[int]:
    found: list[int] = reply.rows["offset"].to_pylist()
    return found


@pytest.mark.parametrize("offset", range(11))
async def test_a_fetch_begins_at_any_offset_and_ends_at_the_high_watermark(reader: Broker, offset: int) -> None:
    reply = await fetch_one(reader, "orders", 0, offset)
    assert offsets(reply) == list(range(offset, 10))
    assert (reply.next_offset, reply.high_watermark, reply.log_start_offset) == (10, 10, 0)
    assert reply.size_bytes == (10 - offset) * RECORD_BYTES


@pytest.mark.parametrize(
    ("max_bytes", "count"), [(0, 1), (1, 1), (RECORD_BYTES, 1), (2 * RECORD_BYTES - 1, 1), (RECORD_BYTES * 5, 5)]
)
async def test_a_partition_gives_no_more_than_its_bytes_but_one_record_at_least(
    reader: Broker, max_bytes: int, count: int
) -> None:
    for offset in (0, 3):
        (reply,) = await reader.fetch([FetchFrom("orders", 0, offset, max_bytes=max_bytes)])
        assert offsets(reply) == list(range(offset, offset + count))
        assert reply.next_offset == offset + count
        (reply,) = await reader.fetch([FetchFrom("orders", 0, offset)], max_bytes=max_bytes)
        assert offsets(reply) == list(range(offset, offset + count))


@pytest.mark.parametrize(
    ("max_bytes", "counts"),
    [
        (0, [1, 0]),
        (1, [1, 0]),
        (3 * RECORD_BYTES, [3, 0]),
        (int(10.5 * RECORD_BYTES), [10, 0]),
        (12 * RECORD_BYTES, [10, 2]),
    ],
)
async def test_all_partitions_together_give_no_more_than_the_bytes_of_the_fetch(
    reader: Broker, max_bytes: int, counts: list[int]
) -> None:
    replies = await reader.fetch([FetchFrom("orders", p, 0) for p in (0, 1)], max_bytes=max_bytes)
    assert [len(offsets(reply)) for reply in replies] == counts
    assert [reply.next_offset for reply in replies] == counts
    assert all(reply.error is None for reply in replies)


async def test_every_partition_has_a_limit_of_its_own(reader: Broker) -> None:
    requests = [FetchFrom("orders", 1, 1, max_bytes=2 * RECORD_BYTES), FetchFrom("orders", 0, 5, max_bytes=10)]
    replies = await reader.fetch([*requests, FetchFrom("orders", 2, 0)])
    assert [offsets(reply) for reply in replies] == [[1, 2], [5], []]
    assert [reply.partition for reply in replies] == [1, 0, 2]


async def test_a_server_limits_what_a_fetch_does_not(open_broker: OpenBroker) -> None:
    await append(open_broker(), "orders", records(["x" * VALUE_BYTES] * 20))
    by_partition = open_broker(ServerSettings(fetch_partition_max_bytes=3 * RECORD_BYTES))
    assert (await fetch_one(by_partition, "orders")).rows.num_rows == 3
    in_all = open_broker(ServerSettings(fetch_max_bytes=4 * RECORD_BYTES))
    assert (await fetch_one(in_all, "orders")).rows.num_rows == 4


async def test_a_record_larger_than_every_limit_comes_alone(open_broker: OpenBroker) -> None:
    writer = open_broker()
    await append(writer, "orders", records(["small", "L" * 200_000, "small"]))
    for each in (writer, open_broker(COLD)):
        replies = [await fetch_one(each, "orders", 0, offset, max_bytes=100) for offset in range(3)]
        assert [offsets(reply) for reply in replies] == [[0], [1], [2]]


@pytest.mark.parametrize("columns", [["value"], ["key", "offset"], ["timestamp"], ["headers", "value", "offset"]])
async def test_only_the_columns_that_were_asked_for_come(open_broker: OpenBroker, columns: list[str]) -> None:
    writer = open_broker()
    headers = [[{"key": "h", "value": b"1"}], None]
    await append(writer, "orders", records(["a", "b"], keys=[b"k", None], headers=headers, timestamps_ms=[1, 2]))
    whole = (await fetch_one(writer, "orders")).rows
    for each in (writer, open_broker(COLD)):
        reply = await fetch_one(each, "orders", 0, 0, columns=columns)
        assert reply.rows.column_names == columns
        assert reply.rows.equals(whole.select(columns))
        assert reply.next_offset == 2
        empty = await fetch_one(each, "orders", 0, 2, columns=columns)
        assert (empty.rows.schema, empty.rows.num_rows) == (reply.rows.schema, 0)


async def test_a_column_that_records_do_not_have_is_refused(reader: Broker) -> None:
    with pytest.raises(LakelogError, match="no column 'price'") as caught:
        await reader.fetch([FetchFrom("orders", 0, 0)], columns=["offset", "price"])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("offset", [-1, 11, 2**62])
async def test_an_offset_that_is_not_there_is_out_of_range(reader: Broker, offset: int) -> None:
    with pytest.raises(LakelogError, match="it serves 0 to 10") as caught:
        await fetch_one(reader, "orders", 0, offset, max_wait_ms=LONG_MS)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_what_is_wrong_with_one_partition_is_said_of_that_one_alone(reader: Broker) -> None:
    requests = [("orders", 0, 8), ("orders", 7, 0), ("nowhere", 0, 0), ("no/name", 0, 0), ("orders", 1, 99)]
    async with asyncio.timeout(PATIENCE_S):
        replies = await reader.fetch([FetchFrom(*each) for each in requests], min_bytes=10**6, max_wait_ms=LONG_MS)
    assert offsets(replies[0]) == [8, 9]
    assert [reply.error.code if reply.error is not None else None for reply in replies] == [
        None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ]


async def test_a_fetch_of_nothing_gives_nothing(broker: Broker) -> None:
    async with asyncio.timeout(PATIENCE_S):
        assert await broker.fetch([], max_wait_ms=10) == []


async def test_several_topics_are_read_in_one_fetch(broker: Broker) -> None:
    for name in ("a", "b", "c"):
        await append(broker, name, records([name]))
    replies = await broker.fetch([FetchFrom(name, 0, 0) for name in ("c", "a", "b", "a")])
    assert [reply.rows["value"].to_pylist() for reply in replies] == [[b"c"], [b"a"], [b"b"], [b"a"]]


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_fetch_without_a_wait_comes_back_with_nothing_at_once(reader: Broker) -> None:
    reply = await fetch_one(reader, "orders", 0, 10, min_bytes=10**6)
    assert (offsets(reply), reply.next_offset) == ([], 10)


async def test_a_fetch_waits_no_longer_than_it_was_told(reader: Broker) -> None:
    started = time.monotonic()
    reply = await fetch_one(reader, "orders", 0, 8, min_bytes=10**6, max_wait_ms=120)
    assert time.monotonic() - started >= 0.12
    assert offsets(reply) == [8, 9]


async def test_a_waiting_fetch_is_woken_by_the_commit(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2)
    waiting = asyncio.create_task(fetch_one(broker, "orders", 1, 0, max_wait_ms=LONG_MS))
    await append(broker, "orders", records(["elsewhere"], partition=0))
    await append(broker, "orders", records(["here"], partition=1))
    assert (await waiting).rows["value"].to_pylist() == [b"here"]


async def test_a_fetch_waits_until_there_are_as_many_bytes_as_it_wants(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2)
    requests = [FetchFrom("orders", 0, 0), FetchFrom("orders", 1, 0)]
    waiting = asyncio.create_task(broker.fetch(requests, min_bytes=4 * RECORD_BYTES, max_wait_ms=LONG_MS))
    for partition in (0, 1, 1):
        await append(broker, "orders", records(["x" * VALUE_BYTES], partition=partition))
        await fetch_one(broker, "orders", partition)
        assert not waiting.done()
    await append(broker, "orders", records(["x" * VALUE_BYTES], partition=0))
    async with asyncio.timeout(PATIENCE_S):
        assert [reply.rows.num_rows for reply in await waiting] == [2, 2]


async def test_a_waiting_fetch_reads_again_only_where_something_came(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 3)
    await append(broker, "orders", records(["a" * VALUE_BYTES] * 2, partition=0))
    reads: list[bool] = []
    read_once = asyncio.Event()

    class Counting(Observer):
        def read(self, *, from_memory: bool) -> None:
            reads.append(from_memory)
            read_once.set()

    path = FetchPath(broker.topics, Counting())
    requests = [FetchFrom("orders", partition, 0) for partition in range(3)]
    limits: dict[str, Any] = {
        "min_bytes": 6 * RECORD_BYTES,
        "max_bytes": int(6.5 * RECORD_BYTES),
        "max_wait_ms": LONG_MS,
    }
    waiting = asyncio.create_task(path.fetch(requests, **limits))
    async with asyncio.timeout(PATIENCE_S):
        await read_once.wait()
    for count in (3, 9):
        await append(broker, "orders", records(["b" * VALUE_BYTES] * count, partition=1))
    async with asyncio.timeout(PATIENCE_S):
        replies = await waiting
    assert [offsets(reply) for reply in replies] == [[0, 1], [0, 1, 2, 3], []]
    assert [(reply.next_offset, reply.high_watermark) for reply in replies] == [(2, 2), (4, 12), (0, 0)]
    # Partition 0 once, and partition 1 at each of its commits.
    assert len(reads) == 1 + 2


async def test_what_was_read_before_its_topic_went_is_not_given_out(broker: Broker) -> None:
    await append(broker, "orders", records(["a"]))
    waiting = asyncio.create_task(broker.fetch([FetchFrom("orders", 0, 0)], min_bytes=10**6, max_wait_ms=LONG_MS))
    await append(broker, "orders", records(["b"]))
    await broker.admin.delete_topic("orders")
    async with asyncio.timeout(PATIENCE_S):
        (reply,) = await waiting
    assert reply.error is not None
    assert reply.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_of_a_topic_do_not_go_on_with_those_of_another_of_its_name(open_broker: OpenBroker) -> None:
    broker, stranger = open_broker(), open_broker()
    await append_each(broker, "orders", ["old"] * 3, partition=0)
    place = [FetchFrom("orders", 0, 0, 10**6)]
    first = await broker.fetch(place)
    await stranger.admin.delete_topic("orders")
    await append_each(stranger, "orders", ["new"] * 5, partition=0)
    await broker.topics.get("orders", max_age_ms=0)
    then = await broker.fetch(behind(place, first))
    assert [(reply.rows.num_rows, reply.error) for reply in then] == [(2, None)]
    (reply,) = joined(first, then)
    assert reply.rows.num_rows == 0
    assert reply.error is not None
    assert reply.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_limit_holds_however_often_a_fetch_goes_on(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(fetch_partition_max_bytes=3 * RECORD_BYTES))
    await append(broker, "orders", records(["a" * VALUE_BYTES] * 2, partition=0))
    waiting = asyncio.create_task(broker.fetch([FetchFrom("orders", 0, 0)], min_bytes=10**6, max_wait_ms=LONG_MS))
    for _ in range(3):
        await append(broker, "orders", records(["a" * VALUE_BYTES], partition=0))
    async with asyncio.timeout(PATIENCE_S):
        assert [offsets(reply) for reply in await waiting] == [[0, 1, 2]]


async def test_who_waits_without_reading_is_told_of_records_and_that_a_topic_went(broker: Broker) -> None:
    await append(broker, "orders", records(["a"]))
    places = [FetchFrom("orders", 0, 1)]
    assert not await broker.fetch_path.wait_past(places, 0)
    for happens in (append(broker, "orders", records(["b"])), broker.admin.delete_topic("orders")):
        waiting = asyncio.create_task(broker.fetch_path.wait_past(places, LONG_MS))
        await broker.fetch_path.wait_past(places, 0)
        await happens
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting
        places = [FetchFrom("orders", 0, 2)]
    assert await broker.fetch_path.wait_past(places, 0)
    await append(broker, "orders", records(["of a new topic of this name"]))
    assert await broker.fetch_path.wait_past(places, 0)


async def test_a_fetch_that_is_full_does_not_wait_for_bytes_that_it_could_not_take(reader: Broker) -> None:
    reply = await fetch_one(reader, "orders", min_bytes=10**6, max_bytes=350, max_wait_ms=LONG_MS)
    assert offsets(reply) == [0, 1, 2]


async def test_many_readers_wait_for_the_same_commit(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 1)
    waiting = [asyncio.create_task(fetch_one(broker, "orders", max_wait_ms=LONG_MS)) for _ in range(50)]
    await asyncio.sleep(0)
    await append(broker, "orders", records(["x"]))
    assert {reply.rows.num_rows for reply in await asyncio.gather(*waiting)} == {1}


# -- what another broker wrote -----------------------------------------------------------------------------------------


async def test_a_waiting_reader_sees_what_another_broker_commits(open_broker: OpenBroker) -> None:
    writer, reader = open_broker(), open_broker()
    await append(writer, "orders", records(["old"]))
    assert await values_of(reader, "orders") == ["old"]
    for number in range(3):
        waiting = asyncio.create_task(fetch_one(reader, "orders", 0, 1 + number, max_wait_ms=LONG_MS))
        await append(writer, "orders", records([f"new {number}"]))
        assert (await waiting).rows["value"].to_pylist() == [f"new {number}".encode()]


async def test_an_offset_that_another_broker_gave_out_is_never_out_of_range(open_broker: OpenBroker) -> None:
    writer, reader = open_broker(), open_broker()
    await append(writer, "orders", records(["a"]))
    for number in range(1, 6):
        # A consumer that moves from one broker to the other must not be told to start over.
        assert (await fetch_one(reader, "orders", 0, number)).error is None
        await append(writer, "orders", records(["next"]))
        assert (await fetch_one(reader, "orders", 0, number + 1)).high_watermark == number + 1


async def test_a_topic_is_read_by_a_broker_that_knew_that_it_was_not_there(open_broker: OpenBroker) -> None:
    writer, reader = open_broker(), open_broker()
    with pytest.raises(LakelogError):
        await fetch_one(reader, "orders")
    await append(writer, "orders", records(["x"]))
    assert await values_of(reader, "orders") == ["x"]


async def test_batches_of_two_brokers_are_read_in_one_row(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    for number in range(10):
        await append((ours, theirs)[number % 2], "orders", records([f"{number}a", f"{number}b"]))
    expected = [f"{number}{half}" for number in range(10) for half in "ab"]
    for reader in (ours, theirs, open_broker(COLD)):
        assert await values_of(reader, "orders") == expected


# -- from memory and from files ----------------------------------------------------------------------------------------


async def test_memory_and_files_give_the_same_records(open_broker: OpenBroker) -> None:
    writer = open_broker()
    for number in range(5):
        count = 1 + 7 * number
        headers: list[Any] = [None if n % 3 else [{"key": f"h{n}", "value": b"v" * n}] for n in range(count)]
        keys = [None if n % 4 == 0 else f"k{n}".encode() for n in range(count)]
        values = [None if n % 5 == 0 else b"%d" % n * n for n in range(count)]
        times = [1_000_000 + n * 37 for n in range(count)]
        await append(writer, "orders", records(values, keys=keys, headers=headers, timestamps_ms=times))
    cold = open_broker(COLD)
    cached = open_broker()
    for offset in (0, 1, 8, 40, 74):
        hot_reply = await fetch_one(writer, "orders", 0, offset)
        for each in (cold, cached, cached):
            reply = await fetch_one(each, "orders", 0, offset)
            assert reply.rows.equals(hot_reply.rows)
            assert (reply.next_offset, reply.size_bytes) == (hot_reply.next_offset, hot_reply.size_bytes)


async def test_a_segment_of_many_row_groups_is_read_from_any_place(open_broker: OpenBroker) -> None:
    writer = open_broker()
    await append(writer, "orders", records([b"%08d" % n * 64 for n in range(10_000)]))
    cold = open_broker(COLD)
    for offset in (0, 3_971, 4_000, 9_999):
        (reply,) = await cold.fetch([FetchFrom("orders", 0, offset, max_bytes=20_000)])
        assert reply.rows["value"][0].as_py() == b"%08d" % offset * 64
        assert offsets(reply) == list(range(offset, min(10_000, offset + 20_000 // (512 + RECORD_OVERHEAD_BYTES))))
    assert [row["offset"] for row in await read_all(cold, "orders")] == list(range(10_000))


async def test_a_tail_that_is_only_partly_in_memory_is_read_without_a_seam(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(hot_tail_bytes_max=30_000))
    await append_each(broker, "orders", [str(n) * 10 for n in range(30)])
    assert 0 < broker.hot_tail.bytes <= 30_000
    assert await values_of(broker, "orders") == [str(n) * 10 for n in range(30)]


async def test_more_topics_than_a_broker_keeps_open_are_served(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(open_topics_max=2))
    for turn in range(2):
        for number in range(5):
            await append(broker, f"topic{number}", records([f"{number}/{turn}"]))
    for number in range(5):
        assert await values_of(broker, f"topic{number}") == [f"{number}/0", f"{number}/1"]


# -- offsets by time ---------------------------------------------------------------------------------------------------


async def test_the_first_offset_at_or_after_a_time_is_found(open_broker: OpenBroker) -> None:
    writer = open_broker()
    await append(writer, "orders", records(["a", "b", "c"], timestamps_ms=[100, 200, 300]))
    await append(writer, "orders", records(["d", "e"], timestamps_ms=[250, 900]))  # times need not rise
    expected = {0: (0, 100), 100: (0, 100), 101: (1, 200), 250: (2, 300), 301: (4, 900), 900: (4, 900), 901: (-1, -1)}
    for each in (writer, open_broker(COLD)):
        for asked, found in expected.items():
            assert await each.offset_at("orders", 0, asked) == OffsetAt(*found)
        assert await each.offset_at("orders", 0, Position.EARLIEST) == OffsetAt(0)
        assert await each.offset_at("orders", 0, Position.LATEST) == OffsetAt(5)
        assert await each.offset_at("orders", 0, Position.MAX_TIMESTAMP) == OffsetAt(4, 900)


async def test_an_empty_partition_begins_and_ends_at_its_start_and_has_no_times(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 1)
    assert await broker.offset_at("orders", 0, Position.EARLIEST) == OffsetAt(0)
    assert await broker.offset_at("orders", 0, Position.LATEST) == OffsetAt(0)
    assert await broker.offset_at("orders", 0, Position.MAX_TIMESTAMP) == OffsetAt(-1)
    assert await broker.offset_at("orders", 0, 0) == OffsetAt(-1)
    with pytest.raises(LakelogError) as caught:
        await broker.offset_at("orders", 1, Position.LATEST)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_deleted_records_are_not_found_by_their_time(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["a", "b", "c"], timestamps_ms=[900, 200, 300]))
    await broker.admin.delete_records("orders", {0: 1})
    for each in (broker, open_broker()):
        assert await each.offset_at("orders", 0, 0) == OffsetAt(1, 200)
        assert await each.offset_at("orders", 0, 301) == OffsetAt(-1)
        assert await each.offset_at("orders", 0, Position.MAX_TIMESTAMP) == OffsetAt(2, 300)


async def test_what_compaction_took_away_is_not_served_from_memory(broker: Broker) -> None:
    await append(broker, "orders", records(["old", "new", "dirty"], keys=[b"a"] * 3))
    topic = await broker.topics.get("orders")
    (whole,) = topic.partition(0).segments
    kept = topic.hot_partition(0).find(1)
    assert kept is not None
    commit_id = drafts.new_commit_id()
    path = segment_path(0, 1, commit_id)
    file = SegmentFile(lambda: broker.store.writer(topic.table.path(path)), "zstd")
    file.write(kept)
    size = await asyncio.to_thread(file.close)
    clean = replace(whole, base_offset=1, records=2, bytes=size, path=path)
    txns = {f"{CLEANER_APP}0": 2}
    await topic.table.commit(drafts.rewrite(commit_id, "COMPACT", [whole], [clean], topic.state, 0, txns))
    assert await values_of(broker, "orders") == ["new", "dirty"]
