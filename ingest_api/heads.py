"""Heads of requests, within limits of size and time.

A request comes to the door when its head is whole. Until then it is nobody's but the protocol's, and uvicorn's takes of
a head whatever comes, for as long as it comes. So the bytes are counted here that are not of a body: of a head, and of
what stands between the chunks of a body and behind them.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle, Transport
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from ingest_api.errors import HttpError, error_body

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS_MAX = 30


class BoundedHeads(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_head = True
        self._bytes = 0  # since the last that was of a body, or the last of a head
        self._limit: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_to_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_to_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        room = HEAD_BYTES_MAX - self._bytes
        if self._in_head and len(data) > room:
            self._take(data[:room])
            if not self.transport.is_closing():
                self.data_received(data[room:])
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        if self._bytes >= HEAD_BYTES_MAX:
            self._refuse()
        elif self._in_head and self._bytes:
            self._begin_to_wait()

    # What the parser tells.

    def on_message_begin(self) -> None:
        self._bytes = self._bytes or 1  # it may begin right behind a request that is whole
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._bytes = False, 0
        self._end_to_wait()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._bytes = True, 0
        super().on_message_complete()

    # What becomes of a head without an end. Most are whole at once, and those cost no timer.

    def _begin_to_wait(self) -> None:
        if self._limit is None:
            self._limit = self.loop.call_later(HEAD_SECONDS_MAX, self.transport.close)

    def _end_to_wait(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _refuse(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # or it would be in the middle of another reply
            body = error_body(HttpError(431, f"the request's head is larger than {HEAD_BYTES_MAX} bytes"))
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[431] + head + body)
        self.transport.close()
