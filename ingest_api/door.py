"""The door that every request comes through: how many at once, how long each took, and a line in the log for it."""

from __future__ import annotations

import logging
import time
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingest_api.errors import HttpError, error_response
from ingest_api.metrics import Metrics
from ingest_api.patience import within
from ingest_api.settings import GatewaySettings

log = logging.getLogger(__name__)
access = logging.getLogger("lakelog.access")

# What tells of the gateway's health has to answer also when there is no room for anything else.
ALWAYS_OPEN = frozenset({"/healthy", "/ready", "/metrics"})


class Door:
    def __init__(self, app: ASGIApp, settings: GatewaySettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, sent_bytes, stalled = 500, 0, False

        async def watched(message: Message) -> None:
            nonlocal status, sent_bytes, stalled
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent_bytes += len(message.get("body", b""))
            try:
                await within(self._settings.reply_timeout_ms / 1000, _sent(send, message))
            except TimeoutError:
                stalled = True
                raise

        started = time.perf_counter()
        self._inside += 1
        self._metrics.requests_active.inc()
        try:
            if self._inside > self._settings.requests_max and scope["path"] not in ALWAYS_OPEN:
                self._metrics.refused.labels("requests_max").inc()
                refusal = HttpError(503, f"{self._settings.requests_max} requests are under way; come back shortly")
                await error_response(refusal)(scope, receive, watched)
            else:
                await self._app(scope, receive, watched)
        except Exception:
            # A reply that was begun and is not ended closes the connection, which is all that is left to do for it.
            if not stalled:
                raise
            self._metrics.refused.labels("reply_timeout_ms").inc()
            log.warning("%s: the reader did not take its reply", scope["path"])
        finally:
            self._inside -= 1
            self._metrics.requests_active.dec()
            self._record(scope, status, sent_bytes, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, sent_bytes: int, seconds: float) -> None:
        # Unknown paths share one label, or any visitor could add to the metrics without end.
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.answered(method, route, status, seconds)
        if self._settings.access_log == "off":
            return
        client = scope.get("client")
        sender, milliseconds = client[0] if client else None, round(seconds * 1000, 2)
        if self._settings.access_log == "text":
            # A path may hold anything, also what looks like the next line of a log.
            path = quote(scope["path"])
            access.info(f"{sender} {scope['method']} {path} {status} {sent_bytes} bytes {milliseconds} ms")
            return
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "client": sender,
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode("latin-1"),
            "status": status,
            "bytes": sent_bytes,
            "ms": milliseconds,
        }
        access.info(msgspec.json.encode(fields).decode())


async def _sent(send: Send, message: Message) -> None:
    await send(message)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
