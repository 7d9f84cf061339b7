"""How fast records come out of memory and out of files, beside pyarrow reading the very same files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.fetch import FetchFrom
from tests.bench.report import MB, Stopwatch, figure, headline, rate, sample_records, scratch_folder

RECORDS = 2_000_000
BATCH_RECORDS = 10_000
FETCH_BYTES = 4 * 1024 * 1024


def run() -> None:
    headline(f"fetch: {RECORDS:,} records of 100 bytes of one partition, {FETCH_BYTES // MB} MB a fetch")
    with scratch_folder() as folder:
        hot, cold = asyncio.run(_fetch_seconds(folder))
        bare = min(_bare_seconds(folder / "bench") for _ in range(3))
    figure("bare pyarrow, the same files", rate(RECORDS, bare))
    figure("hot fetch", rate(RECORDS, hot), against=f"{bare / hot:.1f} x bare pyarrow", aim="at least 5 x")
    figure("cold fetch", rate(RECORDS, cold), against=f"{bare / cold:.0%} of bare pyarrow", aim="at least 70 %")


async def _fetch_seconds(folder: Path) -> tuple[float, float]:
    settings = ServerSettings(hot_tail_bytes_max=1 << 30)
    async with Broker.open(str(folder), settings) as broker:
        await broker.admin.create_topic("bench", 1)
        records = sample_records(BATCH_RECORDS)
        for _ in range(RECORDS // BATCH_RECORDS):
            await broker.append("bench", records)
        await broker.upkeep.settle()
        hot = min([await _read_all(broker) for _ in range(3)])
    cold = []
    for _ in range(3):
        async with Broker.open(str(folder), ServerSettings()) as broker:
            cold.append(await _read_all(broker))
    return hot, min(cold)


async def _read_all(broker: Broker) -> float:
    watch = Stopwatch()
    position = 0
    while position < RECORDS:
        (reply,) = await broker.fetch([FetchFrom("bench", 0, position, FETCH_BYTES)])
        position = reply.next_offset
    return watch.seconds


def _bare_seconds(table: Path) -> float:
    watch = Stopwatch()
    rows = 0
    for path in sorted((table / "partition=0").glob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            rows += file.read_row_group(group).num_rows
    # The files that merges replaced are still there: the rows that were read are what counts.
    return watch.seconds * RECORDS / rows
