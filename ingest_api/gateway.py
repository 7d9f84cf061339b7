"""What the routes share: the broker, the groups, the settings, the limits, and the word that it is time to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from starlette.requests import Request

from consumer_groups.service import GroupService
from ingest_api.bodies import Bodies
from ingest_api.consumers.registry import Consumers
from ingest_api.metrics import Metrics
from ingest_api.replies import Replies
from ingest_api.settings import LoadedSettings
from lakelog.broker import Broker

T = TypeVar("T")

# Work on bodies up to this size is done in place: handing it to a thread would cost more.
IN_PLACE_BYTES = 128 * 1024


class Gateway:
    def __init__(self, broker: Broker, groups: GroupService, settings: LoadedSettings, metrics: Metrics) -> None:
        self.broker = broker
        self.groups = groups
        self.settings = settings.gateway
        self.metrics = metrics
        self.consumers = Consumers(broker, groups, settings.gateway)
        self.bodies = Bodies(settings.gateway)
        self.replies = Replies(settings.gateway)
        self.stopping = asyncio.Event()

    async def compute(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Work on so many bytes, off the event loop if they are many: in the few threads that there are for it, because
        each of them keeps for itself what memory it once had.
        """
        return work() if size_bytes <= IN_PLACE_BYTES else await self.broker.compute(work)

    async def unless_stopping(self, waiting: Awaitable[T], reader: Request | None = None) -> T | None:
        """The outcome of something that may wait long, or None as soon as the process is to stop or its reader left."""
        task = asyncio.ensure_future(waiting)
        others = [asyncio.ensure_future(self.stopping.wait())]
        if reader is not None:
            others.append(asyncio.ensure_future(_gone(reader)))
        try:
            await asyncio.wait((task, *others), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, *others):
                each.cancel()
            await asyncio.wait((task, *others))  # whoever goes on meets nobody who is still at it


async def _gone(reader: Request) -> Literal[True]:
    while (await reader.receive())["type"] != "http.disconnect":
        pass
    return True


def gateway_of(request: Request) -> Gateway:
    gateway = request.app.state.gateway
    assert isinstance(gateway, Gateway)
    return gateway


def address_of(request: Request) -> str:
    """What links in a reply begin with: the address that the gateway is known by, or else the one that was asked."""
    return (gateway_of(request).settings.public_url or str(request.base_url)).rstrip("/")
