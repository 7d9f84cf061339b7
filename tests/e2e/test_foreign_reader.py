"""Tries to break "a process that only reads sees a foreign commit soon, without reading whole tables again"."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog.broker import Broker
from lakelog.delta.store import LocalDisk, StoredFile
from lakelog.fetch import FetchFrom
from tests.e2e.processes import Writer, start_writer
from tests.e2e.writer_process import PARTITIONS, RECORDS

pytestmark = pytest.mark.e2e

TOPIC = "prices"
BEFORE = 60  # requests that are there before the reader comes: more than a merge takes
AFTER = 30
SOON_MS = 5_000  # generous: how soon it is on a quiet machine is printed, not asserted


class CountingDisk(LocalDisk):
    """A disk that remembers what was read from it, and whether there was something to read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, fsync=False)
        self.found: Counter[str] = Counter()
        self.listings = 0

    async def get(self, path: str) -> bytes | None:
        data = await super().get(path)
        self.found[path] += data is not None
        return data

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        self.found[path] += 1
        return await super().read_ranges(path, ranges)

    async def files(self, folder: str, *, before_ms: int | None = None) -> list[StoredFile]:
        self.listings += 1
        return await super().files(folder, before_ms=before_ms)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = start_writer(tmp_path / "warehouse", TOPIC, "writer")
    yield writer
    writer.kill()


async def test_a_foreign_commit_is_seen_soon_and_nothing_is_read_twice(tmp_path: Path, writer: Writer) -> None:
    warehouse = tmp_path / "warehouse"
    async with Broker.open(str(warehouse)) as creator:
        await creator.admin.create_topic(TOPIC, PARTITIONS)
    for _ in range(BEFORE):
        writer.request()
    writer.await_acknowledgements(BEFORE)

    disk = CountingDisk(warehouse)
    async with Broker(disk) as reader:
        positions = [part.high_watermark for part in (await reader.admin.describe_topic(TOPIC)).partitions]
        assert sum(positions) == BEFORE * RECORDS
        opened, listings = {path for path, count in disk.found.items() if count}, disk.listings
        disk.found.clear()
        delays_ms: list[float] = []
        for _ in range(AFTER):
            writer.request()
            seen: list[str] = []
            while len(seen) < RECORDS:
                wanted = [FetchFrom(TOPIC, number, position) for number, position in enumerate(positions)]
                replies = await reader.fetch(wanted, max_wait_ms=SOON_MS)
                assert any(reply.rows.num_rows for reply in replies), f"nothing was seen within {SOON_MS} ms"
                for reply in replies:
                    assert reply.error is None, reply.error
                    seen += (value.decode() for value in reply.rows.column("value").to_pylist())
                    positions[reply.partition] = reply.next_offset
            seen_ns = time.monotonic_ns()
            (acknowledged_ns,) = writer.await_acknowledgements(1)
            delays_ms.append(max(0.0, (seen_ns - acknowledged_ns) / 1e6))
            assert seen == writer.acknowledged()[-1]["values"]
    print(f"a foreign commit is seen after {statistics.median(delays_ms):.1f} ms (median of {AFTER})")

    read_again = {path for path, count in disk.found.items() if count and path in opened}
    assert read_again == set(), "what was read when the table was opened is not read again"
    commits = {path: count for path, count in disk.found.items() if path.endswith(".json") and count}
    assert set(commits.values()) == {1}, "each commit is read once"
    assert len(commits) >= AFTER
    assert disk.listings == listings
