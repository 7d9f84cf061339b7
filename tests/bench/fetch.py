"""How fast records come out of memory and out of files, beside pyarrow reading the very same files."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.fetch import FetchFrom
from tests.bench.report import MB, Stopwatch, figure, headline, rate, sample_records, scratch_folder, spread

RECORDS = 2_000_000
BATCH_RECORDS = 10_000
FETCH_BYTES = 4 * 1024 * 1024
TURNS = 5


def run() -> None:
    headline(f"fetch: {RECORDS:,} records of 100 bytes of one partition, {FETCH_BYTES // MB} MB a fetch")
    with scratch_folder() as folder:
        hot, files = asyncio.run(_hot_seconds(folder))
        # A turn that nobody counts, so that the files are in the system's memory, and the memory that they are decoded
        # to is this process's, for both sides.
        _bare_seconds(files)
        asyncio.run(_cold_seconds(folder))
        bare: list[float] = []
        cold: list[float] = []
        for _ in range(TURNS):
            bare.append(_bare_seconds(files))
            cold.append(asyncio.run(_cold_seconds(folder)))
    typical = statistics.median(bare)
    figure(f"bare pyarrow, the same {len(files)} files", rate(RECORDS, typical))
    figure(
        "hot fetch",
        rate(RECORDS, statistics.median(hot)),
        against=f"{spread([typical / each for each in hot], '{:.0f}')} x bare pyarrow",
        aim="at least 5 x",
    )
    figure(
        "cold fetch, by a process that has just opened the topic",
        rate(RECORDS, statistics.median(cold)),
        against=f"{spread([b / c for b, c in zip(bare, cold, strict=True)])} of bare pyarrow",
        aim="at least 70 %",
    )


async def _hot_seconds(folder: Path) -> tuple[list[float], list[Path]]:
    settings = ServerSettings(hot_tail_bytes_max=1 << 30)
    async with Broker.open(str(folder), settings) as broker:
        await broker.admin.create_topic("bench", 1)
        records = sample_records(BATCH_RECORDS)
        for _ in range(RECORDS // BATCH_RECORDS):
            await broker.append("bench", records)
        await broker.upkeep.settle()
        state = (await broker.topics.get("bench")).state
        files = [folder / "bench" / segment.path for segment in state.partitions[0].segments]
        return [await _read_all(broker) for _ in range(TURNS)], files


async def _cold_seconds(folder: Path) -> float:
    async with Broker.open(str(folder), ServerSettings()) as broker:
        await broker.topics.get("bench")
        return await _read_all(broker)


async def _read_all(broker: Broker) -> float:
    watch = Stopwatch()
    position = 0
    while position < RECORDS:
        (reply,) = await broker.fetch([FetchFrom("bench", 0, position, FETCH_BYTES)])
        position = reply.next_offset
    return watch.seconds


def _bare_seconds(files: Sequence[Path]) -> float:
    watch = Stopwatch()
    rows = 0
    for path in files:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            rows += file.read_row_group(group).num_rows
    assert rows == RECORDS
    return watch.seconds
