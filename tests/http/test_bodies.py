"""Bodies that arrive slowly, or never: what they hold is what has arrived, and many of them never stop each other."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pyarrow as pa
import pytest
import zstandard
from starlette.requests import Request
from starlette.types import Message

from ingest_api.bodies import Bodies
from ingest_api.settings import GatewaySettings
from lakelog.errors import ErrorCode, LakelogError
from lakelog.flow import Share
from tests.http.conftest import OpenGateway, Served
from tests.http.requests import ARROW, JSON, arrow_body, error_of, produce, records

TOPIC = "/topics/orders"
MIB = 1 << 20
PATIENCE_MS = 60_000


class Sender:
    """Sends a piece of a body each time that it is told to."""

    def __init__(self, length: int | None = None, encoding: str = "identity") -> None:
        headers = [(b"content-encoding", encoding.encode())]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        self.request = Request({"type": "http", "headers": headers}, self._pieces.get)

    def send(self, piece: bytes, *, last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": piece, "more_body": not last})


async def length_of(bodies: Bodies, sender: Sender) -> int:
    async with bodies.read(sender.request) as body:
        return len(body)


@asynccontextmanager
async def room_for_others(bodies: Bodies, free_bytes: int) -> AsyncIterator[None]:
    """Room is left for so many bytes, and none beyond: that place is taken."""
    share, most = Share(bodies.room), bodies.settings.bodies_bytes_max
    await share.take(most)
    await share.take(1)
    share.keep(most - free_bytes)
    try:
        yield
    finally:
        share.keep(0)


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_senders_that_stall_do_not_stop_the_others(open_gateway: OpenGateway) -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    def begin(client: Served) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(client.post(TOPIC, content=stalled(), headers={"Content-Type": JSON}))

    async with open_gateway(bodies_wait_ms="20") as client:
        waiting = [begin(client) for _ in range(20)]
        await turns()
        assert (await produce(client, TOPIC, records("v"))).status_code == 200
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert client.gateway.bodies.room.bytes == 0


@pytest.mark.parametrize("length", [None, 64 * MIB], ids=["chunked", "announced"])
async def test_a_body_holds_what_has_arrived(length: int | None) -> None:
    bodies, sender = Bodies(GatewaySettings()), Sender(length)
    reading = asyncio.create_task(length_of(bodies, sender))
    await turns()
    assert bodies.room.bytes <= MIB
    for count in range(1, 5):
        sender.send(bytes(MIB))
        await turns()
        assert bodies.room.bytes == count * MIB
    sender.send(b"", last=True)
    assert await reading == 4 * MIB
    assert bodies.room.bytes == 0


async def test_a_small_body_of_unknown_length_holds_no_more_than_it_is() -> None:
    bodies, sender = Bodies(GatewaySettings()), Sender()
    sender.send(bytes(10), last=True)
    async with bodies.read(sender.request):
        assert bodies.room.bytes == 10
    assert bodies.room.bytes == 0


async def test_half_read_bodies_that_are_too_much_together_all_become_whole() -> None:
    bodies = Bodies(GatewaySettings(bodies_bytes_max=8 * MIB, bodies_wait_ms=PATIENCE_MS))
    senders = [Sender(4 * MIB if number % 2 else None) for number in range(8)]
    reading = [asyncio.create_task(length_of(bodies, sender)) for sender in senders]
    for number in range(4):
        for sender in senders:
            sender.send(bytes(MIB), last=number == 3)
        await turns()
        assert bodies.room.bytes <= 12 * MIB, "the room, and one body beyond it"
    assert await asyncio.gather(*reading) == [4 * MIB] * 8
    assert bodies.room.bytes == 0


async def test_a_body_that_finds_no_more_room_is_refused_and_gives_back_what_it_holds() -> None:
    bodies = Bodies(GatewaySettings(bodies_bytes_max=2 * MIB, bodies_wait_ms=10))
    stalled, refused = Sender(), Sender()
    reading = [asyncio.create_task(length_of(bodies, sender)) for sender in (stalled, refused)]
    stalled.send(bytes(2 * MIB))
    await turns()
    refused.send(bytes(2 * MIB), last=True)
    with pytest.raises(LakelogError, match="bodies_bytes_max") as caught:
        await reading[1]
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert bodies.room.bytes == 2 * MIB
    stalled.send(b"", last=True)
    assert await reading[0] == 2 * MIB
    assert bodies.room.bytes == 0


async def test_a_room_smaller_than_the_first_piece_takes_one_body_at_a_time(open_gateway: OpenGateway) -> None:
    async with open_gateway(bodies_bytes_max="10", bodies_wait_ms="20") as client:
        assert (await produce(client, TOPIC, records("v"))).status_code == 200
        client.gateway.bodies.room.claim(1)
        assert error_of(await produce(client, TOPIC, records("v")))[:2] == (429, 429)


PACKED = {"gzip": gzip.compress(bytes(4 * MIB)), "zstd": zstandard.compress(bytes(4 * MIB))}


@pytest.mark.parametrize("encoding", PACKED)
async def test_compressed_bodies_unpack_as_far_as_there_is_room(encoding: str) -> None:
    bodies, most = Bodies(GatewaySettings(bodies_bytes_max=8 * MIB, bodies_wait_ms=PATIENCE_MS)), 0

    async def read() -> int:
        nonlocal most
        sender = Sender(encoding=encoding)
        sender.send(PACKED[encoding], last=True)
        async with bodies.read(sender.request) as body:
            await turns()
            most = max(most, bodies.room.bytes)
            return len(body)

    assert await asyncio.gather(*(read() for _ in range(40))) == [4 * MIB] * 40
    assert most <= 13 * MIB, "the room, and one body beyond it with the room for its next piece"
    assert bodies.room.bytes == 0


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(pa.array(["x" * 100_000]), id="packed"),
        pytest.param(pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), ["x" * 1000]), id="shared"),
    ],
)
async def test_arrow_that_stands_for_more_than_it_is_finds_room_for_that(
    open_gateway: OpenGateway, values: pa.Array
) -> None:
    body = arrow_body(pa.table({"value": values}), "zstd")
    assert len(body) < 5_000
    async with open_gateway(bodies_bytes_max="1000000", bodies_wait_ms="20") as client:
        async with room_for_others(client.gateway.bodies, 90_000):
            status, _, message = error_of(await produce(client, TOPIC, body, ARROW))
            assert (status, "bodies_bytes_max" in message) == (429, True)
        async with room_for_others(client.gateway.bodies, 120_000):
            assert (await produce(client, TOPIC, body, ARROW)).status_code == 200
        assert client.gateway.bodies.room.bytes == 0


async def test_what_is_no_record_has_a_limit_of_its_own(open_gateway: OpenGateway) -> None:
    body = b'{"topic_name": "orders", "config": {"retention.ms": "1"' + b" " * MIB + b"}}"
    async with open_gateway() as client:
        for packed, encoding in ((body, "identity"), (gzip.compress(body), "gzip")):
            reply = await produce(client, "/admin/topics", packed, Content_Encoding=encoding)
            assert error_of(reply) == (413, 413, f"the body is larger than the {MIB} bytes that are taken here")
        assert (await client.get("/topics")).json() == []
