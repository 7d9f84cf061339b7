"""Heads of requests over real connections: too large, too late, and all that is neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
import pytest_asyncio
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from ingest_api import heads
from ingest_api.heads import HEAD_BYTES_MAX, BoundedHeads
from lakelog_cli.local_gateway import LocalGateway
from tests.http.requests import error_of

KIB = 1024
REQUEST_LINE = b"GET / HTTP/1.1\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Served:
    """Answers with how many bytes of body there were; `/late` when it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.port = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/late":
            await self.told.wait()
        body = await Request(scope, receive).body()
        await PlainTextResponse(f"{len(body)} bytes")(scope, receive, send)


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    app = Served()
    config = uvicorn.Config(
        app, http=BoundedHeads, ws="none", lifespan="off", access_log=False, log_config=None, timeout_keep_alive=1
    )
    state, loop = ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHeads(config, state, {}, loop), "127.0.0.1")
    async with server:
        app.port = server.sockets[0].getsockname()[1]
        yield app


async def replies(served: Served, *pieces: bytes, until: bytes = b"") -> bytes:
    """All that comes back to these pieces: to the end of the connection, or until it ends like this."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.readuntil(until) if until else await reader.read()
    finally:
        writer.close()


def head(size: int, line: bytes = REQUEST_LINE) -> bytes:
    """A whole head of so many bytes."""
    name, end = b"X: ", b"\r\n\r\n"
    return line + name + b"x" * (size - len(line) - len(name) - len(end)) + end


def in_one_piece(data: bytes) -> list[bytes]:
    return [data]


def in_many(data: bytes) -> list[bytes]:
    return [data[start : start + 1000] for start in range(0, len(data), 1000)]


@pytest.mark.parametrize("cut", [in_one_piece, in_many])
async def test_a_head_may_be_so_large_and_no_larger(served: Served, cut: Callable[[bytes], list[bytes]]) -> None:
    fits = await replies(served, *cut(head(HEAD_BYTES_MAX)), until=b"0 bytes")
    assert fits.startswith(b"HTTP/1.1 200")
    refused = await replies(served, *cut(head(HEAD_BYTES_MAX + 1)[:-1]))
    assert refused.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b'{"error_code":431,"message":"the request\'s head is larger than 65536 bytes"}' in refused


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"GET /" + b"x" * HEAD_BYTES_MAX, id="a path"),
        pytest.param(REQUEST_LINE + b"x" * HEAD_BYTES_MAX, id="a name"),
        pytest.param(REQUEST_LINE + b"X: " + b"x" * HEAD_BYTES_MAX, id="a value"),
        pytest.param(REQUEST_LINE + b"X: x\r\n" * (HEAD_BYTES_MAX // 5), id="many headers"),
        pytest.param(b"\r\n" * (HEAD_BYTES_MAX // 2), id="nothing but ends of lines"),
    ],
)
async def test_a_head_without_an_end_is_not_kept(served: Served, begun: bytes) -> None:
    assert (await replies(served, begun[:HEAD_BYTES_MAX])).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("cut", [in_one_piece, in_many])
async def test_what_is_of_a_body_does_not_count(served: Served, cut: Callable[[bytes], list[bytes]]) -> None:
    body = bytes(300 * KIB)
    sized = head(40 * KIB, b"POST / HTTP/1.1\r\nContent-Length: %d\r\n" % len(body)) + body
    chunked = CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    for request in (sized, chunked):
        assert (await replies(served, *cut(request), until=b"%d bytes" % len(body))).startswith(b"HTTP/1.1 200")


async def test_each_request_of_a_connection_has_a_head_of_its_own(served: Served) -> None:
    for pieces in ([head(40 * KIB)] * 3, [head(40 * KIB) * 3]):
        reply = await replies(served, *pieces, head(100, b"POST / HTTP/1.0\r\n"))
        assert reply.count(b"HTTP/1.1 200") == 4


@pytest.mark.parametrize("behind", [b"0\r\nX: ", b"1;"], ids=["trailers", "extensions"])
async def test_what_is_behind_a_chunk_ends_too(served: Served, behind: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(CHUNKED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
    await reader.readuntil(b"100 Continue\r\n\r\n")
    writer.write(behind.ljust(HEAD_BYTES_MAX, b"x"))
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    ("pieces", "answers"),
    [
        ([], 0),
        ([REQUEST_LINE + b"X: "], 0),
        ([REQUEST_LINE, b"X", b": "], 0),
        ([REQUEST_LINE + b"\r\n" + REQUEST_LINE], 1),
        ([REQUEST_LINE + b"\r\n", b"\r\n"], 1),
    ],
    ids=["nothing", "half a head", "in pieces", "half a head behind a request", "an empty line"],
)
async def test_a_head_that_does_not_come_ends_the_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], answers: int
) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS_MAX", 0.02)
    assert (await replies(served, *pieces)).count(b"HTTP/1.1 200") == answers


async def test_who_waits_for_a_reply_has_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS_MAX", 0.02)
    waiting = asyncio.create_task(replies(served, b"GET /late HTTP/1.1\r\n", b"\r\n", until=b"0 bytes"))
    assert await replies(served, REQUEST_LINE) == b""
    assert await replies(served, REQUEST_LINE) == b"", "twice as long as a head may take"
    served.told.set()
    assert (await waiting).startswith(b"HTTP/1.1 200")


def test_the_gateway_has_the_limit(shared_process: LocalGateway) -> None:
    reply = httpx.get(f"{shared_process.url}/topics", headers={"X": "x" * HEAD_BYTES_MAX})
    assert error_of(reply)[:2] == (431, 431)
    assert httpx.get(f"{shared_process.url}/topics", headers={"X": "x" * (HEAD_BYTES_MAX - KIB)}).status_code == 200
