"""A lane of its own for produce, which thousands of requests a second take and which FastAPI would take longer over.

It serves the two produce paths and hands everything else on. The same handlers stand in the application too, where the
API's description comes from.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ingest_api.errors import HttpError, as_http, error_response, unexpected
from ingest_api.routes.produce import PARTITION_PATH, TOPIC_PATH, produce
from lakelog.errors import LakelogError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaneRoute:
    """What the door reads a request's route from."""

    path: str


_TO_TOPIC, _TO_PARTITION = LaneRoute(TOPIC_PATH), LaneRoute(PARTITION_PATH)


class FastLane:
    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/topics/"):
            await self._app(scope, receive, send)
            return
        match scope["path"].split("/"):
            case ["", "topics", topic] if topic:
                partition = None
            case ["", "topics", topic, "partitions", partition] if topic and partition:
                pass
            case _:
                await self._app(scope, receive, send)
                return
        scope["app"] = self._app
        scope["route"] = _TO_TOPIC if partition is None else _TO_PARTITION
        try:
            response = await produce(Request(scope, receive), topic, partition)
        except LakelogError as error:
            response = error_response(as_http(error))
        except HttpError as error:
            response = error_response(error)
        except Exception:
            log.exception("%s failed", scope["path"])
            response = error_response(unexpected())
        await response(scope, receive, send)
