"""What the gateway's replies say. Pure: a reply goes in, and a value comes out or a RequestFailed is raised."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pyarrow as pa
from httpx import Response

from lakelog.client.errors import not_understood, refused
from lakelog.client.fetched import Fetched, Polled
from lakelog.model.topic import PartitionDescription

NEXT_OFFSET = "Lakelog-Next-Offset"
HIGH_WATERMARK = "Lakelog-High-Watermark"
LOG_START_OFFSET = "Lakelog-Log-Start-Offset"
ERROR = "Lakelog-Error"
RETRY_AFTER = "Retry-After"

T = TypeVar("T")


class OffsetRange(msgspec.Struct, frozen=True):
    """The offsets [start_offset, end_offset) of a partition."""

    partition: int
    start_offset: int
    end_offset: int


class Produced(msgspec.Struct, frozen=True):
    """How many records were stored, and where. With acks=0 nobody knows where."""

    records: int
    ranges: tuple[OffsetRange, ...] = ()


class TopicConfigEntry(msgspec.Struct, frozen=True):
    """A config of a topic as it stands."""

    name: str
    value: str
    default: str
    is_default: bool
    type: str
    doc: str


class TopicInfo(msgspec.Struct, frozen=True):
    """All there is to say about a topic."""

    name: str
    topic_id: str
    internal: bool
    table_version: int
    configs: tuple[TopicConfigEntry, ...]
    partitions: tuple[PartitionDescription, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)


class TopicSummary(msgspec.Struct, frozen=True):
    """A topic in figures."""

    name: str
    internal: bool
    partitions: int
    records: int
    bytes: int


class ListedGroup(msgspec.Struct, frozen=True):
    group_id: str
    state: str
    protocol_type: str


class PartitionOfTopic(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class GroupMember(msgspec.Struct, frozen=True):
    """A member, and the partitions that it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: tuple[PartitionOfTopic, ...]


class GroupInfo(msgspec.Struct, frozen=True):
    """All there is to say about a group, but for how far it is."""

    group_id: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[GroupMember, ...]


class GroupLag(msgspec.Struct, frozen=True):
    """How far a group is in one partition. `lag` counts from what is committed, and is None where nothing is."""

    topic: str
    partition: int
    committed: int | None
    current: int | None
    log_start_offset: int
    high_watermark: int
    end_offset: int
    lag: int | None
    metadata: str = ""
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class OffsetReset(msgspec.Struct, frozen=True):
    """Where a group stood in a partition, and where it goes on."""

    topic: str
    partition: int
    before: int | None
    after: int


class _Error(msgspec.Struct):
    error_code: int | None
    message: str


class _Place(msgspec.Struct):
    topic: str
    partition: int


class _Assigned(msgspec.Struct):
    partitions: list[_Place]


class _LogStarts(msgspec.Struct):
    log_start_offsets: dict[int, int]


def check(reply: Response) -> None:
    """Raise what an error reply says. What is not a gateway's (a proxy's page, say) is told by its status."""
    if reply.status_code < 300:
        return
    try:
        error = msgspec.json.decode(reply.content, type=_Error)
    except msgspec.DecodeError:
        error = _Error(None, "")
    retry_after = reply.headers.get(RETRY_AFTER, "")
    raise refused(
        reply.status_code,
        error.error_code,
        error.message,
        name=reply.headers.get(ERROR),
        retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
    )


def nothing(reply: Response) -> None:
    check(reply)


def topic_names(reply: Response) -> list[str]:
    return _json(reply, list[str])


def topic_summaries(reply: Response) -> list[TopicSummary]:
    return _json(reply, list[TopicSummary])


def topic_info(reply: Response) -> TopicInfo:
    return _json(reply, TopicInfo)


def topic_configs(reply: Response) -> list[TopicConfigEntry]:
    return _json(reply, list[TopicConfigEntry])


def log_starts(reply: Response) -> dict[int, int]:
    return _json(reply, _LogStarts).log_start_offsets


def groups(reply: Response) -> list[ListedGroup]:
    return _json(reply, list[ListedGroup])


def group_info(reply: Response) -> GroupInfo:
    return _json(reply, GroupInfo)


def group_lag(reply: Response) -> list[GroupLag]:
    return _json(reply, list[GroupLag])


def offset_resets(reply: Response) -> list[OffsetReset]:
    return _json(reply, list[OffsetReset])


def produced(reply: Response, records: int) -> Produced:
    check(reply)
    return Produced(records) if reply.status_code == 204 else _json(reply, Produced)


def assigned(reply: Response) -> list[tuple[str, int]]:
    return [(each.topic, each.partition) for each in _json(reply, _Assigned).partitions]


def polled(reply: Response) -> Polled:
    return Polled(_table(reply))


def fetched(reply: Response, partition: int | None = None) -> Fetched:
    """With a partition the reply is that one's, and its positions are single numbers."""
    return Fetched(
        _table(reply),
        next_positions=_positions(reply, NEXT_OFFSET, partition),
        high_watermarks=_positions(reply, HIGH_WATERMARK, partition),
        log_start_offsets=_positions(reply, LOG_START_OFFSET, partition),
    )


def _table(reply: Response) -> pa.Table:
    check(reply)
    try:
        with pa.ipc.open_stream(reply.content) as stream:
            return stream.read_all()
    except pa.ArrowException as error:
        raise not_understood(str(error)) from None


def _json(reply: Response, kind: type[T]) -> T:
    check(reply)
    try:
        # Not strict: the keys of JSON objects are text, also where they are partition numbers.
        return msgspec.json.decode(reply.content, type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise not_understood(str(error)) from None


def _positions(reply: Response, name: str, partition: int | None) -> dict[int, int]:
    text = reply.headers.get(name)
    if text is None:
        raise not_understood(f"there is no header {name}")
    try:
        if partition is not None:
            return {partition: int(text)}
        pairs = (item.split(":") for item in text.split(",") if item)
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise not_understood(f"{name} is {text[:50]!r}") from None
