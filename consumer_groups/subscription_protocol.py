"""The bytes that members of Kafka's consumer protocol put into JoinGroup and SyncGroup.

Owns the wire form of subscriptions and assignments (versions 0 to 3), and of what the sticky assignor remembers in a
subscription's user data. With it a member that the coordinator serves looks to a Kafka client's leader like one of
its own. What a later version adds stands behind what is known here, so it is read as version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from consumer_groups.assignors import TopicPartition
from lakelog.errors import ErrorCode, LakelogError

VERSION_MAX = 3
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSubscription:
    """What a member says when it joins; a version that has no room for a field drops it."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAssignment:
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: ConsumerSubscription, version: int = VERSION_MAX) -> bytes:
    out = bytearray(_INT16.pack(version))
    out += _INT32.pack(len(subscription.topics))
    for topic in subscription.topics:
        out += _string(topic)
    out += _bytes(subscription.user_data)
    if version >= 1:
        out += _partitions(subscription.owned)
    if version >= 2:
        out += _INT32.pack(subscription.generation)
    if version >= 3:
        out += _string(subscription.rack_id)
    return bytes(out)


def decode_subscription(data: bytes) -> ConsumerSubscription:
    reader = _Reader(data)
    version = reader.version()
    topics = tuple(reader.required_string() for _ in range(reader.count()))
    user_data = reader.nullable_bytes()
    return ConsumerSubscription(
        topics=topics,
        user_data=user_data,
        owned=reader.partitions() if version >= 1 else (),
        generation=reader.int32() if version >= 2 else -1,
        rack_id=reader.string() if version >= 3 else None,
    )


def encode_assignment(assignment: ConsumerAssignment, version: int = VERSION_MAX) -> bytes:
    return _INT16.pack(version) + _partitions(assignment.partitions) + _bytes(assignment.user_data)


def decode_assignment(data: bytes) -> ConsumerAssignment:
    """No bytes at all are an empty assignment: a leader that forgets a member gives it that."""
    if not data:
        return ConsumerAssignment(partitions=())
    reader = _Reader(data)
    reader.version()
    partitions = reader.partitions()
    return ConsumerAssignment(partitions=partitions, user_data=reader.nullable_bytes())


def encode_sticky_memory(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """User data by which Kafka's eager sticky assignor learns what a member had before it gave everything up."""
    return _partitions(owned) + _INT32.pack(generation)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    out = bytearray(_INT32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        out += _string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out)


class _Reader:
    """Reads on through bytes from outside; whatever does not fit is refused, and no length is believed unseen."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def version(self) -> int:
        version = self._number(_INT16)
        if version < 0:
            raise _malformed(f"version {version}")
        return version

    def int32(self) -> int:
        return self._number(_INT32)

    def count(self) -> int:
        count = self.int32()
        if not -1 <= count <= self.left:
            raise _malformed(f"{count} elements in {self.left} bytes")
        return max(count, 0)

    def string(self) -> str | None:
        length = self._number(_INT16)
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise _malformed("a name that is not UTF-8") from None

    def required_string(self) -> str:
        text = self.string()
        if text is None:
            raise _malformed("no name where one must be")
        return text

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.required_string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _number(self, form: struct.Struct) -> int:
        return int(form.unpack(self._take(form.size))[0])

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise _malformed(f"{length} bytes where {self.left} are left")
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]


def _malformed(what: str) -> LakelogError:
    return LakelogError(ErrorCode.INVALID_REQUEST, f"these are not bytes of Kafka's consumer protocol: {what}")
