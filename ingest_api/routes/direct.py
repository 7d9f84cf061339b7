"""A route that hands its handler the request and nothing else, for the path that thousands of requests a second take.

Parameters are the handler's to read, and what they are is said to the API's description by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response


class DirectRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        return self.endpoint


def path_parameter(name: str, kind: str, doc: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": doc, "schema": {"type": kind}}


def optional_parameter(name: str, place: str, schema: dict[str, Any], doc: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "description": doc, "schema": schema}
