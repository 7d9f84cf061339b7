"""Kinds of routes: how a request gets from its path to its handler.

A direct route hands its handler the request and nothing else, for the path that thousands of requests a second take:
parameters are the handler's to read, and what they are is said to the API's description by hand. A bounded route leaves
all of that to FastAPI, but has the body read within the limits that hold for every body, and a lower one on its size:
FastAPI reads it where everybody waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from ingest_api.gateway import gateway_of

SMALL_BODY_BYTES_MAX = 1 << 20


class DirectRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        return self.endpoint


class BoundedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def within_limits(request: Request) -> Response:
            announced = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
            if not announced:
                return await handle(request)
            async with gateway_of(request).bodies.read(request, SMALL_BODY_BYTES_MAX) as body:
                unread = [body]

                async def whole() -> Message:
                    # After the body the channel itself is asked: who waits for the client to leave waits there.
                    return _message(unread.pop()) if unread else await request.receive()

                return await handle(Request(request.scope, whole))

        return within_limits


def _message(body: bytes) -> Message:
    return {"type": "http.request", "body": body, "more_body": False}


def path_parameter(name: str, kind: str, doc: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": doc, "schema": {"type": kind}}


def optional_parameter(name: str, place: str, schema: dict[str, Any], doc: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "description": doc, "schema": schema}
