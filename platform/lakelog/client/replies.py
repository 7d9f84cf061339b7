"""What the gateway's replies say. Pure: a reply goes in, and a value comes out or a RequestFailed is raised."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa

from lakelog.client.errors import not_understood, refused
from lakelog.client.fetched import Fetched
from lakelog.model.topic import PartitionDescription

NEXT_OFFSET = "Lakelog-Next-Offset"
HIGH_WATERMARK = "Lakelog-High-Watermark"
LOG_START_OFFSET = "Lakelog-Log-Start-Offset"

T = TypeVar("T")


class HeaderFields(Protocol):
    """The header fields of a reply; how a name is written does not matter."""

    def get(self, name: str, /) -> str | None: ...


class Reply(NamedTuple):
    """An HTTP reply, with all of its body."""

    status: int
    headers: HeaderFields
    body: bytes


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
        """Offsets that are served; in a compacted topic some of them have no record any more."""
        return sum(each.high_watermark - each.log_start_offset for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)


class _Error(msgspec.Struct):
    error_code: int | None
    message: str


class _LogStarts(msgspec.Struct):
    log_start_offsets: dict[int, int]


def check(reply: Reply, now: datetime | None = None) -> None:
    """Raise what an error reply says. What is not a gateway's (a proxy's page, say) is told by its status."""
    if reply.status < 300:
        return
    try:
        error = msgspec.json.decode(reply.body, type=_Error)
    except msgspec.DecodeError:
        error = _Error(None, "")
    retry_after_s = _seconds(reply.headers.get("Retry-After"), now or datetime.now(UTC))
    raise refused(reply.status, error.error_code, error.message, retry_after_s)


def nothing(reply: Reply) -> None:
    check(reply)


def topic_names(reply: Reply) -> list[str]:
    return _json(reply, list[str])


def topic_info(reply: Reply) -> TopicInfo:
    return _json(reply, TopicInfo)


def topic_configs(reply: Reply) -> list[TopicConfigEntry]:
    return _json(reply, list[TopicConfigEntry])


def log_starts(reply: Reply) -> dict[int, int]:
    return _json(reply, _LogStarts).log_start_offsets


def produced(reply: Reply, records: int) -> Produced:
    check(reply)
    return Produced(records) if reply.status == 204 else _json(reply, Produced)


def fetched(reply: Reply, partition: int | None = None) -> Fetched:
    """With a partition the reply is that one's, and its positions are single numbers."""
    check(reply)
    try:
        with pa.ipc.open_stream(reply.body) as stream:
            table = stream.read_all()
    except pa.ArrowException as error:
        raise not_understood(str(error)) from None
    return Fetched(
        table,
        next_positions=_positions(reply, NEXT_OFFSET, partition),
        high_watermarks=_positions(reply, HIGH_WATERMARK, partition),
        log_start_offsets=_positions(reply, LOG_START_OFFSET, partition),
    )


def _json(reply: Reply, kind: type[T]) -> T:
    check(reply)
    try:
        # Not strict: the keys of JSON objects are text, also where they are partition numbers.
        return msgspec.json.decode(reply.body, type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise not_understood(str(error)) from None


def _positions(reply: Reply, name: str, partition: int | None) -> dict[int, int]:
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


def _seconds(text: str | None, now: datetime) -> float | None:
    """Retry-After comes as seconds or as a date. One that is neither says nothing."""
    if text is None:
        return None
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):
        return None
