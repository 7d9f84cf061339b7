"""Positions in the partitions of a topic as text, `0:17,1:earliest`: in parameters, headers and event ids."""

from __future__ import annotations

from collections.abc import Mapping

from ingest_api.errors import HttpError
from lakelog.broker import Broker
from lakelog.fetch import Position

NAMED = {"earliest": Position.EARLIEST, "latest": Position.LATEST}
INT64_MAX = 2**63 - 1


def parse_offset(text: str) -> int | Position:
    if text in NAMED:
        return NAMED[text]
    if not text.isascii() or not text.isdecimal() or int(text) > INT64_MAX:
        raise HttpError(422, f"offset is {text[:50]!r}; it is a number, earliest or latest")
    return int(text)


def parse_positions(text: str) -> dict[int, int | Position]:
    positions: dict[int, int | Position] = {}
    for item in filter(None, text.split(",")):
        partition, colon, offset = item.partition(":")
        if not colon or not partition.isascii() or not partition.isdecimal():
            raise HttpError(422, f"{item[:50]!r} is no position; positions are written as 0:17,1:earliest")
        positions[int(partition)] = parse_offset(offset)
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
