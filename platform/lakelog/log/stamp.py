"""Give the records of a group of requests their partitions, offsets and timestamps.

Pure: requests and the state of the log go in; what each request gets and what each partition is to write come out.
Everything is decided over columns of the whole group, so a thousand one-record requests cost little more than one
request of a thousand records. A request is taken whole or refused whole, and a refused one leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelog.config import TopicConfig
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.log.partitioner import partition_by_key
from lakelog.log.producers import TOPIC_STREAM, OffsetRange, ProducerBatch, ProducerStates, WrittenBatch
from lakelog.model.batch import (
    NO_PARTITION,
    STORED_SCHEMA,
    TIMESTAMP,
    AnyRecords,
    Int32s,
    Int64s,
    Records,
    combine,
    microseconds,
    record_bytes,
)

# The end of the year 9999: what Delta, Spark and Python can all write down.
LATEST_TIMESTAMP_US = 253_402_300_799_999_000
# Rows that go to one partition are sliced out as they lie, and not one by one, where so many of them lie together.
RUN_ROWS_LEAST = 32


@dataclass(frozen=True, slots=True)
class Request:
    """One append as its sender means it. `keyless_partition`, modulo the number of partitions that there are when it is
    stamped, is where records without a key and a partition go.
    """

    records: AnyRecords
    keyless_partition: int = 0
    producer: ProducerBatch | None = None
    expected_offsets: Mapping[int, int] | None = None

    @property
    def conditional(self) -> bool:
        return self.producer is not None or self.expected_offsets is not None


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the records of one request are, in the order in which it gave them."""

    partitions: Int32s
    offsets: Int64s
    timestamp_ms: int | None = None  # set when the log stamped the records itself (LogAppendTime)
    duplicate: bool = False


Outcome: TypeAlias = Appended | LakelogError
# Says what is wrong with the rows where the mask is set.
Blame: TypeAlias = Callable[[npt.NDArray[np.bool_], ErrorCode, str], None]


@dataclass(frozen=True, slots=True)
class PartitionAppend:
    """What one partition is to write: rows of STORED_SCHEMA from base_offset on, and whose batches are in them."""

    partition: int
    base_offset: int
    rows: pa.RecordBatch
    written: tuple[WrittenBatch, ...] = ()

    @property
    def end_offset(self) -> int:
        return self.base_offset + int(self.rows.num_rows)

    def cut(self, pieces: int) -> list[PartitionAppend]:
        """The same rows as several neighbours. What is noted of producers goes with the last: it stays the longest."""
        rows_each = -(-self.rows.num_rows // pieces)
        starts = range(0, self.rows.num_rows, rows_each)
        return [
            PartitionAppend(
                self.partition,
                self.base_offset + start,
                self.rows.slice(start, rows_each),
                self.written if start == starts[-1] else (),
            )
            for start in starts
        ]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The state of a topic that stamping depends on."""

    next_offsets: Sequence[int]
    producers: ProducerStates
    config: TopicConfig


@dataclass(slots=True)
class StampedGroup:
    outcomes: list[Outcome]
    appends: list[PartitionAppend] = field(default_factory=list)


def stamp(requests: Sequence[Request], end: LogEnd, now_ms: int) -> StampedGroup:
    """Decide a group. Requests with bad records are sorted out first; the others are stamped together."""
    records = combine([request.records for request in requests])
    bounds = np.zeros(len(requests) + 1, dtype=np.int64)
    np.cumsum([len(request.records) for request in requests], out=bounds[1:])
    rows = _timestamped(records.batch, end.config, now_ms)
    partitions = _assign(requests, records, rows.column("key"), bounds, len(end.next_offsets))

    refused = _bad_requests(requests, rows, partitions, bounds, end, now_ms)
    if refused:
        return _without(refused, requests, end, now_ms)
    if any(request.conditional for request in requests):
        return _stamp_conditional(requests, rows, partitions, bounds, end, now_ms)
    outcomes, appends = _place(rows, partitions, bounds, end, now_ms)
    return StampedGroup(list(outcomes), appends)


def _without(
    refused: Mapping[int, LakelogError], requests: Sequence[Request], end: LogEnd, now_ms: int
) -> StampedGroup:
    good = [request for index, request in enumerate(requests) if index not in refused]
    rest = stamp(good, end, now_ms) if good else StampedGroup([])
    answers = iter(rest.outcomes)
    outcomes = [refused[i] if i in refused else next(answers) for i in range(len(requests))]
    return StampedGroup(outcomes, rest.appends)


def _timestamped(batch: pa.RecordBatch, config: TopicConfig, now_ms: int) -> pa.RecordBatch:
    given = batch.column("timestamp")
    now = pa.scalar(now_ms * 1000, TIMESTAMP)
    if config.message_timestamp_type == "LogAppendTime" or given.null_count == len(given):
        times = pa.repeat(now, len(given))
    elif given.null_count:
        times = given.fill_null(now)
    else:
        return batch
    return batch.set_column(0, "timestamp", times)


def _assign(
    requests: Sequence[Request], records: Records, keys: pa.Array, bounds: Int64s, partition_count: int
) -> Int32s:
    """The record's own choice, else by its key as Kafka's clients do, else the request's keyless partition."""
    turns = [request.keyless_partition % partition_count for request in requests]
    keyless = np.repeat(np.array(turns, dtype=np.int32), np.diff(bounds))
    explicit = records.partitions
    if explicit is not None and not (explicit == NO_PARTITION).any():
        return explicit
    if keys.null_count == len(keys):
        chosen = keyless
    else:
        chosen = partition_by_key(keys, partition_count, NO_PARTITION)
        if keys.null_count:
            chosen = np.where(chosen == NO_PARTITION, keyless, chosen)
    return chosen if explicit is None else np.where(explicit == NO_PARTITION, chosen, explicit)


def _bad_requests(
    requests: Sequence[Request],
    rows: pa.RecordBatch,
    partitions: Int32s,
    bounds: Int64s,
    end: LogEnd,
    now_ms: int,
) -> dict[int, LakelogError]:
    """The first thing that is wrong with each request that has something wrong with it."""
    config = end.config
    found: dict[int, LakelogError] = {}

    def blame(bad: npt.NDArray[np.bool_], code: ErrorCode, reason: str) -> None:
        rows = np.flatnonzero(bad)
        indices, firsts = np.unique(np.searchsorted(bounds, rows, side="right") - 1, return_index=True)
        for index, row in zip(indices.tolist(), rows[firsts].tolist(), strict=True):
            message = f"record {row - int(bounds[index])} of the request {reason}"
            unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found.setdefault(index, UnknownPartition(message) if unknown else LakelogError(code, message))

    if len(partitions) and (partitions.max() >= len(end.next_offsets) or partitions.min() < 0):
        outside = (partitions >= len(end.next_offsets)) | (partitions < 0)
        blame(
            outside,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"names a partition that is not there; the topic has 0 to {len(end.next_offsets) - 1}",
        )
    limit = config.max_message_bytes
    sizes = record_bytes(rows)
    if len(sizes) and sizes.max() > limit:
        blame(sizes > limit, ErrorCode.MESSAGE_TOO_LARGE, f"is larger than max.message.bytes, which is {limit}")
    keys = rows.column("key")
    if config.compacted and keys.null_count:
        blame(
            keys.is_null().to_numpy(zero_copy_only=False),
            ErrorCode.INVALID_RECORD,
            "has no key; a compacted topic keeps the latest record per key and takes none without",
        )
    if config.message_timestamp_type != "LogAppendTime":
        _blame_times(blame, rows.column("timestamp"), config, now_ms)
    for index, request in enumerate(requests):
        stream = request.producer.stream if request.producer is not None else TOPIC_STREAM
        if stream != TOPIC_STREAM and (partitions[bounds[index] : bounds[index + 1]] != stream).any():
            found.setdefault(
                index,
                LakelogError(
                    ErrorCode.INVALID_REQUEST,
                    f"the sequence counts partition {stream}, but records go to others",
                ),
            )
    return found


def _blame_times(blame: Blame, timestamps: pa.Array, config: TopicConfig, now_ms: int) -> None:
    times_us = microseconds(timestamps)
    if not len(times_us):
        return
    earliest_us = max(0, now_ms - config.message_timestamp_before_max_ms) * 1000
    latest_us = min((now_ms + config.message_timestamp_after_max_ms) * 1000, LATEST_TIMESTAMP_US)
    if times_us.min() >= earliest_us and times_us.max() <= latest_us:
        return
    blame(
        (times_us < earliest_us) | (times_us > latest_us),
        ErrorCode.INVALID_TIMESTAMP,
        f"has a timestamp outside of {earliest_us // 1000} to {latest_us // 1000} "
        "(message.timestamp.before.max.ms and message.timestamp.after.max.ms)",
    )


def _place(
    rows: pa.RecordBatch, partitions: Int32s, bounds: Int64s, end: LogEnd, now_ms: int
) -> tuple[list[Appended], list[PartitionAppend]]:
    """Offsets for all rows in one go: rows of a partition keep their order and get the next ones there are."""
    offsets = np.empty(len(partitions), dtype=np.int64)
    appends: list[PartitionAppend] = []
    for partition, chosen, piece in _by_partition(rows, partitions):
        base = int(end.next_offsets[partition])
        dense = np.arange(base, base + piece.num_rows, dtype=np.int64)
        offsets[chosen] = dense
        stored = pa.RecordBatch.from_arrays([pa.array(dense), *piece.columns], schema=STORED_SCHEMA)
        appends.append(PartitionAppend(partition, base, stored))
    stamped_ms = now_ms if end.config.message_timestamp_type == "LogAppendTime" else None
    edges = bounds.tolist()
    appended = [Appended(partitions[first:last], offsets[first:last], stamped_ms) for first, last in pairwise(edges)]
    return appended, appends


def _by_partition(
    rows: pa.RecordBatch, partitions: Int32s
) -> Iterator[tuple[int, slice | npt.NDArray[np.intp], pa.RecordBatch]]:
    """Each partition that has rows, which rows these are, and the rows."""
    if len(partitions) == 0:
        return
    if (partitions == partitions[0]).all():
        yield int(partitions[0]), slice(None), rows
        return
    order = np.argsort(partitions, kind="stable")
    edges = np.append(np.flatnonzero(np.diff(partitions[order], prepend=NO_PARTITION)), len(order))
    in_runs = np.count_nonzero(np.diff(partitions)) * RUN_ROWS_LEAST <= len(partitions)
    for first, last in pairwise(edges.tolist()):
        chosen = order[first:last]
        partition = int(partitions[chosen[0]])
        if not in_runs:
            yield partition, chosen, rows.take(pa.array(chosen))
            continue
        # Requests without keys are runs of rows that stay together: to slice them copies less, or nothing.
        bounds = np.append(np.flatnonzero(np.diff(chosen, prepend=-2) != 1), len(chosen))
        runs = [rows.slice(int(chosen[start]), end - start) for start, end in pairwise(bounds.tolist())]
        yield partition, chosen, runs[0] if len(runs) == 1 else pa.concat_batches(runs)


def _stamp_conditional(
    requests: Sequence[Request],
    rows: pa.RecordBatch,
    partitions: Int32s,
    bounds: Int64s,
    end: LogEnd,
    now_ms: int,
) -> StampedGroup:
    """As `_place`, where some requests name a producer or expect offsets: those are decided one after the other."""
    producers = end.producers.overlay(request.producer for request in requests if request.producer is not None)
    next_offsets = np.array(end.next_offsets, dtype=np.int64)
    outcomes: list[Outcome | None] = [None] * len(requests)
    written: dict[int, list[WrittenBatch]] = {}
    keep = np.ones(len(partitions), dtype=bool)
    for index, request in enumerate(requests):
        span = slice(int(bounds[index]), int(bounds[index + 1]))
        counts = np.bincount(partitions[span], minlength=len(next_offsets))
        try:
            repeated = _check_conditions(request, counts, next_offsets, producers)
        except LakelogError as refusal:
            outcomes[index] = refusal
            keep[span] = False
            continue
        if repeated is not None:
            outcomes[index] = _repeat(repeated, request)
            keep[span] = False
            continue
        if request.producer is not None:
            batch = _written(request.producer, counts, next_offsets, len(request.records), now_ms)
            producers.apply(batch)
            written.setdefault(batch.ranges[0].partition, []).append(batch)
        next_offsets += counts
    kept_rows = np.concatenate(([0], np.cumsum(keep)))[bounds]
    accepted = [index for index, outcome in enumerate(outcomes) if outcome is None]
    if not keep.all():
        rows, partitions = rows.filter(pa.array(keep)), partitions[keep]
    placed, appends = _place(rows, partitions, kept_rows, end, now_ms)
    for index in accepted:
        outcomes[index] = placed[index]
    return StampedGroup(
        [outcome for outcome in outcomes if outcome is not None],
        [
            PartitionAppend(a.partition, a.base_offset, a.rows, _last_of_each(written.get(a.partition, ()), producers))
            for a in appends
        ],
    )


def _check_conditions(
    request: Request, counts: Int64s, next_offsets: Int64s, producers: ProducerStates
) -> WrittenBatch | None:
    # A repetition is answered before expected offsets are looked at: they held when it was sent first.
    if request.producer is not None:
        repeated = producers.check(request.producer, len(request.records))
        if repeated is not None:
            return repeated
    for partition, expected in (request.expected_offsets or {}).items():
        if not 0 <= partition < len(next_offsets):
            raise UnknownPartition(f"expected offset for partition {partition}: not there")
        if expected != next_offsets[partition]:
            raise LakelogError(
                ErrorCode.EXPECTED_OFFSET_MISMATCH,
                f"partition {partition} goes on at offset {next_offsets[partition]}, not at {expected}",
            )
    return None


def _written(
    producer: ProducerBatch, counts: Int64s, next_offsets: Int64s, record_count: int, now_ms: int
) -> WrittenBatch:
    ranges = tuple(
        OffsetRange(partition, int(next_offsets[partition]), int(counts[partition]))
        for partition in np.flatnonzero(counts).tolist()
    )
    return WrittenBatch(
        producer.producer_id,
        producer.stream,
        producer.epoch,
        producer.sequence,
        record_count,
        now_ms,
        ranges,
        len(next_offsets),
        int(next_offsets.sum()),
    )


def _repeat(earlier: WrittenBatch, request: Request) -> Appended:
    """The offsets that the same records got the first time, also if the topic has more partitions by now."""
    records = combine([request.records])
    bounds = np.array([0, len(records)], dtype=np.int64)
    partitions = _assign([request], records, records.batch.column("key"), bounds, earlier.partition_count)
    offsets = np.full(len(partitions), -1, dtype=np.int64)
    for span in earlier.ranges:
        rows = np.flatnonzero(partitions == span.partition)[: span.count]
        offsets[rows] = np.arange(span.base_offset, span.base_offset + len(rows))
    return Appended(partitions, offsets, duplicate=True)


def _last_of_each(written: Sequence[WrittenBatch], producers: ProducerStates) -> tuple[WrittenBatch, ...]:
    """A group may hold hundreds of batches of one producer; only those it will be remembered by are noted."""
    return tuple(batch for batch in written if producers.remembers(batch))
