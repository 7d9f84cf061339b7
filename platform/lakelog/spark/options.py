"""The options of `format("lakelog")`: those of Spark's Kafka source and sink, and the address of the warehouse.

Owns their names, defaults and meaning. An option that is not known is refused, because a misspelt one that is passed
over shows up as missing records much later. Everything here is decided on the driver; tasks get the result.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import check_not_internal, check_topic_name
from lakelog.spark.positions import (
    EARLIEST,
    LATEST,
    At,
    AtOffsets,
    AtTime,
    AtTimes,
    Offsets,
    Position,
    parse_offsets,
)

WAREHOUSE_VARIABLE = "LAKELOG_WAREHOUSE"
FSYNC_VARIABLE = "LAKELOG_FSYNC"
STORAGE_PREFIX = "lakelog.storage."

ADDRESS_OPTIONS = ("warehouse", "path")
SOURCE_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "filterPushdown",
)
SINK_OPTIONS = ("topic", "txnAppId", "txnVersion")
# Spark hands these on to every sink.
SPARKS_OWN = ("checkpointLocation", "queryName")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the warehouse is. Resolved on the driver, so that every task looks in the same place."""

    warehouse: str
    storage: tuple[tuple[str, str], ...] = ()
    fsync: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[tuple[str, tuple[int, ...]], ...]


Subscription: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class SourceOptions:
    address: Address
    subscription: Subscription
    starting: Position | None
    ending: Position | None
    latest_when_no_record: bool
    max_offsets_per_trigger: int | None
    min_partitions: int
    fail_on_data_loss: bool
    include_headers: bool
    filter_pushdown: bool

    def batch_start(self) -> Position:
        """A batch reads from the earliest offset on, and there is nothing to read from the latest on."""
        starting = self.starting or At(EARLIEST)
        if starting == At(LATEST) or (isinstance(starting, AtOffsets) and _has(starting.offsets, LATEST)):
            raise _refused("startingOffsets can't be latest (-1) in a batch read: there would be nothing to read")
        return starting

    def batch_end(self) -> Position:
        ending = self.ending or At(LATEST)
        if ending == At(EARLIEST) or (isinstance(ending, AtOffsets) and _has(ending.offsets, EARLIEST)):
            raise _refused("endingOffsets can't be earliest (-2): there would be nothing to read")
        return ending

    def stream_start(self) -> Position:
        if self.ending is not None:
            raise _refused(
                "endingOffsets and endingTimestamp are for batch reads; a stream goes on until it is stopped"
            )
        return self.starting or At(LATEST)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    address: Address
    topic: str | None
    txn_app_id: str | None
    txn_version: int | None


def parse_source(given: Mapping[str, str]) -> SourceOptions:
    options = _lowered(given)
    _refuse_unknown(options, (*ADDRESS_OPTIONS, *SOURCE_OPTIONS))
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise _refused(f"startingOffsetsByTimestampStrategy is {strategy!r}; it should be error or latest")
    return SourceOptions(
        address=_address(options),
        subscription=_subscription(options),
        starting=_position(options, "starting"),
        ending=_position(options, "ending"),
        latest_when_no_record=strategy == "latest",
        max_offsets_per_trigger=_number(options, "maxOffsetsPerTrigger", least=1),
        min_partitions=_number(options, "minPartitions", least=1) or 1,
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        include_headers=_flag(options, "includeHeaders", default=False),
        filter_pushdown=_flag(options, "filterPushdown", default=False),
    )


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    options = _lowered(given)
    _refuse_unknown(options, (*ADDRESS_OPTIONS, *SINK_OPTIONS, *SPARKS_OWN))
    topic = options.get("topic")
    if topic is not None:
        check_sink_topic(topic)
    app, version = options.get("txnappid"), _number(options, "txnVersion", least=0)
    if (app is None) != (version is None):
        raise _refused("txnAppId and txnVersion go together: who writes, and which of its writes this is")
    # It becomes the name of a folder.
    if app is not None and (app in (".", "..") or not re.fullmatch(r"[a-zA-Z0-9._-]{1,200}", app)):
        raise _refused(f"txnAppId is {app!r}; it should be up to 200 letters, digits, '.', '_' and '-'")
    return SinkOptions(_address(options), topic, app, version)


def check_sink_topic(name: str) -> None:
    check_topic_name(name)
    check_not_internal(name)


def _lowered(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _refused(message: str) -> LakelogError:
    return LakelogError(ErrorCode.INVALID_CONFIG, message)


def _has(offsets: Offsets, place: int) -> bool:
    return any(place in partitions.values() for partitions in offsets.values())


def _refuse_unknown(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    spelling = {name.lower(): name for name in known}
    for name in options:
        if name in spelling or name.startswith(STORAGE_PREFIX):
            continue
        if name.startswith(("kafka.", "kafkaconsumer.", "fetchoffset.", "groupid")):
            raise _refused(
                f"option {name} is for a connection to Kafka; topics are read from the warehouse without one"
            )
        near = get_close_matches(name, spelling, n=1)
        hint = f"did you mean {spelling[near[0]]}?" if near else f"known are {', '.join(known)}, {STORAGE_PREFIX}*"
        raise _refused(f"unknown option {name!r}; {hint}")


def _address(options: Mapping[str, str]) -> Address:
    given = options.get("warehouse") or options.get("path") or os.environ.get(WAREHOUSE_VARIABLE)
    if not given:
        raise _refused(
            "option warehouse is missing: a directory or an s3://, gs:// or az:// URL that holds the topics "
            f"(or set {WAREHOUSE_VARIABLE})"
        )
    scheme = urlsplit(given).scheme
    if scheme == "memory":
        raise _refused("a memory:// warehouse is known to one process alone, and Spark's tasks run in others")
    if not scheme:
        given = str(Path(given).expanduser().absolute())
    storage = {name.removeprefix(STORAGE_PREFIX): v for name, v in options.items() if name.startswith(STORAGE_PREFIX)}
    flushed = {FSYNC_VARIABLE.lower(): os.environ.get(FSYNC_VARIABLE) or "false"}
    return Address(given, tuple(sorted(storage.items())), _flag(flushed, FSYNC_VARIABLE, default=False))


def _subscription(options: Mapping[str, str]) -> Subscription:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if options.get(name.lower())]
    if len(ways) != 1:
        problem = f"{' and '.join(ways)} are both there" if ways else "none is there"
        raise _refused(f"exactly one of subscribe, subscribePattern and assign says what to read; {problem}")
    text = options[ways[0].lower()]
    if ways[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise _refused(f"option subscribe is {text!r}; it should be topics with commas between them")
        for name in topics:
            check_topic_name(name)
        return Subscribe(topics)
    if ways[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise _refused(f"option subscribePattern is {text!r}, which is no regular expression: {error}") from None
        return SubscribePattern(text)
    return _assigned(text)


def _assigned(text: str) -> Assign:
    try:
        data = json.loads(text)
        assigned = tuple((topic, tuple(sorted({int(n) for n in numbers}))) for topic, numbers in sorted(data.items()))
        if not assigned or any(not numbers or numbers[0] < 0 for _, numbers in assigned):
            raise ValueError(text)
    except (ValueError, TypeError, AttributeError):
        raise _refused(f'option assign is {text!r}; it should be JSON such as {{"topic": [0, 1]}}') from None
    for topic, _ in assigned:
        check_topic_name(topic)
    return Assign(assigned)


def _position(options: Mapping[str, str], edge: str) -> Position | None:
    """A time for all goes before times by partition, and these before offsets, as in Kafka's source."""
    time_ms = _number(options, f"{edge}Timestamp", least=0)
    if time_ms is not None:
        return AtTime(time_ms)
    by_time, by_offset = f"{edge}OffsetsByTimestamp", f"{edge}Offsets"
    text = options.get(by_time.lower())
    if text is not None:
        times = parse_offsets(text, by_time)
        if any(time_ms < 0 for partitions in times.values() for time_ms in partitions.values()):
            raise _refused(f"option {by_time} has a time before 1970")
        return AtTimes(times)
    text = options.get(by_offset.lower())
    if text is None:
        return None
    match text.strip().lower():
        case "earliest":
            return At(EARLIEST)
        case "latest":
            return At(LATEST)
    offsets = parse_offsets(text, by_offset)
    if any(offset < EARLIEST for partitions in offsets.values() for offset in partitions.values()):
        raise _refused(f"option {by_offset} has an offset below -2; -2 is the earliest offset, -1 the latest")
    return AtOffsets(offsets)


def _number(options: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise _refused(f"option {name} is {text!r}; it should be a whole number from {least} on")
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise _refused(f"option {name} is {text!r}; it should be true or false")
    return text == "true"
