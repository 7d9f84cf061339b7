"""Bodies that arrive slowly, or never: what they hold is what has arrived, and many of them never stop each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message

from ingest_api.bodies import Bodies
from ingest_api.settings import GatewaySettings
from lakelog.errors import ErrorCode, LakelogError
from tests.http.conftest import OpenGateway, Served
from tests.http.requests import JSON, error_of, produce, records

TOPIC = "/topics/orders"
MIB = 1 << 20
PATIENCE_MS = 60_000


class Sender:
    """Sends a piece of a body each time that it is told to."""

    def __init__(self, length: int | None = None) -> None:
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        self.request = Request({"type": "http", "headers": headers}, self._pieces.get)

    def send(self, piece: bytes, *, last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": piece, "more_body": not last})


async def length_of(bodies: Bodies, sender: Sender) -> int:
    async with bodies.read(sender.request) as body:
        return len(body)


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
