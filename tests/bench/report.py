"""How the benchmarks measure and print: one line a figure, beside what it is compared with and what it aims at."""

from __future__ import annotations

import atexit
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakelog.model.batch import Records, from_arrow

MB = 1_000_000


def headline(text: str) -> None:
    print(f"\n{text}", flush=True)


def figure(name: str, value: str, *, against: str = "", aim: str = "") -> None:
    parts = [f"  {name:<52} {value:>18}"]
    if against:
        parts.append(f"  {against}")
    if aim:
        parts.append(f"  (aim: {aim})")
    print("".join(parts), flush=True)


def rate(count: float, seconds: float, unit: str = "records/s") -> str:
    return f"{count / seconds:,.0f} {unit}"


def milliseconds(samples: Sequence[float]) -> str:
    ordered = sorted(samples)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {statistics.median(ordered) * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms"


def spread(values: Sequence[float], form: str = "{:.0%}") -> str:
    """The median of several turns, and how far they went."""
    median, least, most = statistics.median(values), min(values), max(values)
    return f"{form.format(median)} [{form.format(least)} to {form.format(most)}]"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for one benchmark, under LAKELOG_BENCH_DIR if that is set.

    It goes when the process ends and not before: some file systems are slow to make files for minutes after many were
    deleted (ext4 without a journal), and the next benchmark would be measured in that time.
    """
    name = tempfile.mkdtemp(prefix="lakelog-bench-", dir=os.environ.get("LAKELOG_BENCH_DIR"))
    atexit.register(shutil.rmtree, name, ignore_errors=True)
    yield Path(name)


class Stopwatch:
    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def sample_records(count: int, *, value_bytes: int = 100, seed: int = 7) -> Records:
    """Records whose values are JSON documents from 100 bytes on: neither noise nor one text over and over."""
    random = np.random.default_rng(seed)
    digits = random.integers(0, 10, size=(count, value_bytes), dtype=np.uint8) + ord("0")
    frame = np.frombuffer(
        b'{"sensor": "thermometer", "place": "north hall", "state": "ok", "reading": 1', dtype=np.uint8
    )
    digits[:, : len(frame)] = frame[:value_bytes]
    digits[:, -1] = ord("}")
    offsets = np.arange(0, (count + 1) * value_bytes, value_bytes, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digits.tobytes())])
    return from_arrow(pa.RecordBatch.from_arrays([values], names=["value"]))
