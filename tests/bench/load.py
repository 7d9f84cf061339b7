"""Load on a gateway over plain keep-alive connections: requests that were put together before, sent as they are.

Runs in a process of its own, so that what it costs is not taken for the gateway's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import uvloop


@dataclass(frozen=True, slots=True)
class Load:
    """`requests` go round and round over each of the connections, for so many seconds after a warm-up."""

    url: str
    requests: list[bytes]
    connections: int
    seconds: float
    warmup_s: float = 1.0


@dataclass(slots=True)
class Outcome:
    seconds: float
    latencies_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)  # when, from the beginning on
    reply_bytes: int = 0

    @property
    def requests_per_second(self) -> float:
        return len(self.latencies_s) / self.seconds

    def rates(self, parts: int = 5) -> list[float]:
        """Requests a second in each part of the time, to see how steady it was."""
        each_s = self.seconds / parts
        counts = Counter(int(at / each_s) for at in self.answered_s if at < self.seconds)
        return [counts[part] / each_s for part in range(parts)]


def request(url: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def run(load: Load) -> Outcome:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (load,))


def _run(load: Load) -> Outcome:
    return uvloop.run(_send_all(load))


async def _send_all(load: Load) -> Outcome:
    begin = time.perf_counter() + load.warmup_s
    outcome = Outcome(load.seconds)
    await asyncio.gather(*(_send(load, begin, begin + load.seconds, outcome) for _ in range(load.connections)))
    return outcome


async def _send(load: Load, begin: float, end: float, outcome: Outcome) -> None:
    connection = await Connection.open(load.url)
    number = 0
    while (sent := time.perf_counter()) < end:
        body = await connection.exchange(load.requests[number % len(load.requests)])
        number += 1
        if sent >= begin:
            outcome.latencies_s.append(time.perf_counter() - sent)
            outcome.answered_s.append(time.perf_counter() - begin)
            outcome.reply_bytes += len(body)
    connection.close()


class Connection(asyncio.BufferedProtocol):
    """One request at a time; a reply whose length is in its head, or that comes in chunks. Not 2xx is an error."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._room = bytearray(256 * 1024)
        self._body_at = self._end = -1
        self._reply: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, url: str) -> Connection:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    async def exchange(self, request: bytes) -> bytes:
        assert self._transport is not None
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._reply

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type

    def connection_lost(self, error: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionError(f"the gateway closed the connection: {error}"))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._data += memoryview(self._room)[:nbytes]
        if self._body_at < 0 and not self._read_head():
            return
        chunked = self._end < 0
        if not (self._data.endswith(b"0\r\n\r\n") if chunked else len(self._data) >= self._end):
            return
        assert self._reply is not None
        status, body = self._data[9:12], bytes(self._data[self._body_at :])
        self._data.clear()
        self._body_at = self._end = -1
        if status[:1] == b"2":
            self._reply.set_result(body)
        else:
            self._reply.set_exception(RuntimeError(f"{status.decode()}: {body[:200]!r}"))

    def _read_head(self) -> bool:
        head_end = self._data.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        head = bytes(self._data[:head_end]).lower()
        self._body_at = head_end + 4
        if head.startswith(b"http/1.1 204"):  # has neither
            self._end = self._body_at
            return True
        _, found, length = head.partition(b"content-length:")
        if found:
            self._end = self._body_at + int(length.split(b"\r\n", 1)[0])
        return True
