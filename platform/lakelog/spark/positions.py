"""Where a read begins and ends, in the words of Spark's Kafka source.

Owns the JSON of offsets (`{"topic": {"0": 23}}`), the ways in which an option may name a position, and the arithmetic
on offsets that admission control needs. Pure: which offsets a topic has is told, never looked up here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakelog.errors import ErrorCode, LakelogError

# topic → partition → offset. In a stream it is the first offset that was not read yet.
Offsets: TypeAlias = dict[str, dict[int, int]]
# What Spark writes into its checkpoints.
OffsetsJson: TypeAlias = dict[str, dict[str, int]]

LATEST = -1
EARLIEST = -2


@dataclass(frozen=True, slots=True)
class At:
    """The same place in every partition: EARLIEST or LATEST."""

    place: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, which may be LATEST or EARLIEST."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in every partition."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time for each partition."""

    times_ms: Offsets


Position: TypeAlias = At | AtOffsets | AtTime | AtTimes


def moves(position: Position, named: Offsets, latest: Offsets) -> bool:
    """Whether the same words may name a later offset than `named` when they are asked again.

    A time does where there is no record as late as that; the first one that is stays the first.
    """
    match position:
        case At(place):
            return place == LATEST
        case AtOffsets(offsets):
            return any(LATEST in partitions.values() for partitions in offsets.values())
        case _:
            return any(
                offset >= latest[topic][number] for topic, each in named.items() for number, offset in each.items()
            )


def check_covers(position: Position, partitions: Mapping[str, Collection[int]], option: str) -> None:
    """Positions by partition have to name all partitions that are read, and no others, as Kafka's source has it."""
    if isinstance(position, At | AtTime):
        return
    named = position.offsets if isinstance(position, AtOffsets) else position.times_ms
    wanted = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
    given = {(topic, number) for topic, numbers in named.items() for number in numbers}
    if wanted == given:
        return
    missing, unknown = sorted(wanted - given), sorted(given - wanted)
    problem = f"does not name {_named(missing)}" if missing else f"names {_named(unknown)}, which are not read"
    raise LakelogError(
        ErrorCode.INVALID_CONFIG,
        f"option {option} {problem}; with positions by partition all that are read have to be there "
        f"(-2 is the earliest offset, -1 the latest)",
    )


def _named(partitions: list[tuple[str, int]]) -> str:
    shown = ", ".join(f"{topic}-{number}" for topic, number in partitions[:5])
    return f"{shown} and {len(partitions) - 5} more" if len(partitions) > 5 else shown


def resolve(
    position: Position,
    topic: str,
    partition: int,
    *,
    log_start_offset: int,
    high_watermark: int,
    offset_at: Callable[[int], int | None],
    when_no_record: int | None,
) -> int:
    """The offset that a position names in one partition. `offset_at` finds the first record at or after a time;
    where there is none, `when_no_record` is the answer, or it is an error.
    """
    match position:
        case At(place):
            offset = place
        case AtOffsets(offsets):
            offset = offsets[topic][partition]
        case AtTime(time_ms):
            return _found(topic, partition, time_ms, offset_at(time_ms), when_no_record)
        case AtTimes(times_ms):
            time_ms = times_ms[topic][partition]
            return _found(topic, partition, time_ms, offset_at(time_ms), when_no_record)
    return {EARLIEST: log_start_offset, LATEST: high_watermark}.get(offset, offset)


def _found(topic: str, partition: int, time_ms: int, offset: int | None, when_no_record: int | None) -> int:
    if offset is not None:
        return offset
    if when_no_record is not None:
        return when_no_record
    raise LakelogError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{topic}-{partition} has no record at or after {time_ms} ms since 1970; "
        "set startingOffsetsByTimestampStrategy to latest to begin at its end",
    )


def to_json(offsets: Offsets) -> OffsetsJson:
    """Always in the same order: Spark compares offsets as text."""
    return {
        topic: {str(partition): offsets[topic][partition] for partition in sorted(offsets[topic])}
        for topic in sorted(offsets)
    }


def from_json(data: OffsetsJson) -> Offsets:
    return {
        topic: {int(partition): offset for partition, offset in partitions.items()}
        for topic, partitions in data.items()
    }


def furthest(one: Offsets, other: Offsets) -> Offsets:
    """The higher offset of two in every partition that either names."""
    return {
        topic: {
            partition: max(each.get(topic, {}).get(partition, 0) for each in (one, other))
            for partition in {**one.get(topic, {}), **other.get(topic, {})}
        }
        for topic in {**one, **other}
    }


def parse_offsets(text: str, option: str) -> Offsets:
    """Numbers by partition as an option gives them; refuses what is not the JSON that it has to be."""
    try:
        data: Any = json.loads(text)
        return {
            topic: {int(partition): _whole(number) for partition, number in partitions.items()}
            for topic, partitions in data.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise LakelogError(
            ErrorCode.INVALID_CONFIG,
            f'option {option} is {text!r}; it should be JSON such as {{"topic": {{"0": 23, "1": -2}}}}',
        ) from None


def _whole(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(number)
    return number


def admit(start: Offsets, latest: Offsets, offsets_max: int) -> Offsets:
    """As far as `offsets_max` offsets reach, shared among the partitions by how much each of them has waiting."""
    waiting = {
        (topic, partition): max(0, end - start.get(topic, {}).get(partition, end))
        for topic, ends in latest.items()
        for partition, end in ends.items()
    }
    total = sum(waiting.values())
    if total <= offsets_max:
        return latest
    shares = {key: offsets_max * count // total for key, count in waiting.items()}
    # What rounding leaves goes to those who lost most by it, so that nobody waits for ever.
    left = offsets_max - sum(shares.values())
    for key in sorted(waiting, key=lambda key: -(offsets_max * waiting[key] % total))[:left]:
        shares[key] += 1
    return {
        topic: {
            partition: end - waiting[topic, partition] + shares[topic, partition] for partition, end in ends.items()
        }
        for topic, ends in latest.items()
    }
