"""What a fetch brings: records as columns, and where to go on. Rows, pandas and polars are made when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    import pandas
    import polars

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
# Partition, offset, time in ms, key, value, headers: the fields of a FetchedRecord.
Row: TypeAlias = tuple[int, int, int, bytes | None, bytes | None, Headers]


@dataclass(frozen=True, slots=True)
class FetchedRecord:
    """One record and its place in the log."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    def text(self) -> str | None:
        """The value as UTF-8."""
        return None if self.value is None else self.value.decode()

    def json(self) -> Any:
        """The value as what its JSON says."""
        return None if self.value is None else msgspec.json.decode(self.value)


@dataclass(frozen=True, slots=True)
class ConsumedRecord(FetchedRecord):
    """A record that a member of a group reads: of one of its topics."""

    topic: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as the columns of a table, and the forms that they are wanted in."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        try:
            return self.table.to_pandas()
        except ImportError:
            raise _not_installed("pandas") from None

    def to_polars(self) -> polars.DataFrame:
        try:
            import polars
        except ImportError:
            raise _not_installed("polars") from None
        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame


@dataclass(frozen=True, slots=True)
class Polled(Columns):
    """The records of one poll, in columns `topic`, `partition`, `offset`, `timestamp`, `key`, `value` and `headers`."""

    def __iter__(self) -> Iterator[ConsumedRecord]:
        for batch in self.table.to_batches():
            for topic, row in zip(batch.column("topic").to_pylist(), _rows(batch), strict=True):
                yield ConsumedRecord(*row, topic)

    def last_offsets(self) -> dict[tuple[str, int], int]:
        """The highest offset of each partition that has records here."""
        places = self.table.select(["topic", "partition", "offset"]).group_by(["topic", "partition"])
        lasts = places.aggregate([("offset", "max")])
        topics, partitions = lasts["topic"].to_pylist(), lasts["partition"].to_pylist()
        return dict(zip(zip(topics, partitions, strict=True), lasts["offset_max"].to_pylist(), strict=True))


@dataclass(frozen=True, slots=True)
class Fetched(Columns):
    """The records of one reply, in columns `partition`, `offset`, `timestamp`, `key`, `value` and `headers`.

    The maps say for each partition where to go on, and what it holds: offsets from its log start to below its high
    watermark.
    """

    next_positions: Mapping[int, int]
    high_watermarks: Mapping[int, int]
    log_start_offsets: Mapping[int, int]

    def __iter__(self) -> Iterator[FetchedRecord]:
        for batch in self.table.to_batches():
            for row in _rows(batch):
                yield FetchedRecord(*row)

    @property
    def at_end(self) -> bool:
        """Whether this reply reached the end of every partition."""
        return all(self.next_positions[p] >= end for p, end in self.high_watermarks.items())

    def head(self, records: int) -> Fetched:
        """The first records only, with positions that go on right behind them."""
        if records >= len(self):
            return self
        cut = Fetched(self.table.slice(records), {}, {}, {})
        # Where nothing was cut off, the next position may lie beyond the last record; where something was, it is next.
        positions = {**self.next_positions, **cut.first_offsets()}
        return Fetched(self.table.slice(0, records), positions, self.high_watermarks, self.log_start_offsets)

    def first_offsets(self) -> dict[int, int]:
        """The lowest offset of each partition that has records here."""
        firsts = self.table.select(["partition", "offset"]).group_by("partition").aggregate([("offset", "min")])
        return dict(zip(firsts["partition"].to_pylist(), firsts["offset_min"].to_pylist(), strict=True))


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    times_ms = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
    headers = batch.column("headers")
    rows = zip(
        batch.column("partition").to_pylist(),
        batch.column("offset").to_pylist(),
        times_ms.tolist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        [None] * len(headers) if headers.null_count == len(headers) else headers.to_pylist(),
        strict=True,
    )
    for partition, offset, time_ms, key, value, entries in rows:
        pairs = tuple((entry["key"], entry["value"]) for entry in entries) if entries else ()
        yield partition, offset, time_ms, key, value, pairs


def _not_installed(library: str) -> ImportError:
    return ImportError(f"this needs {library}, which is not installed: pip install {library}")
