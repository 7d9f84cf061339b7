"""The consumers that this process holds: made, found by name, deleted, and let go of when nobody asks for them.

Owns their number and their idle time. A restart forgets them all, as REST Proxy's does; what they committed stays.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from types import TracebackType
from typing import Self

from consumer_groups.service import GroupService
from ingest_api.consumers.consumer import Consumer, no_such_consumer
from ingest_api.consumers.member import Identity, Member
from ingest_api.consumers.options import ConsumerOptions
from ingest_api.errors import HttpError
from ingest_api.settings import GatewaySettings
from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError

log = logging.getLogger(__name__)

ALREADY_EXISTS = 40902
# Consumers are let go of at most so much later than they might be.
LOOK_MS_MOST = 1_000


class Consumers:
    """Use it as an async context manager around the serving of requests."""

    def __init__(self, broker: Broker, groups: GroupService, settings: GatewaySettings) -> None:
        self._broker = broker
        self._groups = groups
        self._settings = settings
        self._consumers: dict[tuple[str, str], Consumer] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._consumers)

    def create(self, group: str, name: str | None, options: ConsumerOptions, client_host: str) -> tuple[str, Consumer]:
        """A new consumer of a group, by the name that it is asked for under."""
        name = name or f"rest-consumer-{uuid.uuid4()}"
        if (group, name) in self._consumers:
            raise HttpError(409, f"group {group!r} has a consumer {name!r} already", ALREADY_EXISTS)
        if len(self._consumers) >= self._settings.consumers_max:
            raise LakelogError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"there are {len(self._consumers)} consumers, which is consumers_max; delete some, or let them expire",
            )
        session_timeout_ms = self._session_timeout_ms(options)
        identity = Identity(
            group_id=group,
            client_id=name,
            client_host=client_host,
            session_timeout_ms=session_timeout_ms,
            instance_id=options.group_instance_id,
        )
        consumer = Consumer(self._broker, Member(self._groups, identity), options, session_timeout_ms)
        self._consumers[group, name] = consumer
        return name, consumer

    def get(self, group: str, name: str) -> Consumer:
        consumer = self._consumers.get((group, name))
        if consumer is None:
            raise no_such_consumer()
        return consumer

    async def delete(self, group: str, name: str) -> None:
        consumer = self.get(group, name)
        del self._consumers[group, name]
        await consumer.close(taken=True)

    def abandon(self, group: str, name: str) -> None:
        """Let go of a consumer whose client is gone. Another task does it: the caller's may be ending."""
        task = asyncio.create_task(self._let_go((group, name)))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _session_timeout_ms(self, options: ConsumerOptions) -> int:
        """Unless it says otherwise, a consumer may be away from its group for as long as it may be idle."""
        if options.session_timeout_ms is not None:
            return options.session_timeout_ms
        bounds = self._groups.settings
        longest = min(self._settings.consumer_instance_timeout_ms, bounds.group_max_session_timeout_ms)
        return max(longest, bounds.group_min_session_timeout_ms)

    async def __aenter__(self) -> Self:
        self._expiry = asyncio.create_task(self._expire())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._expiry is not None
        self._expiry.cancel()
        for key in list(self._consumers):
            await self._let_go(key)
        await asyncio.gather(*self._leaving)

    async def _expire(self) -> None:
        timeout_ms = self._settings.consumer_instance_timeout_ms
        while True:
            await asyncio.sleep(min(timeout_ms / 4, LOOK_MS_MOST) / 1000)
            now_ms = self._broker.clock.monotonic_ms()
            for key, consumer in list(self._consumers.items()):
                if not consumer.busy and now_ms - consumer.idle_since_ms >= timeout_ms:
                    await self._let_go(key)

    async def _let_go(self, key: tuple[str, str]) -> None:
        """Of a consumer whose client may have died with its last reply in its hands."""
        consumer = self._consumers.pop(key, None)
        if consumer is None:
            return
        if not self._groups.coordinates:
            # Who has the groups now has let go of the members of this gateway, and to leave would take them over.
            consumer.end()
            return
        try:
            await consumer.close(taken=False)
        except LakelogError as error:
            log.warning("consumer %s of group %s did not leave in order: %s", key[1], key[0], error)
