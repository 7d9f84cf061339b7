"""Eight consumers of a group come, go and fall silent while producers run and the gateway is killed.

Who commits after its work has every record at least once, who commits before it has each at most once, and at no time
do two members of the group own one partition.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from lakelog.client import AsyncLakelogClient, Polled, RequestFailed
from lakelog.client.consumer import AsyncConsumer
from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import PATIENCE_S, gateway

pytestmark = pytest.mark.e2e

TOPIC, GROUP, PARTITIONS, CONSUMERS, PRODUCERS = "orders", "workers", 6, 8, 2
BATCHES, RECORDS = 40, 10
SETTINGS = {"access_log": "off", "group_min_session_timeout_ms": "1"}
# So long is a partition without an owner when its consumer falls silent. A consumer on a busy machine must be able to
# poll within it, or the group never comes to rest.
SESSION_S = 1.5
RUN_TIMEOUT_S = 180
# A look costs the gateway as much as a poll does, and those who look must not crowd out those who poll.
LOOK_EVERY_S = 0.05


class Claims:
    """What each consumer reads by its own account. It stands until the consumer asks for something that may take it
    away, and no longer than its session or the gateway lives. So that of one who falls silent stands while others come.
    """

    def __init__(self) -> None:
        self._stand: dict[object, tuple[float, int, list[tuple[str, int]]]] = {}
        self._deaths = 0

    def withdraw(self, consumer: object) -> None:
        self._stand.pop(consumer, None)

    def the_gateway_dies(self) -> None:
        self._deaths += 1

    async def ask(self, consumer: AsyncConsumer) -> None:
        self.withdraw(consumer)
        asked_s, deaths = time.monotonic(), self._deaths
        self._stand[consumer] = asked_s + SESSION_S, deaths, await consumer.assignment()
        now_s = time.monotonic()
        owned = Counter(
            partition
            for until_s, deaths, partitions in self._stand.values()
            if now_s < until_s and deaths == self._deaths
            for partition in partitions
        )
        assert max(owned.values(), default=1) == 1, owned


class Run:
    """What was sent, and what the group made of it."""

    def __init__(self, client: AsyncLakelogClient, *, commit_first: bool) -> None:
        self._client = client
        self._commit_first = commit_first
        self._sent = 0
        self._all_sent = asyncio.Event()
        self.done: Counter[int] = Counter()
        self.claims = Claims()
        self.over = asyncio.Event()
        self.half = asyncio.Event()

    async def produce(self, number: int) -> None:
        for batch in range(BATCHES):
            first = (number * BATCHES + batch) * RECORDS
            await self._client.produce(TOPIC, list(range(first, first + RECORDS)))
            self._sent += 1
            if self._sent == PRODUCERS * BATCHES // 2:
                self.half.set()
            if self._sent == PRODUCERS * BATCHES:
                self._all_sent.set()

    async def consume(self, seed: int) -> None:
        """One consumer after the other: each polls a few times, and then leaves in order or is not heard of again."""
        chance = random.Random(seed)
        while not self.over.is_set():
            consumer = self._client.consumer(
                GROUP, TOPIC, offset_reset="earliest", auto_commit=False, session_timeout_s=SESSION_S, max_bytes=2_000
            )
            for _ in range(chance.randint(1, 12)):
                if self.over.is_set():
                    break
                self.claims.withdraw(consumer)
                polled = await consumer.poll(chance.choice([0, 50, 200]))
                with suppress(RequestFailed):  # its gateway died
                    await self.claims.ask(consumer)
                if not await self._work(consumer.commit, polled):
                    self.claims.withdraw(consumer)
                    break  # it lost its place
            if chance.random() < 0.7:
                self.claims.withdraw(consumer)
                await consumer.close()

    async def _work(self, commit: Callable[[], Awaitable[None]], polled: Polled) -> bool:
        """Whether the consumer may go on."""
        if not self._commit_first:
            self._do(polled)
        try:
            await commit()
        except RequestFailed:
            return False
        if self._commit_first:
            self._do(polled)
        return True

    def _do(self, polled: Polled) -> None:
        self.done.update(record.json() for record in polled)

    async def finish(self) -> None:
        """The end is when all is sent and the group has committed all of it."""
        await self._all_sent.wait()
        async with httpx.AsyncClient(base_url=self._client.url, timeout=PATIENCE_S) as http:
            while True:
                lags = (await http.get(f"/admin/groups/{GROUP}/lag")).json()
                # Nobody need have committed for a partition that no record went to.
                if len(lags) == PARTITIONS and all((each["committed"] or 0) == each["high_watermark"] for each in lags):
                    break
                await asyncio.sleep(LOOK_EVERY_S)
        self.over.set()


async def _restart(server: LocalGateway, run: Run) -> None:
    await run.half.wait()
    run.claims.the_gateway_dies()
    server.kill()
    await asyncio.to_thread(server.start)


@pytest.mark.parametrize("commit_first", [False, True], ids=["at least once", "at most once"])
async def test_consumers_come_and_go(tmp_path: Path, commit_first: bool) -> None:
    with gateway(tmp_path, SETTINGS) as server:
        async with AsyncLakelogClient(server.url, retry_timeout_s=PATIENCE_S) as client:
            await client.create_topic(TOPIC, PARTITIONS)
            run = Run(client, commit_first=commit_first)
            async with asyncio.timeout(RUN_TIMEOUT_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(run.finish())
                tasks.create_task(_restart(server, run))
                for number in range(PRODUCERS):
                    tasks.create_task(run.produce(number))
                for number in range(CONSUMERS):
                    tasks.create_task(run.consume(number))
    everything = set(range(PRODUCERS * BATCHES * RECORDS))
    if commit_first:
        assert max(run.done.values()) == 1
        assert set(run.done) <= everything
    else:
        assert set(run.done) == everything
