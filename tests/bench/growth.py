"""Whether a table of many commits is as quick as a young one: a commit's cost, live files, opening it again."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.fetch import FetchFrom
from tests.bench.report import Stopwatch, figure, headline, sample_records, scratch_folder

COMMITS = 50_000
PARTITIONS = 4
WINDOW = 1_000


def run() -> None:
    headline(f"growth: {COMMITS:,} commits to a topic of {PARTITIONS} partitions, one after the other")
    with scratch_folder() as folder:
        early, late, live_files = asyncio.run(_grow(folder))
        opened = asyncio.run(_open(folder))
    early_ms, late_ms = statistics.median(early) * 1000, statistics.median(late) * 1000
    figure(f"a commit after {WINDOW:,} commits", f"{early_ms:.2f} ms")
    figure(
        f"a commit after {COMMITS:,} commits", f"{late_ms:.2f} ms", against=f"{late_ms / early_ms:.2f} x", aim="1.3 x"
    )
    figure("live files", f"{live_files}", aim="at most 300")
    figure("opening the table and a first fetch", f"{opened * 1000:.0f} ms", aim="under 2 s")


async def _grow(folder: Path) -> tuple[list[float], list[float], int]:
    seconds: list[float] = []
    records = sample_records(10)
    async with Broker.open(str(folder), ServerSettings()) as broker:
        # The budget would spread the commits over a quarter of an hour, and is not what is measured here.
        await broker.admin.create_topic("bench", PARTITIONS, {"flush.files.per.second": "100000"})
        for number in range(COMMITS):
            watch = Stopwatch()
            await broker.append("bench", records)
            seconds.append(watch.seconds)
            if number % 10_000 == 9_999:
                figure(f"… {number + 1:,} commits", f"{statistics.median(seconds[-WINDOW:]) * 1000:.2f} ms")
        await broker.upkeep.settle()
        topic = await broker.topics.get("bench")
        live = sum(len(partition.segments) for partition in topic.state.partitions)
    return seconds[WINDOW : 2 * WINDOW], seconds[-WINDOW:], live


async def _open(folder: Path) -> float:
    watch = Stopwatch()
    async with Broker.open(str(folder)) as broker:
        await broker.fetch([FetchFrom("bench", 0, 0)])
        return watch.seconds
