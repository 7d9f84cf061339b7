"""The actions of the Delta log, as they stand in a commit's JSON lines.

Owns their spelling, and nothing else: what they mean for a topic is the state's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from lakelog.model.segment import Segment

TIER_TAG = "lakelog.tier"
PRODUCERS_TAG = "lakelog.producers"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Add(msgspec.Struct, omit_defaults=True):
    path: str
    partitionValues: dict[str, str | None]
    size: int
    modificationTime: int
    dataChange: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None


class Remove(msgspec.Struct, omit_defaults=True):
    path: str
    dataChange: bool
    deletionTimestamp: int | None = None
    extendedFileMetadata: bool | None = None
    partitionValues: dict[str, str | None] | None = None
    size: int | None = None


class Txn(msgspec.Struct, omit_defaults=True):
    appId: str
    version: int
    lastUpdated: int | None = None


class Format(msgspec.Struct):
    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, omit_defaults=True):
    id: str
    schemaString: str
    partitionColumns: list[str]
    configuration: dict[str, str]
    format: Format = msgspec.field(default_factory=Format)
    createdTime: int | None = None
    name: str | None = None
    description: str | None = None


class Protocol(msgspec.Struct, omit_defaults=True):
    minReaderVersion: int
    minWriterVersion: int
    readerFeatures: list[str] | None = None
    writerFeatures: list[str] | None = None


class CommitInfo(msgspec.Struct, omit_defaults=True):
    """What DESCRIBE HISTORY shows. `txnId` is our own name for the commit, by which we know it again."""

    # Anybody may write anything here, and nobody is to fail on it.
    timestamp: Any = 0
    operation: Any = ""
    operationParameters: Any = None
    operationMetrics: Any = None
    isBlindAppend: Any = None
    engineInfo: Any = None
    txnId: Any = None


class Action(msgspec.Struct, omit_defaults=True):
    """One line of a commit: exactly one of these is there. Kinds of action that are not named are passed over."""

    commitInfo: CommitInfo | None = None
    protocol: Protocol | None = None
    metaData: Metadata | None = None
    txn: Txn | None = None
    add: Add | None = None
    remove: Remove | None = None


_decoder = msgspec.json.Decoder(Action)
_encoder = msgspec.json.Encoder()


def decode_commit(data: bytes) -> list[Action]:
    return [_decoder.decode(line) for line in data.splitlines() if line.strip()]


class _RemovedPath(msgspec.Struct):
    path: str


class _Removal(msgspec.Struct):
    remove: _RemovedPath | None = None


_removal_decoder = msgspec.json.Decoder(_Removal)


def removed_paths(commit: bytes) -> list[str]:
    """The files that a commit takes out of the table, without a look at anything else in it."""
    removals = (_removal_decoder.decode(line).remove for line in commit.splitlines() if b'"remove"' in line)
    return [removal.path for removal in removals if removal is not None]


def encode_commit(actions: Iterable[Action]) -> bytes:
    return _encoder.encode_lines(actions)


class _Range(msgspec.Struct):
    offset: int
    timestamp: str


class _Nulls(msgspec.Struct, frozen=True):
    offset: int = 0
    timestamp: int = 0


class _Stats(msgspec.Struct):
    numRecords: int
    minValues: _Range
    maxValues: _Range
    # Spark skips no file whose stats leave it out: each of its filters also asks for values that are not null.
    nullCount: _Nulls = _Nulls()


_stats_decoder = msgspec.json.Decoder(_Stats)


def add_of(segment: Segment, *, data_change: bool) -> Add:
    return Add(
        path=segment.path,
        partitionValues={"partition": str(segment.partition)},
        size=segment.bytes,
        modificationTime=segment.modified_ms,
        dataChange=data_change,
        stats=stats_of(segment),
        tags={**segment.tags, TIER_TAG: str(segment.tier)},
    )


def remove_of(segment: Segment, *, data_change: bool, now_ms: int) -> Remove:
    return Remove(
        path=segment.path,
        dataChange=data_change,
        deletionTimestamp=now_ms,
        extendedFileMetadata=True,
        partitionValues={"partition": str(segment.partition)},
        size=segment.bytes,
    )


def stats_of(segment: Segment) -> str:
    """Delta keeps times in stats to the millisecond, so the range is widened to whole ones: it must never be too
    narrow.
    """
    stats = _Stats(
        segment.records,
        _Range(segment.base_offset, _iso(segment.min_timestamp_us // 1000)),
        _Range(segment.end_offset - 1, _iso(-(-segment.max_timestamp_us // 1000))),
    )
    return msgspec.json.encode(stats).decode()


def segment_of(add: Add) -> Segment:
    """Raises ValueError for a file that no writer of ours made: nobody vouches for the order of its records."""
    if TIER_TAG not in (add.tags or {}):
        raise ValueError(f"file {add.path} has no tag {TIER_TAG}")
    try:
        stats = _stats_decoder.decode(add.stats or "")
        partition = int(add.partitionValues["partition"] or "")
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise ValueError(f"file {add.path} has no usable offset statistics ({error})") from error
    tags = {name: text for name, text in (add.tags or {}).items() if text is not None}
    return Segment(
        partition=partition,
        base_offset=stats.minValues.offset,
        end_offset=stats.maxValues.offset + 1,
        records=stats.numRecords,
        bytes=add.size,
        min_timestamp_us=_micros(stats.minValues.timestamp),
        max_timestamp_us=_micros(stats.maxValues.timestamp),
        path=add.path,
        modified_ms=add.modificationTime,
        tier=int(tags.pop(TIER_TAG, "0")),
        tags=tags,
    )


def _iso(milliseconds: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _micros(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
