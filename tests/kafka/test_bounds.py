"""What connections may hold, and for how long: of requests on their way in, and of replies on their way out."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from ingest_api.kafka import connection, listener
from ingest_api.kafka.connection import Connection
from ingest_api.kafka.frames import FrameBuffer
from ingest_api.kafka.handlers import fetch
from ingest_api.kafka.records.writing import write_batches
from ingest_api.replies import PIECE_BYTES
from lakelog.errors import ErrorCode
from lakelog.flow import Share
from tests.kafka.asking import fetched, produced, topic, values
from tests.kafka.conftest import Listening, OpenListener, soon
from tests.kafka.plain_client import GZIP, PlainClient, batch, request_bytes, to_fetch, to_produce

PATIENCE_S = 30


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections as the listener has them, in the order in which they came."""
    made: list[Connection] = []

    class Noted(Connection):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(listener, "Connection", Noted)
    return made


async def announce(client: PlainClient, size: int, sent: bytes) -> None:
    client.writer.write(size.to_bytes(4, "big") + sent)
    await client.writer.drain()


# Requests on their way in.


async def test_what_is_announced_takes_no_room_before_it_is_here(open_listener: OpenListener):
    async with open_listener(bodies_bytes_max="1000000") as listening, AsyncExitStack() as stack:
        room = listening.gateway.bodies.room
        for _ in range(20):
            await announce(await stack.enter_async_context(listening.client()), 900_000, bytes(10_000))
        await soon(lambda: room.bytes >= 20 * 10_000)
        assert room.bytes <= 20 * 2 * (10_000 + 4)
        client = await stack.enter_async_context(listening.client())
        await topic(client, "t")
        assert (await produced(client, ("t", 0, batch(bytes(400_000)))))[0]["error_code"] == 0


async def test_a_fetch_that_waits_for_more_reads_each_record_once(open_listener: OpenListener):
    async with open_listener() as listening, listening.client() as client, listening.client() as other:
        await topic(client, "t")
        asked = client.send("fetch", 12, **to_fetch(("t", 0, 0), max_wait=60_000, min_bytes=10 * 116))
        for number in range(10):
            await produced(other, ("t", 0, batch(bytes(99) + bytes([number]))))
        (partition,) = (await client.receive("fetch", 12, asked))["responses"][0]["partitions"]
        assert values(partition["records"]) == [bytes(99) + bytes([number]) for number in range(10)]
        assert partition["high_watermark"] == 10
        metrics = listening.gateway.metrics
        assert metrics.messages_out.labels("t")._value.get() == 10


async def test_small_requests_are_answered_where_there_is_no_room_for_large_ones(open_listener: OpenListener):
    async with open_listener(bodies_bytes_max="100000") as listening, listening.client() as client:
        await topic(client, "t")
        room = listening.gateway.bodies.room
        room.claim(100_000)
        assert (await produced(client, ("t", 0, batch(b"x"))))[0]["error_code"] == 0
        sent = client.send("produce", 9, **to_produce(("t", 0, batch(bytes(200_000)))))
        async with listening.client() as other:
            await soon(lambda: bool(room._newcomers or room._growing))
            assert (await produced(other, ("t", 0, batch(b"y"))))[0]["base_offset"] == 1
        room.leave(100_000)
        reply = await client.receive("produce", 9, sent)
        assert reply["responses"][0]["partition_responses"][0]["base_offset"] == 2
        await soon(lambda: room.bytes == 0)


async def test_a_request_that_finds_no_room_ends_the_connection(open_listener: OpenListener):
    async with open_listener(bodies_bytes_max="100000", bodies_wait_ms="1") as listening, listening.client() as client:
        listening.gateway.bodies.room.claim(100_000)
        await announce(client, 200_000, bytes(190_000))
        assert await client.hung_up()


async def test_a_request_has_its_time_however_it_trickles(open_listener: OpenListener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listener, "SWEEP_SECONDS", 0.01)
    async with open_listener(body_timeout_ms="300") as listening, listening.client() as client:
        await announce(client, 50_000_000, b"abc")
        with suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                while not client.reader.at_eof():
                    client.writer.write(b"x")
                    await client.writer.drain()
                    await asyncio.sleep(0)
        await soon(lambda: listening.gateway.bodies.room.bytes == 0)


async def test_the_time_that_a_connection_is_not_read_from_is_not_the_clients(
    open_listener: OpenListener, served: list[Connection], monkeypatch: pytest.MonkeyPatch
):
    """Half a request stands behind many, which wait for one that is slow."""
    clock = SimpleNamespace(now=1_000.0, perf_counter=time.perf_counter)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(connection, "time", clock)
    monkeypatch.setattr(listener, "SWEEP_SECONDS", PATIENCE_S)
    async with open_listener() as listening, listening.client() as client:
        await topic(client, "t")
        waiting = client.send("fetch", 12, **to_fetch(("t", 0, 0), max_wait=60_000))
        asked = [client.send("api_versions", 3) for _ in range(connection.WAITING_FRAMES_MAX)]
        last = request_bytes("api_versions", 3, {}, 99)
        await announce(client, len(last), last[:5])
        await soon(lambda: served[0]._paused_since is not None)
        clock.now += 5
        assert served[0].frame_age(clock.now) == 0
        async with listening.client() as other:
            await produced(other, ("t", 0, batch(b"x")))
        await client.receive("fetch", 12, waiting)
        for each in asked:
            await client.receive("api_versions", 3, each)
        await soon(lambda: served[0]._begun == clock.now)
        clock.now += 5
        assert served[0].frame_age(clock.now) == 5
        client.writer.write(last[5:])
        await client.receive("api_versions", 3, 99)
        assert served[0].frame_age(clock.now + 5) == 0


async def test_requests_that_wait_for_their_commits_are_not_kept(
    open_listener: OpenListener, monkeypatch: pytest.MonkeyPatch
):
    alive = 0

    class Frame(bytes):
        def __new__(cls, data: bytes) -> Frame:
            nonlocal alive
            alive += 1
            return super().__new__(cls, data)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    feed = FrameBuffer.feed
    monkeypatch.setattr(FrameBuffer, "feed", lambda *asked: [Frame(each) for each in feed(*asked)])
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    async with open_listener() as listening, listening.client() as client:
        await topic(client, "t")
        path = listening.gateway.broker.produce_path
        for _ in range(path.settings.commits_in_flight_max):
            await path.commits.acquire()
        batches = (batch(bytes(100_000)), batch(b"x", codec=GZIP), batch(*[b"x"] * 1_000), bytes(broken))
        asked = [client.send("produce", 9, **to_produce(("t", 0, each), ("t", 0, batch(b"y")))) for each in batches]
        (leader,) = await _leaders(listening)
        await soon(lambda: len(leader._waiting) == 2 * len(asked) - 1)
        await soon(lambda: alive == 0)
        assert listening.gateway.bodies.room.bytes == 0
        for _ in range(path.settings.commits_in_flight_max):
            path.commits.release()
        for each in asked:
            await client.receive("produce", 9, each)


async def _leaders(listening: Listening) -> list[Any]:
    leaders = listening.gateway.broker.produce_path._leaders
    await soon(lambda: bool(leaders))
    return list(leaders.values())


async def test_batches_are_unpacked_where_there_is_room(open_listener: OpenListener):
    """Many connections with a few bytes each that stand for very many, all of which wait for their place in line."""
    size, clients = 300_000, 8
    async with open_listener(bodies_bytes_max="1000000") as listening, AsyncExitStack() as stack:
        room, in_flight = listening.gateway.bodies.room, listening.gateway.broker.produce_path.in_flight
        taken = listening.gateway.broker.settings.in_flight_bytes_max
        connected = [await stack.enter_async_context(listening.client()) for _ in range(clients)]
        await topic(connected[0], "t")
        in_flight.claim(taken)
        packed = batch(bytes(size), codec=GZIP)
        sending = [asyncio.ensure_future(produced(each, ("t", 0, packed))) for each in connected]
        await soon(lambda: len(in_flight._newcomers) + len(room._growing) + len(room._newcomers) == clients)
        assert 0 < len(in_flight._newcomers) < clients
        assert room.bytes <= 1_000_000 + 2 * size
        in_flight.leave(taken)
        outcomes = await asyncio.gather(*sending)
        assert sorted(each["base_offset"] for (each,) in outcomes) == list(range(clients))
        await soon(lambda: room.bytes == 0)


async def test_a_batch_without_room_is_refused_for_now(open_listener: OpenListener):
    async with open_listener(bodies_bytes_max="100000", bodies_wait_ms="1") as listening, listening.client() as client:
        await topic(client, "t")
        room = listening.gateway.bodies.room
        room.claim(200_000)
        room._beyond = Share(room)  # somebody else goes beyond already
        outcome = (await produced(client, ("t", 0, batch(b"x", codec=GZIP))))[0]
        assert outcome["error_code"] == ErrorCode.REQUEST_TIMED_OUT.number
        room.end(room._beyond)
        room.leave(200_000)
        assert (await produced(client, ("t", 0, batch(b"x", codec=GZIP))))[0]["base_offset"] == 0


async def test_reading_stops_while_much_waits(open_listener: OpenListener, served: list[Connection]):
    async with open_listener() as listening, listening.client() as client, listening.client() as other:
        await topic(client, "t")
        waiting = client.send("fetch", 12, **to_fetch(("t", 0, 0), max_wait=60_000))
        asked = [client.send("init_producer_id", 4, transactional_id="x" * 30_000) for _ in range(60)]
        await soon(lambda: served[0]._paused_since is not None)
        assert 0 < len(served[0]._waiting) < len(asked)
        await produced(other, ("t", 0, batch(b"x")))
        await client.receive("fetch", 12, waiting)
        for each in asked:
            await client.receive("init_producer_id", 4, each)
        assert served[0]._paused_since is None
        await soon(lambda: listening.gateway.bodies.room.bytes == 0)


async def test_so_many_replies_wait_for_their_commits_and_no_more(
    open_listener: OpenListener, served: list[Connection], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "REPLIES_WAITING_MAX", 3)
    async with open_listener() as listening, listening.client() as client:
        await topic(client, "t")
        path = listening.gateway.broker.produce_path
        for _ in range(path.settings.commits_in_flight_max):
            await path.commits.acquire()
        asked = [client.send("produce", 9, **to_produce(("t", 0, batch(b"x")))) for _ in range(8)]
        await soon(lambda: len(served[0]._waiting) == 8 - 3)
        assert len(served[0]._due) == 3
        for _ in range(path.settings.commits_in_flight_max):
            path.commits.release()
        replies = [await client.receive("produce", 9, each) for each in asked]
        assert [each["responses"][0]["partition_responses"][0]["base_offset"] for each in replies] == list(range(8))


# Replies on their way out.


async def test_a_reader_that_takes_nothing_is_not_waited_for(open_listener: OpenListener):
    async with open_listener(reply_timeout_ms="50") as listening, listening.client() as other:
        await topic(other, "t")
        for _ in range(20):
            await produced(other, ("t", 0, batch(bytes(900_000))))
        async with listening.client() as slow:
            wanted = to_fetch(("t", 0, 0), max_bytes=20_000_000)
            wanted["topics"][0]["partitions"][0]["partition_max_bytes"] = 20_000_000
            slow.send("fetch", 12, **wanted)
            room = listening.gateway.replies.room
            await soon(lambda: room.bytes > 0)
            async with asyncio.timeout(PATIENCE_S):
                while room.bytes:
                    await other.ask("api_versions", 3)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await slow.frame()


async def test_a_long_reply_leaves_in_portions(client: PlainClient, monkeypatch: pytest.MonkeyPatch):
    await topic(client, "t")
    await produced(client, ("t", 0, batch(*[bytes(1_000)] * 900)))
    monkeypatch.setattr(connection, "PIECE_BYTES", 1_000)
    handed_over: list[int] = []
    portions = connection._portions

    def noted(pieces: connection.Pieces) -> Any:
        for portion in portions(pieces):
            handed_over.append(sum(map(len, portion)))
            yield portion

    monkeypatch.setattr(connection, "_portions", noted)
    assert values((await fetched(client, ("t", 0, 0)))[0]["records"]) == [bytes(1_000)] * 900
    assert len(handed_over) > 3
    assert max(handed_over) <= PIECE_BYTES + 1_000


async def test_a_fetch_takes_the_room_that_is_free(open_listener: OpenListener):
    async with open_listener(replies_bytes_max="4000000") as listening, listening.client() as client:
        await topic(client, "t")
        for _ in range(4):
            await produced(client, ("t", 0, batch(*[bytes(9_000)] * 100)))
        listening.gateway.replies.room.claim(2_500_000)
        wanted = to_fetch(("t", 0, 0))
        wanted["topics"][0]["partitions"][0]["partition_max_bytes"] = 50_000_000
        reply = await client.ask("fetch", 12, **wanted)
        found = values(reply["responses"][0]["partitions"][0]["records"])
        assert 1_400_000 < sum(len(each or b"") for each in found) <= 1_500_000


async def test_a_fetch_that_finds_no_room_is_answered_without_records(open_listener: OpenListener):
    async with (
        open_listener(replies_bytes_max="4000000", replies_wait_ms="1") as listening,
        listening.client() as client,
    ):
        await topic(client, "t")
        await produced(client, ("t", 0, batch(b"x")))
        room = listening.gateway.replies.room
        room.claim(3_900_000)
        found = await fetched(client, ("t", 0, 0), ("t", 3, 0), max_wait=60_000)
        assert [each["error_code"] for each in found] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number]
        assert (found[0]["high_watermark"], values(found[0]["records"])) == (1, [])
        room.leave(3_900_000)
        assert values((await fetched(client, ("t", 0, 0)))[0]["records"]) == [b"x"]
        await soon(lambda: room.bytes == 0)


async def test_readers_that_wait_for_one_commit_take_room_before_they_read_it(
    open_listener: OpenListener, monkeypatch: pytest.MonkeyPatch
):
    readers, limit = 20, 1_500_000
    async with open_listener(replies_bytes_max=str(limit)) as listening, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(listening.client()) for _ in range(readers)]
        await topic(clients[0], "t")
        room, wait_past = listening.gateway.replies.room, listening.gateway.broker.fetch_path.wait_past
        most = waiting = 0

        async def noted(*asked: Any) -> bool:
            nonlocal waiting
            waiting += 1
            assert room.bytes == 0, "who waits for a first record has no room"
            return await wait_past(*asked)

        def counted(fetched: Any, codec: int) -> Any:
            nonlocal most
            most = max(most, room.bytes)
            return write_batches(fetched, codec)

        monkeypatch.setattr(listening.gateway.broker.fetch_path, "wait_past", noted)
        monkeypatch.setattr(fetch, "write_batches", counted)
        asked = [each.send("fetch", 12, **to_fetch(("t", 0, 0), max_wait=60_000)) for each in clients]
        await soon(lambda: waiting == readers)
        async with listening.client() as other:
            await produced(other, ("t", 0, batch(bytes(900_000))))
        for client, each in zip(clients, asked, strict=True):
            reply = await client.receive("fetch", 12, each)
            assert values(reply["responses"][0]["partitions"][0]["records"]) == [bytes(900_000)]
        assert 900_000 <= most <= limit
        await soon(lambda: room.bytes == 0)
