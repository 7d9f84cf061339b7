"""`__maintenance`: a Delta table that says what every run did to every partition. `lakelog jobs status` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compaction_jobs.outcome import Outcome
from lakelog.clock import Clock
from lakelog.delta.rows import RowTable
from lakelog.delta.store import Store

TABLE = "__maintenance"
KEPT_MS = 30 * 86_400_000

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("job", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("started_at", pa.timestamp("us", tz="UTC")),
        ("seconds", pa.float64()),
        ("reason", pa.string()),
        ("files_before", pa.int64()),
        ("files_after", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("records_before", pa.int64()),
        ("records_after", pa.int64()),
        ("cleaned_up_to", pa.int64()),
        ("log_start", pa.int64()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest row of one job on one partition."""

    job: str
    topic: str
    partition: int
    started_at: datetime
    error: str | None


class Journal:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._table = RowTable(store, TABLE, SCHEMA, clock, time_column="started_at", kept_ms=KEPT_MS)
        self._newest: tuple[tuple[int, int], list[dict[str, Any]]] | None = None

    async def write(self, run: str, started_ms: int, outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            await self._table.append([_row(run, started_ms, outcome) for outcome in outcomes])

    async def newest(self, count: int) -> list[dict[str, Any]]:
        """The newest rows, the newest first. They are kept, and read again when there are others."""
        asked = (await self._table.version(), count)
        if self._newest is None or self._newest[0] != asked:
            rows = await self._table.read()
            order = pc.sort_indices(rows, sort_keys=[("started_at", "descending"), ("topic", "ascending")])
            self._newest = (asked, rows.take(order[:count]).to_pylist())
        return self._newest[1]

    async def last_runs(self) -> dict[tuple[str, str, int], LastRun]:
        """By job, topic and partition."""
        rows = (await self._table.read()).select(["job", "topic", "partition", "started_at", "error"])
        runs = (LastRun(**row) for row in rows.sort_by("started_at").to_pylist())
        return {(run.job, run.topic, run.partition): run for run in runs}


def _row(run: str, started_ms: int, outcome: Outcome) -> dict[str, Any]:
    return {
        "run": run,
        "job": outcome.job,
        "topic": outcome.topic,
        "partition": outcome.partition,
        "started_at": datetime.fromtimestamp(started_ms / 1000, UTC),
        "seconds": outcome.seconds,
        "reason": outcome.reason,
        "files_before": outcome.before.files,
        "files_after": outcome.after.files,
        "bytes_before": outcome.before.bytes,
        "bytes_after": outcome.after.bytes,
        "records_before": outcome.before.records,
        "records_after": outcome.after.records,
        "cleaned_up_to": outcome.cleaned_up_to,
        "log_start": outcome.log_start,
        "error": outcome.error,
    }
