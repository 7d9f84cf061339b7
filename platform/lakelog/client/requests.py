"""What can be asked of a gateway: each function describes one request, and how its reply is read.

Pure: nothing is sent here. The clients turn each of these functions into a method of the same name and arguments, so
what is said here is the clients' documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from httpx import Response

from lakelog.client import replies
from lakelog.client.fetched import Fetched
from lakelog.client.identity import Identity
from lakelog.client.records import timestamp_ms
from lakelog.client.replies import (
    GroupInfo,
    GroupLag,
    ListedGroup,
    OffsetReset,
    Produced,
    TopicConfigEntry,
    TopicInfo,
    TopicSummary,
)
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import check_topic_name

ARROW_STREAM = "application/vnd.apache.arrow.stream"

Acks: TypeAlias = Literal["all", 1, 0]
Offset: TypeAlias = int | Literal["earliest", "latest"]
Positions: TypeAlias = Mapping[int, Offset]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A request and what its reply means.

    `repeatable` is one that may be sent again when nobody knows whether it was done. `wait_ms` is how long the gateway
    is asked to take before it answers.
    """

    method: str
    path: str
    read: Callable[[Response], T_co]
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    wait_ms: int = 0


def ping() -> Call[None]:
    """Whether there is a gateway that can serve: returns, or raises."""
    return Call("GET", "/ready", replies.nothing)


def list_topics() -> Call[list[str]]:
    """The names of all topics."""
    return Call("GET", "/topics", replies.topic_names)


def summarize_topics() -> Call[list[TopicSummary]]:
    """All topics in figures: how many partitions and records each has, and how many bytes."""
    return Call("GET", "/admin/topics", replies.topic_summaries)


def describe_topic(topic: str) -> Call[TopicInfo]:
    """A topic's configuration, and its partitions with their offsets, sizes and times."""
    return Call("GET", _admin(topic), replies.topic_info)


def create_topic(topic: str, partitions: int | None = None, config: Mapping[str, Any] | None = None) -> Call[TopicInfo]:
    """Create a topic. What is not said of it is as the gateway's settings and the configs' defaults have it."""
    content: dict[str, Any] = {"topic_name": topic, "config": _texts(config or {})}
    if partitions is not None:
        content["partitions_count"] = partitions
    return _with_json("POST", "/admin/topics", content, replies.topic_info, repeatable=False)


def delete_topic(topic: str) -> Call[None]:
    """Delete a topic and its records."""
    return Call("DELETE", _admin(topic), replies.nothing, repeatable=False)


def topic_configs(topic: str) -> Call[list[TopicConfigEntry]]:
    """Every config of a topic: its value, its default and what it does."""
    return Call("GET", _admin(topic, "configs"), replies.topic_configs)


def alter_config(
    topic: str, set: Mapping[str, Any] | None = None, unset: list[str] | tuple[str, ...] = ()
) -> Call[list[TopicConfigEntry]]:
    """Set some configs and take others back to their defaults; all of it or nothing."""
    content = {"set": _texts(set or {}), "unset": list(unset)}
    return _with_json("PATCH", _admin(topic, "configs"), content, replies.topic_configs)


def add_partitions(topic: str, total: int) -> Call[TopicInfo]:
    """Let a topic grow to `total` partitions."""
    content = {"partitions_count": total}
    return _with_json("POST", _admin(topic, "partitions"), content, replies.topic_info, repeatable=False)


def delete_records(topic: str, before: Mapping[int, int]) -> Call[dict[int, int]]:
    """Let go of the records below an offset per partition (-1: of all); returns where the partitions start then."""
    content = {"offsets": {str(partition): offset for partition, offset in before.items()}}
    return _with_json("POST", _admin(topic, "delete-records"), content, replies.log_starts)


def list_groups() -> Call[list[ListedGroup]]:
    """All consumer groups, with their states."""
    return Call("GET", "/admin/groups", replies.groups)


def describe_group(group: str) -> Call[GroupInfo]:
    """A group's state and its members, with what each reads."""
    return Call("GET", _group(group), replies.group_info)


def group_lag(group: str) -> Call[list[GroupLag]]:
    """How far a group is, in every partition that it has committed for or reads."""
    return Call("GET", _group(group, "lag"), replies.group_lag)


def reset_group_offsets(
    group: str,
    target: Mapping[str, Any],
    topics: Mapping[str, list[int] | None] | None = None,
    *,
    dry_run: bool = False,
) -> Call[list[OffsetReset]]:
    """Move a group without members to another place, or see with `dry_run` where it would go.

    `target` is one of {"to": "earliest"}, {"to": "latest"}, {"to": "current"}, {"offset": 17}, {"timestamp_ms": ...},
    {"duration_ms": ...} and {"shift": -10}; `topics` names partitions by topic, None for all of a topic.
    """
    content = {**target, "topics": topics, "dry_run": dry_run}
    repeatable = dry_run or "shift" not in target
    return _with_json("POST", _group(group, "reset-offsets"), content, replies.offset_resets, repeatable=repeatable)


def delete_group(group: str) -> Call[None]:
    """Delete a group without members, and what it committed."""
    return Call("DELETE", _group(group), replies.nothing, repeatable=False)


def fetch(
    topic: str,
    *,
    partition: int | None = None,
    offset: Offset = "earliest",
    timestamp: datetime | int | None = None,
    positions: Positions | None = None,
    max_bytes: int | None = None,
    min_bytes: int = 1,
    timeout_ms: int = 0,
) -> Call[Fetched]:
    """Records of one partition, or of all partitions of a topic.

    A partition begins at `offset`, or at the first record of `timestamp` (milliseconds, or a datetime) or later; over a
    topic, at what `positions` says of it: hand in `next_positions` of the last reply to go on. The reply waits for
    `min_bytes` up to `timeout_ms`, and holds up to `max_bytes`.
    """
    params: dict[str, str | int] = {"offset": offset, "min_bytes": min_bytes, "timeout": timeout_ms}
    if timestamp is not None:
        params["timestamp"] = timestamp_ms(timestamp)
    if max_bytes is not None:
        params["max_bytes"] = max_bytes
    if partition is None:
        path = _topic(topic, "records")
        if positions:
            params["positions"] = _positions(positions)
    else:
        path = _topic(topic, "partitions", str(partition), "records")
        if positions and partition in positions:
            params["offset"] = positions[partition]
            # A position says where a reader stands, so it goes before the time at which it began.
            params.pop("timestamp", None)
    return Call(
        "GET",
        path,
        partial(replies.fetched, partition=partition),
        params,
        headers={"Accept": ARROW_STREAM},
        wait_ms=timeout_ms,
    )


def offsets_at(topic: str, time: datetime | int | Literal["earliest", "latest"]) -> Call[dict[int, int]]:
    """For each partition, the offset of the first record of a time or later; the next offset where there is none."""
    # The smallest fetch there is: where a record comes back it is the first, and where none does, that is the place.
    if isinstance(time, str):
        call = fetch(topic, offset=time, max_bytes=1, min_bytes=0)
    else:
        call = fetch(topic, timestamp=time, max_bytes=1, min_bytes=0)

    def starts(reply: Response) -> dict[int, int]:
        fetched = call.read(reply)
        return {**fetched.next_positions, **fetched.first_offsets()}

    return Call(call.method, call.path, starts, call.params, call.headers)


def produce(
    topic: str,
    body: bytes,
    records: int,
    *,
    identity: Identity | None,
    partition: int | None = None,
    acks: Acks = "all",
    timeout_ms: int | None = None,
    expected_offsets: Mapping[int, int] | None = None,
) -> Call[Produced]:
    """Append an Arrow IPC stream of so many records; under an identity it can be sent again without harm."""
    headers = {"Content-Type": ARROW_STREAM}
    if identity is not None:
        headers["Lakelog-Producer-Id"] = str(identity.producer_id)
        headers["Lakelog-Sequence"] = str(identity.sequence)
    if expected_offsets is not None:
        headers["Lakelog-Expected-Offset"] = _positions(expected_offsets)
    params: dict[str, str | int] = {"acks": acks}
    if timeout_ms is not None:
        params["timeout"] = timeout_ms
    return Call(
        "POST",
        _topic(topic) if partition is None else _topic(topic, "partitions", str(partition)),
        partial(replies.produced, records=records),
        params,
        headers,
        body,
        repeatable=identity is not None,
        wait_ms=timeout_ms or 0,
    )


def _with_json(
    method: str, path: str, content: Any, read: Callable[[Response], T_co], *, repeatable: bool = True
) -> Call[T_co]:
    headers = {"Content-Type": "application/json"}
    return Call(method, path, read, headers=headers, body=msgspec.json.encode(content), repeatable=repeatable)


def _admin(topic: str, *rest: str) -> str:
    return f"/admin{_topic(topic, *rest)}"


def _group(group: str, *rest: str) -> str:
    if not group:
        # It would mean the path of all groups.
        raise LakelogError(ErrorCode.INVALID_GROUP_ID, "a group's id is empty")
    return "/".join(("/admin/groups", quote(group, safe=""), *rest))


def _topic(topic: str, *rest: str) -> str:
    # A name that a gateway would refuse may also mean another path to it, so it is refused here.
    check_topic_name(topic)
    return "/".join(("/topics", topic, *rest))


def _positions(positions: Mapping[int, int | str]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in positions.items())


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}
