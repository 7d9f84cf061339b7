"""How fast batches become commits, beside pyarrow writing the same batches as files and doing nothing else."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.delta.parquet import TAIL_CODEC
from lakelog.model.batch import STORED_SCHEMA, TIMESTAMP, Records
from tests.bench.report import MB, Stopwatch, figure, headline, rate, sample_records, scratch_folder, spread

BATCH_RECORDS = 10_000
BATCHES = 800
SENDERS = 8
TURNS = 3


def run() -> None:
    headline(f"append: {BATCHES} batches of {BATCH_RECORDS:,} records of 100 bytes, acks=all, {SENDERS} senders")
    records = sample_records(BATCH_RECORDS)
    total = BATCHES * BATCH_RECORDS
    with scratch_folder() as folder:
        _bare_seconds(folder / "warm", records)  # memory and code that both sides use
    for partitions in (1, 8):
        bare: list[float] = []
        ours: list[float] = []
        for _ in range(TURNS):
            with scratch_folder() as folder:
                bare.append(_bare_seconds(folder / "bare", records))
                ours.append(asyncio.run(_append_seconds(folder / "warehouse", records, partitions)))
        typical = statistics.median(bare)
        figure(
            "bare pyarrow, one file a batch", rate(total, typical), against=f"{total * 100 / MB / typical:,.0f} MB/s"
        )
        figure(
            f"append to {partitions} partition(s)",
            rate(total, statistics.median(ours)),
            against=f"{spread([b / o for b, o in zip(bare, ours, strict=True)])} of bare pyarrow",
            aim="at least 60 %",
        )
    with scratch_folder() as folder:
        flushed = asyncio.run(_append_seconds(folder / "fsync", records, 1, fsync=True))
        figure(
            "1 partition with fsync", rate(total, flushed), against=f"{typical / flushed:.0%} of bare pyarrow without"
        )


def _bare_seconds(folder: Path, records: Records) -> float:
    folder.mkdir()
    count = len(records)
    watch = Stopwatch()
    for number in range(BATCHES):
        offsets = pa.array(np.arange(number * count, (number + 1) * count))
        times = pa.repeat(pa.scalar(number, pa.int64()).cast(TIMESTAMP), count)
        rows = pa.RecordBatch.from_arrays([offsets, times, *records.batch.columns[1:]], schema=STORED_SCHEMA)
        pq.write_table(
            pa.Table.from_batches([rows]), folder / f"{number}.parquet", compression=TAIL_CODEC, use_dictionary=False
        )
    return watch.seconds


async def _append_seconds(folder: Path, records: Records, partitions: int, *, fsync: bool = False) -> float:
    async with Broker.open(str(folder), ServerSettings(fsync=fsync)) as broker:
        await broker.admin.create_topic("bench", partitions)
        left = iter(range(BATCHES))

        async def send() -> None:
            for _ in left:
                await broker.append("bench", records)

        watch = Stopwatch()
        await asyncio.gather(*(send() for _ in range(SENDERS)))
        return watch.seconds
