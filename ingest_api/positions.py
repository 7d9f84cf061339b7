"""Positions in the partitions of a topic as text, `0:17,1:earliest`: in parameters, headers and event ids."""

from __future__ import annotations

from collections.abc import Mapping

from ingest_api.errors import HttpError
from lakelog.broker import Broker
from lakelog.fetch import Position

NAMED = {"earliest": Position.EARLIEST, "latest": Position.LATEST}
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_DIGITS_MOST = len(str(INT64_MAX))


def parse_whole(text: str, most: int = INT64_MAX) -> int | None:
    """The number that plain digits stand for, or None. Numbers of any length come in: most are looked at no further."""
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MOST or int(text) > most:
        return None
    return int(text)


def parse_offset(text: str) -> int | Position:
    if text in NAMED:
        return NAMED[text]
    offset = parse_whole(text)
    if offset is None:
        raise HttpError(422, f"offset is {text[:50]!r}; it is a number, earliest or latest")
    return offset


def parse_positions(text: str) -> dict[int, int | Position]:
    positions: dict[int, int | Position] = {}
    for item in filter(None, text.split(",")):
        partition_text, colon, offset = item.partition(":")
        partition = parse_whole(partition_text.strip(), INT32_MAX)
        if not colon or partition is None:
            raise HttpError(422, f"{item[:50]!r} is no position; positions are written as 0:17,1:earliest")
        if partition in positions:
            raise HttpError(422, f"partition {partition} has two positions")
        positions[partition] = parse_offset(offset.strip())
    return positions


def parse_exact(text: str) -> dict[int, int]:
    """Positions that are all given as numbers."""
    exact: dict[int, int] = {}
    for partition, position in parse_positions(text).items():
        if isinstance(position, Position):
            raise HttpError(422, f"the position of partition {partition} has to be a number here")
        exact[partition] = position
    return exact


def format_positions(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in positions.items())


async def resolve(broker: Broker, topic: str, partition: int, at: int | Position, timestamp_ms: int | None) -> int:
    """The offset that a position or a time stands for. A time after the last record stands for the end."""
    if timestamp_ms is not None:
        found = await broker.offset_at(topic, partition, timestamp_ms)
        if found.offset >= 0:
            return found.offset
        at = Position.LATEST
    if isinstance(at, Position):
        return (await broker.offset_at(topic, partition, at)).offset
    return at
