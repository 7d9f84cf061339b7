"""What the listener answers, request by request, to a client that says exactly what it means."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords

from ingest_api.kafka.apis import APIS
from ingest_api.kafka.records.reading import Reading
from ingest_api.kafka.records.writing import write_batches
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.stamp import Appended
from lakelog.model.batch import ListRecords
from tests.kafka.asking import fetched, produced, topic, values
from tests.kafka.conftest import Listening, OpenListener, soon
from tests.kafka.plain_client import GZIP, PlainClient, batch, to_fetch, to_produce
from tests.unit.test_kafka_records import read_batch

UNSUPPORTED_VERSION = 35


# Versions.


async def test_the_versions_that_are_served_are_announced(client: PlainClient):
    for version in range(5):
        reply = await client.ask("api_versions", version)
        announced = {each["api_key"]: (each["min_version"], each["max_version"]) for each in reply["api_keys"]}
        assert announced.keys() == APIS.keys()
        assert announced.pop(0) == (0, 12)  # for librdkafka, which would not compress else
        assert announced == {key: (api.oldest, api.newest) for key, api in APIS.items() if key != 0}


async def test_a_client_from_the_future_is_told_the_versions_in_the_oldest_form(client: PlainClient):
    client.send_frame(b"\x00\x12\x00\x63\x00\x00\x00\x09\x00\x01x\x00")
    reply = await client.receive("api_versions", 0, 9)
    assert reply["error_code"] == UNSUPPORTED_VERSION
    assert {each["api_key"] for each in reply["api_keys"]} == set(APIS)


@pytest.mark.parametrize("frame", [b"\x00\x63\x00\x00", b"\x00\x03\x00\x63", b"\x00\x00\x00\x02", b"\xff\xff\xff\xff"])
async def test_what_is_not_served_ends_the_connection(listening: Listening, frame: bytes):
    async with listening.client() as other, listening.client() as client:
        client.send_frame(frame + b"\x00\x00\x00\x01\xff\xff" + bytes(20))
        assert await client.hung_up()
        await other.ask("api_versions", 3)


# The transport.


async def test_requests_on_a_socket_are_answered_in_order(client: PlainClient):
    await topic(client, "t", 2)
    asked = []
    for number in range(20):
        fields = to_produce(("t", number % 2, batch(b"%d" % number)))
        asked.append(("produce", 9, client.send("produce", 9, **fields)))
        if number % 5 == 0:
            asked.append(("metadata", 12, client.send("metadata", 12, topics=[])))
    for api, version, correlation_id in asked:
        await client.receive(api, version, correlation_id)
    both = await fetched(client, ("t", 0, 0), ("t", 1, 0))
    assert values(both[0]["records"]) == [b"%d" % number for number in range(0, 20, 2)]
    assert values(both[1]["records"]) == [b"%d" % number for number in range(1, 20, 2)]


async def test_a_request_after_a_produce_sees_what_was_produced(client: PlainClient):
    await topic(client, "t")
    client.send("produce", 9, **to_produce(("t", 0, batch(b"a", b"b"))))
    asked = client.send(
        "list_offsets", 7, topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    )
    await client.frame()
    reply = await client.receive("list_offsets", 7, asked)
    assert reply["topics"][0]["partitions"][0]["offset"] == 2


async def test_a_frame_that_is_too_large_ends_the_connection(open_listener: OpenListener):
    async with open_listener(body_bytes_max="100000") as listening, listening.client() as other:
        await topic(other, "t")
        for length in (100_001, 2**31 - 1, 2**32 - 1):
            async with listening.client() as client:
                client.writer.write(length.to_bytes(4, "big") + b"abc")
                assert await client.hung_up()
        await produced(other, ("t", 0, batch(bytes(90_000))))


async def test_large_requests_take_turns_for_room(open_listener: OpenListener):
    async with open_listener(bodies_bytes_max="300000") as listening, listening.client() as first:
        await topic(first, "t")
        big = batch(bytes(200_000))

        async def one() -> None:
            async with listening.client() as client:
                assert (await produced(client, ("t", 0, big)))[0]["error_code"] == 0

        await asyncio.gather(*(one() for _ in range(6)))
        assert listening.gateway.bodies.room.bytes == 0
        assert (await produced(first, ("t", 0, batch(b"x"))))[0]["base_offset"] == 6


async def test_a_client_that_leaves_in_the_middle_of_a_request_leaves_nothing_behind(listening: Listening):
    async with listening.client() as other:
        await topic(other, "t")
        for cut in (3, 40, 150_000):
            async with listening.client() as client:
                data = batch(bytes(200_000))
                client.writer.write((250_000).to_bytes(4, "big") + data[:cut])
                await client.writer.drain()
        assert (await fetched(other, ("t", 0, 0)))[0]["high_watermark"] == 0
    await soon(lambda: listening.gateway.bodies.room.bytes == 0)


async def test_half_a_request_and_a_silent_client_are_not_waited_for(open_listener: OpenListener):
    async with open_listener(body_timeout_ms="1", kafka_idle_timeout_ms="100") as listening:
        async with listening.client() as client:
            client.writer.write(b"\x00\x00\x00\x20abc")
            assert await client.hung_up()
        async with listening.client() as client:
            assert await client.hung_up()


async def test_connections_beyond_the_limit_are_closed(open_listener: OpenListener):
    async with (
        open_listener(kafka_connections_max="2") as listening,
        listening.client() as one,
        listening.client() as two,
        listening.client() as three,
    ):
        assert await three.hung_up()
        await one.ask("api_versions", 0)
        await two.ask("api_versions", 0)


async def test_a_client_is_told_the_advertised_address(open_listener: OpenListener):
    async with open_listener(kafka_advertised="example.org:1234") as listening, listening.client() as client:
        broker = (await client.ask("metadata", 12, topics=[]))["brokers"][0]
        assert (broker["node_id"], broker["host"], broker["port"]) == (0, "example.org", 1234)
    async with open_listener() as listening, listening.client() as client:
        broker = (await client.ask("metadata", 12, topics=[]))["brokers"][0]
        assert (broker["host"], broker["port"]) == (listening.host, listening.port)


# Metadata.


async def test_metadata_creates_a_topic_where_it_may(client: PlainClient):
    async def asked(name: str, allow: bool, version: int = 12) -> dict[str, Any]:
        reply = await client.ask("metadata", version, topics=[{"name": name}], allow_auto_topic_creation=allow)
        return dict(reply["topics"][0])

    assert (await asked("t", allow=False))["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
    created = await asked("t", allow=True)
    assert (created["error_code"], len(created["partitions"])) == (0, 1)
    assert (await asked("a b", allow=True))["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION.number
    assert (await asked("__internal", allow=True))["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION.number
    by_id = await client.ask("metadata", 12, topics=[{"name": None, "topic_id": created["topic_id"]}])
    assert by_id["topics"][0]["name"] == "t"
    everything = await client.ask("metadata", 12, topics=None)
    assert [each["name"] for each in everything["topics"]] == ["t"]
    assert [each["name"] for each in (await client.ask("metadata", 0, topics=[]))["topics"]] == ["t"]
    assert (await client.ask("metadata", 1, topics=[]))["topics"] == []


async def test_metadata_looks_at_each_topic_once_and_at_few_at_a_time(listening: Listening, client: PlainClient):
    topics, names = listening.gateway.broker.topics, [f"t{number:02}" for number in range(40)]
    for name in names:
        await topic(client, name)
    get, at_work, most, looks = topics.get, 0, 0, Counter[str]()

    async def counted(name: str, **options: Any) -> Any:
        nonlocal at_work, most
        at_work, looks[name] = at_work + 1, looks[name] + 1
        most = max(most, at_work)
        await asyncio.sleep(0)  # others get as far as this one meanwhile
        try:
            return await get(name, **options)
        finally:
            at_work -= 1

    topics.get = counted  # type: ignore[method-assign]
    for asked in (None, [{"name": name} for name in names]):
        reply = await client.ask("metadata", 12, topics=asked)
        assert [(each["name"], each["error_code"]) for each in reply["topics"]] == [(name, 0) for name in names]
        assert looks == dict.fromkeys(names, 1)
        assert most <= 32
        looks.clear()


async def test_topics_are_not_created_where_that_is_turned_off(open_listener: OpenListener):
    async with open_listener(auto_create_topics_enable="false") as listening, listening.client() as client:
        reply = await client.ask("metadata", 12, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        assert reply["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number


# Produce.


async def test_each_partition_of_a_produce_request_has_its_own_outcome(client: PlainClient):
    await topic(client, "a", 2)
    await topic(client, "b")
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    outcomes = await produced(
        client,
        ("a", 0, batch(b"1", b"2")),
        ("a", 1, bytes(broken)),
        ("a", 7, batch(b"x")),
        ("b", 0, batch(b"3")),
        ("nowhere", 0, batch(b"x")),
        ("__offsets", 0, batch(b"x")),
    )
    assert [each["error_code"] for each in outcomes] == [0, 2, 3, 0, 3, 17]
    assert [outcomes[0]["base_offset"], outcomes[3]["base_offset"]] == [0, 0]
    assert "checksum" in outcomes[1]["error_message"]
    both = await fetched(client, ("a", 0, 0), ("a", 1, 0), ("b", 0, 0))
    assert [values(each["records"]) for each in both] == [[b"1", b"2"], [], [b"3"]]


async def test_a_partition_below_0_is_refused_and_stores_nothing(client: PlainClient):
    """Within, -1 stands for a place that may be chosen."""
    await topic(client, "t")
    outcomes = await produced(client, *(("t", partition, batch(b"x")) for partition in (-1, -(2**31), 0)))
    assert [each["error_code"] for each in outcomes] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number] * 2 + [0]
    assert [each["index"] for each in outcomes] == [-1, -(2**31), 0]
    assert (await fetched(client, ("t", 0, 0)))[0]["high_watermark"] == 1


async def test_a_batch_has_so_many_records_and_no_more(open_listener: OpenListener):
    async with open_listener(request_records_max="10") as listening, listening.client() as client:
        await topic(client, "t")
        outcomes = await produced(client, *(("t", 0, batch(*[b"x"] * count)) for count in (10, 11)))
        assert [each["error_code"] for each in outcomes] == [0, ErrorCode.MESSAGE_TOO_LARGE.number]


async def test_what_a_batch_unpacks_to_is_counted_until_it_has_its_place(listening: Listening, client: PlainClient):
    await topic(client, "t")
    in_flight, room = listening.gateway.broker.produce_path.in_flight, listening.gateway.bodies.room
    size = 900_000
    packed = batch(bytes(size), codec=GZIP)
    assert len(packed) < size // 100
    taken = listening.gateway.broker.settings.in_flight_bytes_max
    in_flight.claim(taken)
    sending = asyncio.create_task(produced(client, ("t", 0, packed)))
    await soon(lambda: room.bytes >= size)
    in_flight.leave(taken)
    assert (await sending)[0]["error_code"] == 0
    await soon(lambda: room.bytes == 0)


@pytest.mark.parametrize("codec", [0, GZIP])
async def test_compressed_batches_are_read_in_a_thread_and_small_plain_ones_in_place(
    client: PlainClient, monkeypatch: pytest.MonkeyPatch, codec: int
):
    await topic(client, "t")
    threads: list[threading.Thread] = []

    go_on = Reading.go_on

    def noted(*asked: Any) -> Any:
        threads.append(threading.current_thread())
        return go_on(*asked)

    monkeypatch.setattr(Reading, "go_on", noted)
    assert (await produced(client, ("t", 0, batch(bytes(500_000 if codec else 500), codec=codec))))[0][
        "error_code"
    ] == 0
    assert {each is threading.main_thread() for each in threads} == {codec == 0}


async def test_partitions_of_one_topic_share_a_commit(listening: Listening, client: PlainClient):
    await topic(client, "t", 8)
    opened = await listening.gateway.broker.topics.get("t")
    before = opened.state.version
    await produced(client, *(("t", number, batch(b"x")) for number in range(8)))
    assert opened.state.version == before + 1


@pytest.mark.parametrize("acks", [-1, 1])
async def test_records_are_answered_with_their_offsets(client: PlainClient, acks: int):
    await topic(client, "t")
    for number in range(3):
        outcome = (await produced(client, ("t", 0, batch(b"a", b"b")), acks=acks))[0]
        assert (outcome["error_code"], outcome["base_offset"], outcome["log_start_offset"]) == (0, 2 * number, 0)


async def test_without_acks_there_is_no_reply_and_an_error_ends_the_connection(listening: Listening):
    async with listening.client() as client, listening.client() as other:
        await topic(other, "t")
        client.send("produce", 9, **to_produce(("t", 0, batch(b"x")), acks=0))
        await client.ask("api_versions", 0)
        while (await fetched(other, ("t", 0, 0), max_wait=1_000))[0]["high_watermark"] < 1:
            pass
        client.send("produce", 9, **to_produce(("t", 9, b"rubbish"), acks=0))
        assert await client.hung_up()


async def test_what_was_answered_before_the_connection_ends_still_goes_out(client: PlainClient):
    await topic(client, "t")
    # The refusal is there before the commit is, and both go out together.
    asked = [client.send("produce", 9, **to_produce(("t", 0, batch(b"x")))) for _ in range(3)]
    client.send("produce", 9, **to_produce(("t", 0, b"rubbish"), acks=0))
    for number, each in enumerate(asked):
        reply = await client.receive("produce", 9, each)
        assert reply["responses"][0]["partition_responses"][0]["base_offset"] == number
    assert await client.hung_up()


async def test_acks_that_nobody_knows_are_refused(client: PlainClient):
    await topic(client, "t")
    outcome = (await produced(client, ("t", 0, batch(b"x")), acks=2))[0]
    assert outcome["error_code"] == ErrorCode.INVALID_REQUIRED_ACKS.number


async def test_old_messages_and_transactions_are_refused_by_name(client: PlainClient):
    await topic(client, "t")
    old = bytearray(batch(b"x"))
    old[16] = 1
    outcome = (await produced(client, ("t", 0, bytes(old))))[0]
    assert outcome["error_code"] == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT.number
    reply = await client.ask("produce", 9, transactional_id="x", **to_produce(("t", 0, batch(b"x"))))
    assert reply["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.INVALID_REQUEST.number
    assert (await client.ask("init_producer_id", 4, transactional_id="x"))["error_code"] == 42


async def test_a_batch_that_is_sent_again_is_stored_once(client: PlainClient):
    await topic(client, "t", 2)
    ids = {(await client.ask("init_producer_id", 4))["producer_id"] for _ in range(10)}
    assert len(ids) == 10
    producer = ids.pop()
    first = ("t", 0, batch(b"1", b"2", producer=(producer, 0, 0)))
    elsewhere = ("t", 1, batch(b"x", producer=(producer, 0, 0)))
    second = ("t", 0, batch(b"3", producer=(producer, 0, 2)))
    skipping = ("t", 0, batch(b"4", producer=(producer, 0, 9)))
    outcomes = await produced(client, first, elsewhere)
    assert [each["base_offset"] for each in outcomes] == [0, 0]
    outcomes = [each for sent in (second, first, second, skipping) for each in await produced(client, sent)]
    assert [each["base_offset"] for each in outcomes] == [2, 0, 2, -1]
    assert outcomes[3]["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.number
    both = await fetched(client, ("t", 0, 0), ("t", 1, 0))
    assert [values(each["records"]) for each in both] == [[b"1", b"2", b"3"], [b"x"]]


async def test_a_topic_that_stamps_its_records_says_when(client: PlainClient):
    await topic(client, "t", message_timestamp_type="LogAppendTime")
    outcome = (await produced(client, ("t", 0, batch(b"x"))))[0]
    records = (await fetched(client, ("t", 0, 0)))[0]["records"]
    assert [each.timestamp for each in MemoryRecords(records).next_batch()] == [outcome["log_append_time"]]


# Fetch.


async def test_a_fetch_waits_for_records(listening: Listening, client: PlainClient):
    await topic(client, "t")
    asked = client.send("fetch", 12, **to_fetch(("t", 0, 0), max_wait=60_000))
    async with listening.client() as other:
        await produced(other, ("t", 0, batch(b"x")))
    reply = await client.receive("fetch", 12, asked)
    assert values(reply["responses"][0]["partitions"][0]["records"]) == [b"x"]


async def test_a_fetch_that_waits_for_more_is_told_that_its_topic_went(listening: Listening, client: PlainClient):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(b"x")))
    reads = listening.gateway.metrics.messages_out.labels("t")._value
    asked = client.send("fetch", 12, **to_fetch(("t", 0, 0), max_wait=60_000, min_bytes=100_000))
    await soon(lambda: listening.gateway.broker.fetch_path._waiting == 1)
    await listening.gateway.broker.admin.delete_topic("t")
    reply = await client.receive("fetch", 12, asked)
    (partition,) = reply["responses"][0]["partitions"]
    assert partition["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
    assert reads.get() == 1


async def test_a_fetch_gives_up_waiting_and_gives_what_there_is(client: PlainClient):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(b"x")))
    found = (await fetched(client, ("t", 0, 0), max_wait=20, min_bytes=100_000))[0]
    assert values(found["records"]) == [b"x"]
    assert values((await fetched(client, ("t", 0, 1), max_wait=1))[0]["records"]) == []


async def test_a_fetch_is_cut_at_its_limits_and_gives_one_record_at_the_least(client: PlainClient):
    await topic(client, "t", 2)
    for partition in (0, 1):
        await produced(client, ("t", partition, batch(*[bytes(1_000)] * 50)))

    async def counts(**limits: int) -> list[int]:
        wanted = to_fetch(("t", 0, 0), ("t", 1, 0))
        for partition in wanted["topics"][0]["partitions"]:
            partition["partition_max_bytes"] = limits.get("partition", 1 << 20)
        reply = await client.ask("fetch", 12, **wanted, max_bytes=limits.get("fetch", 1 << 20))
        return [len(values(each["records"])) for each in reply["responses"][0]["partitions"]]

    assert await counts() == [50, 50]
    assert await counts(partition=10_500) == [10, 10]
    assert await counts(fetch=10_500) == [10, 0]
    assert await counts(fetch=60_000) == [50, 9]
    assert await counts(fetch=1, partition=1) == [1, 0]
    # Kafka's clients may ask for nothing, and would wait for ever if they got it.
    assert await counts(fetch=0) == [1, 0]
    assert await counts(partition=0) == [1, 0]
    assert await counts(fetch=-1, partition=-1) == [1, 0]


async def test_errors_of_a_fetch_are_per_partition_and_come_at_once(client: PlainClient):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(b"x")))
    found = await fetched(client, ("t", 0, 5), ("t", 9, 0), ("nowhere", 0, 0), max_wait=60_000)
    assert [each["error_code"] for each in found] == [1, 3, 3]
    newer = to_fetch(("t", 0, 0))
    newer["topics"][0]["partitions"][0]["current_leader_epoch"] = 4
    reply = await client.ask("fetch", 12, **newer)
    assert reply["responses"][0]["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_LEADER_EPOCH.number


async def test_a_topic_that_is_created_anew_is_another_one_by_its_id(listening: Listening, client: PlainClient):
    admin = listening.gateway.broker.admin

    async def fetched_by_id(topic_id: uuid.UUID) -> dict[str, Any]:
        position = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        topics = [{"topic_id": topic_id, "partitions": [position]}]
        reply = await client.ask("fetch", 13, max_wait=60_000, min_bytes=1, topics=topics)
        (found,) = reply["responses"]
        assert found["topic_id"] == topic_id
        return dict(found["partitions"][0])

    ids = []
    for value in (b"first", b"second"):
        ids.append(uuid.UUID((await admin.create_topic("t", 1)).topic_id))
        await produced(client, ("t", 0, batch(value)))
        assert values((await fetched_by_id(ids[-1]))["records"]) == [value]
        if value == b"first":
            await admin.delete_topic("t")
    assert (await fetched_by_id(ids[0]))["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID.number
    assert (await fetched_by_id(uuid.uuid4()))["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID.number


async def test_fetch_sessions_are_refused_as_kafka_refuses_them(client: PlainClient):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(b"x")))
    reply = await client.ask("fetch", 12, **to_fetch(("t", 0, 0), session_epoch=0))
    assert (reply["session_id"], values(reply["responses"][0]["partitions"][0]["records"])) == (0, [b"x"])
    reply = await client.ask("fetch", 12, **to_fetch(session_id=5, session_epoch=1))
    assert reply["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.number


async def test_replies_that_are_not_taken_hold_room_that_comes_back(open_listener: OpenListener):
    async with open_listener(replies_bytes_max="4000000") as listening, listening.client() as other:
        await topic(other, "t")
        for _ in range(4):
            await produced(other, ("t", 0, batch(bytes(900_000))))
        async with listening.client() as slow:
            wanted = to_fetch(("t", 0, 0))
            wanted["topics"][0]["partitions"][0]["partition_max_bytes"] = 4_000_000
            for _ in range(20):
                slow.send("fetch", 12, **wanted)
            await slow.frame()
        assert len(values((await fetched(other, ("t", 0, 0)))[0]["records"])) == 1
        await soon(lambda: listening.gateway.replies.room.bytes == 0)


async def test_records_of_all_versions_of_produce_and_fetch_are_the_same(client: PlainClient):
    await topic(client, "t")
    for version in range(3, 13):
        await client.ask("produce", version, **to_produce(("t", 0, batch(b"%d" % version))))
    wanted = to_fetch(("t", 0, 0))
    described = await client.ask("metadata", 12, topics=[{"name": "t"}])
    by_id = {**wanted, "topics": [{**wanted["topics"][0], "topic_id": described["topics"][0]["topic_id"]}]}
    del by_id["topics"][0]["topic"]
    for version in range(4, 14):
        reply = await client.ask("fetch", version, **(by_id if version == 13 else wanted))
        found = reply["responses"][0]["partitions"][0]
        assert values(found["records"]) == [b"%d" % each for each in range(3, 13)]
        assert found["high_watermark"] == found["last_stable_offset"] == 10


@pytest.mark.parametrize(
    ("configured", "version", "codec"),
    [
        ("producer", 12, 0),
        ("uncompressed", 12, 0),
        ("gzip", 4, 1),
        ("snappy", 12, 2),
        ("lz4", 12, 3),
        ("zstd", 9, 0),
        ("zstd", 10, 4),
    ],
)
async def test_batches_are_compressed_where_the_topic_says_how(
    client: PlainClient, configured: str, version: int, codec: int
):
    await topic(client, "t", compression_type=configured)
    await produced(client, ("t", 0, batch(b"a" * 1_000, None, b"b")))
    reply = await client.ask("fetch", version, **to_fetch(("t", 0, 0)))
    records = reply["responses"][0]["partitions"][0]["records"]
    envelope, found = read_batch(memoryview(records), 0, 1 << 20)
    assert envelope.codec == codec
    assert len(records) < 500 or codec == 0
    assert isinstance(found, ListRecords)
    assert list(found.values) == [b"a" * 1_000, None, b"b"]


@pytest.mark.parametrize("codec", ["gzip", "producer"])
async def test_gzip_is_made_in_a_thread_however_little_there_is(
    client: PlainClient, monkeypatch: pytest.MonkeyPatch, codec: str
):
    await topic(client, "t", compression_type=codec)
    await produced(client, ("t", 0, batch(b"x" * 1_000)))
    threads: list[threading.Thread] = []

    def noted(*asked: Any) -> Any:
        threads.append(threading.current_thread())
        return write_batches(*asked)

    monkeypatch.setattr("ingest_api.kafka.handlers.fetch.write_batches", noted)
    assert values((await fetched(client, ("t", 0, 0)))[0]["records"]) == [b"x" * 1_000]
    assert [each is threading.main_thread() for each in threads] == [codec != "gzip"]


async def test_records_of_one_door_come_out_of_the_other(listening: Listening, client: PlainClient):
    await topic(client, "t")
    records = ListRecords(
        [b"v\x00\xff", None, b""],
        size_bytes=6,
        keys=[None, b"k", b""],
        headers=[[("h", None), ("h", b"\x00")], None, []],
        timestamps_ms=[1_600_000_000_001, 1_600_000_000_000, 1_600_000_000_002],
    )
    assert isinstance(await listening.gateway.broker.append("t", records), Appended)
    found = list(MemoryRecords((await fetched(client, ("t", 0, 0)))[0]["records"]).next_batch())
    assert [each.key for each in found] == [None, b"k", b""]
    assert [each.value for each in found] == [b"v\x00\xff", None, b""]
    assert [each.headers for each in found] == [[("h", None), ("h", b"\x00")], [], []]
    assert [each.timestamp for each in found] == records.timestamps_ms


# Offsets, topics, configs.


async def test_offsets_are_listed_by_place_and_by_time(client: PlainClient):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(*[b"x"] * 10, timestamp=1_000)))
    await client.ask("delete_records", 2, topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}])
    asked = [-2, -1, -3, -4, -5, 1_007, 5_000, -9]
    reply = await client.ask(
        "list_offsets",
        9,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": each} for each in asked]}],
    )
    found = reply["topics"][0]["partitions"]
    assert [each["offset"] for each in found] == [3, 10, 9, 3, -1, 7, -1, -1]
    assert [each["timestamp"] for each in found] == [-1, -1, 1_009, -1, -1, 1_007, -1, -1]
    assert [each["error_code"] for each in found] == [0] * 7 + [42]


async def test_an_epoch_ends_where_the_log_does(client: PlainClient):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(b"x")))
    partitions = [{"partition": 0, "leader_epoch": 0}, {"partition": 0, "leader_epoch": 5}]
    reply = await client.ask("offset_for_leader_epoch", 4, topics=[{"topic": "t", "partitions": partitions}])
    assert [each["end_offset"] for each in reply["topics"][0]["partitions"]] == [1, -1]


async def test_offsets_are_fetched_in_every_version(client: PlainClient):
    await topic(client, "t", 2)
    commit = {"partition_index": 1, "committed_offset": 7, "committed_leader_epoch": -1}
    await client.ask(
        "offset_commit",
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[{"name": "t", "partitions": [commit]}],
    )
    for version in range(1, 10):
        single = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
        reply = await client.ask("offset_fetch", version, **(single if version < 8 else {"groups": [single]}))
        (group,) = [reply] if version < 8 else reply["groups"]
        (found,) = group["topics"]
        assert [(each["committed_offset"], each["error_code"]) for each in found["partitions"]] == [(-1, 0), (7, 0)]


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9])
async def test_an_error_of_an_offset_fetch_is_said_of_each_partition(open_listener: OpenListener, version: int):
    async with open_listener() as listening, listening.client() as client:
        groups = listening.gateway.groups
        await groups.committed("g")
        assert groups._tenure is not None
        await groups._tenure.end(LakelogError(ErrorCode.NOT_COORDINATOR))
        wanted = [{"name": "t", "partition_indexes": [0, 3]}, {"name": "u", "partition_indexes": [1]}]
        single = {"group_id": "g", "topics": wanted}
        reply = await client.ask("offset_fetch", version, **(single if version < 8 else {"groups": [single]}))
        (group,) = [reply] if version < 8 else reply["groups"]
        assert [
            (topic["name"], each["partition_index"], each["committed_offset"], each["error_code"])
            for topic in group["topics"]
            for each in topic["partitions"]
        ] == [(*place, -1, ErrorCode.NOT_COORDINATOR.number) for place in (("t", 0), ("t", 3), ("u", 1))]
        if version >= 2:
            assert group["error_code"] == ErrorCode.NOT_COORDINATOR.number


async def test_topics_are_created_grown_and_deleted_with_an_outcome_each(client: PlainClient):
    new = [
        {"name": "a", "num_partitions": 3, "replication_factor": 3},
        {"name": "b", "num_partitions": -1, "replication_factor": -1, "configs": [{"name": "nonsense", "value": "1"}]},
        {"name": "c", "num_partitions": 0, "replication_factor": 1},
        {"name": "d", "num_partitions": 1, "replication_factor": 0},
        {
            "name": "e",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": n, "broker_ids": [0]} for n in (1, 0)],
        },
        {"name": "__f", "num_partitions": 1, "replication_factor": 1},
    ]
    dry = await client.ask("create_topics", 7, topics=new, validate_only=True)
    assert (await client.ask("metadata", 12, topics=None))["topics"] == []
    made = await client.ask("create_topics", 7, topics=new)
    for reply in (dry, made):
        assert [each["error_code"] for each in reply["topics"]] == [0, 40, 37, 38, 0, 17]
        assert [each["num_partitions"] for each in reply["topics"]] == [3, -1, -1, -1, 2, -1]
    again = await client.ask("create_topics", 7, topics=new[:1])
    assert again["topics"][0]["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS.number

    grow = [{"name": "a", "count": 5, "assignments": None}, {"name": "e", "count": 1, "assignments": None}]
    for dry_run in (True, False):
        grown = await client.ask("create_partitions", 3, topics=grow, validate_only=dry_run)
        assert [each["error_code"] for each in grown["results"]] == [0, 37]
        count = len((await client.ask("metadata", 12, topics=[{"name": "a"}]))["topics"][0]["partitions"])
        assert count == (3 if dry_run else 5)

    deleted = await client.ask("delete_topics", 5, topic_names=["a", "nowhere"])
    assert [each["error_code"] for each in deleted["responses"]] == [0, 3]
    deleted = await client.ask("delete_topics", 6, topics=[{"name": None, "topic_id": made["topics"][4]["topic_id"]}])
    assert (deleted["responses"][0]["name"], deleted["responses"][0]["error_code"]) == ("e", 0)


async def test_configs_are_described_and_changed(client: PlainClient):
    await topic(client, "t", retention_ms="1000")

    async def described(keys: list[str] | None = None, **wanted: Any) -> dict[str, dict[str, Any]]:
        resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": keys}
        reply = await client.ask("describe_configs", 4, resources=[resource], **wanted)
        return {each["name"]: each for each in reply["results"][0]["configs"]}

    async def altered(api: str, version: int, *configs: dict[str, Any], **options: Any) -> int:
        resource = {"resource_type": 2, "resource_name": "t", "configs": list(configs)}
        reply = await client.ask(api, version, resources=[resource], **options)
        return int(reply["responses"][0]["error_code"])

    found = await described(include_synonyms=True, include_documentation=True)
    assert (found["retention.ms"]["value"], found["retention.ms"]["config_source"]) == ("1000", 1)
    assert found["retention.ms"]["documentation"]
    assert [each["source"] for each in found["retention.ms"]["synonyms"]] == [1, 5]
    assert found["segment.bytes"]["config_source"] == 5

    assert (await described([])).keys() == found.keys()
    assert (await described(["segment.ms"])).keys() == {"segment.ms"}

    append = {"name": "cleanup.policy", "config_operation": 2, "value": "compact"}
    drop = {"name": "retention.ms", "config_operation": 1, "value": None}
    assert await altered("incremental_alter_configs", 1, append, drop, validate_only=True) == 0
    assert (await described())["retention.ms"]["value"] == "1000"
    assert await altered("incremental_alter_configs", 1, append, drop) == 0
    found = await described()
    assert set(found["cleanup.policy"]["value"].split(",")) == {"compact", "delete"}
    assert found["retention.ms"]["config_source"] == 5
    subtract = {"name": "cleanup.policy", "config_operation": 3, "value": "delete"}
    assert await altered("incremental_alter_configs", 1, subtract) == 0
    assert (await described())["cleanup.policy"]["value"] == "compact"
    wrong = {"name": "retention.ms", "config_operation": 0, "value": "soon"}
    assert await altered("incremental_alter_configs", 1, wrong) == ErrorCode.INVALID_CONFIG.number

    assert await altered("alter_configs", 2, {"name": "segment.ms", "value": "5000"}) == 0
    found = await described()
    assert {name for name, each in found.items() if each["config_source"] == 1} == {"segment.ms"}
    node = {"resource_type": 4, "resource_name": "0", "configuration_keys": ["num_partitions"]}
    reply = await client.ask("describe_configs", 4, resources=[node])
    assert [each["value"] for each in reply["results"][0]["configs"]] == ["1"]


async def test_the_cluster_is_one_node_with_one_directory(listening: Listening, client: PlainClient):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(b"x")))
    reply = await client.ask("describe_cluster", 1)
    assert (reply["cluster_id"], reply["brokers"][0]["port"]) == ("lakelog", listening.port)
    for wanted in (None, [{"topic": "t", "partitions": [0]}]):
        reply = await client.ask("describe_log_dirs", 4, topics=wanted)
        assert reply["results"][0]["topics"][0]["partitions"][0]["partition_size"] > 0
