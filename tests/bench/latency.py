"""What a lone record waits for its acknowledgement: on an idle topic, under load, and with a thousand topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.fetch import FetchFrom
from tests.bench.report import Stopwatch, figure, headline, milliseconds, sample_records, scratch_folder

LONE_RECORD = sample_records(1)
LONE_RECORDS = 500
TOPICS = 1_000
SECONDS = 20


def run() -> None:
    headline("latency: one 100-byte record, acks=all")
    for name, settings in (("idle topic", ServerSettings()), ("idle topic, fsync", ServerSettings(fsync=True))):
        with scratch_folder() as folder:
            figure(name, milliseconds(asyncio.run(_idle(folder, settings))), aim="p50 under 5 ms, p99 under 25 ms")
    with scratch_folder() as folder:
        figure("seen by a waiting fetch", milliseconds(asyncio.run(_until_seen(folder))))
    with scratch_folder() as folder:
        figure("under a steady load of 20,000 records/s", milliseconds(asyncio.run(_under_load(folder))))
    with scratch_folder() as folder:
        figure(f"{TOPICS:,} topics, a record a second each", milliseconds(asyncio.run(_many_topics(folder))))


async def _timed(broker: Broker, topic: str) -> float:
    watch = Stopwatch()
    await broker.append(topic, LONE_RECORD)
    return watch.seconds


async def _idle(folder: Path, settings: ServerSettings) -> list[float]:
    async with Broker.open(str(folder), settings) as broker:
        await broker.admin.create_topic("bench", 1)
        samples = []
        for _ in range(LONE_RECORDS):
            samples.append(await _timed(broker, "bench"))
            await asyncio.sleep(0.02)
        return samples


async def _until_seen(folder: Path) -> list[float]:
    async with Broker.open(str(folder)) as broker:
        await broker.admin.create_topic("bench", 1)
        samples = []
        for offset in range(LONE_RECORDS):
            waiting = asyncio.create_task(broker.fetch([FetchFrom("bench", 0, offset)], max_wait_ms=5_000))
            await asyncio.sleep(0.02)
            watch = Stopwatch()
            sent = asyncio.create_task(broker.append("bench", sample_records(1)))
            await waiting
            samples.append(watch.seconds)
            await sent
        return samples


@asynccontextmanager
async def _load(broker: Broker) -> AsyncIterator[None]:
    async def send() -> None:
        records = sample_records(200)
        while True:
            await asyncio.gather(broker.append("bench", records), asyncio.sleep(0.1))

    senders = [asyncio.create_task(send()) for _ in range(10)]
    try:
        yield
    finally:
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)


async def _under_load(folder: Path) -> list[float]:
    async with Broker.open(str(folder)) as broker:
        await broker.admin.create_topic("bench", 1)
        async with _load(broker):
            await asyncio.sleep(15)  # past the burst that the budget allows for
            samples = []
            for _ in range(LONE_RECORDS):
                samples.append(await _timed(broker, "bench"))
                await asyncio.sleep(0.02)
            return samples


async def _many_topics(folder: Path) -> list[float]:
    async with Broker.open(str(folder)) as broker:
        for number in range(TOPICS):
            await broker.admin.create_topic(f"bench-{number}", 1)
        samples: list[float] = []

        async def send(number: int) -> None:
            await asyncio.sleep(number / TOPICS)
            for _ in range(SECONDS):
                took = await _timed(broker, f"bench-{number}")
                samples.append(took)
                await asyncio.sleep(max(0, 1 - took))

        await asyncio.gather(*(send(number) for number in range(TOPICS)))
        return samples
