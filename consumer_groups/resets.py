"""Where a group is to read from after a reset: the targets that Kafka's tools know.

Owns the decision, per partition, from a target and the marks of the partition to the new offset. A time is looked up in
the log by the caller, who also commits the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lakelog.errors import ErrorCode, LakelogError


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Where it stands, or if that is gone from the log the nearest that is there; the end if it never committed."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """The first record at or after a time; the end if all are older."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ByDuration:
    """The first record that is not older than this."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many offsets forward, or back where it is negative, from where it stands."""

    records: int


ResetTarget: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ToTimestamp | ByDuration | ShiftBy


@dataclass(frozen=True, slots=True)
class Marks:
    """What a partition and its group say: `at_time` is the offset found for the time that the target names, if any."""

    log_start_offset: int
    high_watermark: int
    committed: int | None = None
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """What a reset does, or would do, to one partition."""

    topic: str
    partition: int
    before: int | None
    after: int


def new_offset(target: ResetTarget, marks: Marks) -> int:
    """The offset to go on from, always one that the partition can serve."""
    match target:
        case ToEarliest():
            wanted = marks.log_start_offset
        case ToOffset(offset):
            wanted = offset
        case ToCurrent() if marks.committed is not None:
            wanted = marks.committed
        case ShiftBy(records):
            if marks.committed is None:
                raise LakelogError(ErrorCode.INVALID_REQUEST, "a shift needs a committed offset to shift from")
            wanted = marks.committed + records
        case ToTimestamp() | ByDuration() if marks.at_time is not None:
            wanted = marks.at_time
        case _:
            wanted = marks.high_watermark
    return min(max(wanted, marks.log_start_offset), marks.high_watermark)


def time_wanted_ms(target: ResetTarget, now_ms: int) -> int | None:
    """The time that has to be looked up in the log before the target can be resolved."""
    match target:
        case ToTimestamp(timestamp_ms):
            return timestamp_ms
        case ByDuration(duration_ms):
            return now_ms - duration_ms
        case _:
            return None
