"""Resident memory while 10 GB pass through a process that appends and fetches, all settings as they come.

The disk has to hold it all, and for an hour also the files that merges took the place of: some 10 GB.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from lakelog.broker import Broker
from lakelog.fetch import FetchFrom
from tests.bench.report import Stopwatch, figure, headline, resident_mb, sample_records, scratch_folder

TOTAL_BYTES = 10_000_000_000
BATCH_RECORDS = 10_000
VALUE_BYTES = 1_000
PARTITIONS = 4


def run() -> None:
    """In a process of its own, so that what other benchmarks left behind is not counted."""
    headline("memory: 10 GB of 1,000-byte records through one process, appended and fetched at the tail")
    with scratch_folder() as folder:
        subprocess.run([sys.executable, "-m", "tests.bench.memory", str(folder)], check=True)


async def _pass_through(folder: Path) -> None:
    records = sample_records(BATCH_RECORDS, value_bytes=VALUE_BYTES)
    batch_bytes = BATCH_RECORDS * VALUE_BYTES
    sent, most = 0, 0.0
    positions = dict.fromkeys(range(PARTITIONS), 0)
    watch = Stopwatch()
    async with Broker.open(str(folder)) as broker:
        await broker.admin.create_topic("bench", PARTITIONS)
        while sent < TOTAL_BYTES:
            await asyncio.gather(*(broker.append("bench", records) for _ in range(4)))
            sent += 4 * batch_bytes
            for partition, position in positions.items():
                (reply,) = await broker.fetch([FetchFrom("bench", partition, position, 64 * 1024 * 1024)])
                positions[partition] = reply.next_offset
            most = max(most, resident_mb())
            if sent % (TOTAL_BYTES // 5) < 4 * batch_bytes:
                figure(f"… {sent / 1e9:.0f} GB after {watch.seconds:.0f} s", f"{resident_mb():.0f} MB")
    figure("most resident memory", f"{most:.0f} MB", aim="flat, under 600 MB")


if __name__ == "__main__":
    asyncio.run(_pass_through(Path(sys.argv[1])))
