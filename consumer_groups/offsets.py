"""What groups have committed: how far each has read in each partition.

Owns the values of a commit and the book in memory that answers for them. The book holds the latest commit per group
and partition and knows which ones have outlived their group. It is plain code: what stands in it was made durable by
`consumer_groups.offset_table` before, and no clock and no store must be known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from consumer_groups.assignors import TopicPartition
from lakelog.errors import ErrorCode

NO_OFFSET = -1


class CommittedOffset(NamedTuple):
    """The next offset that a group will read in a partition, as it was committed."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_us: int = 0


class OffsetRow(NamedTuple):
    """One change of the book. `offset` is None where a commit was deleted."""

    group: str
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int
    metadata: str
    committed_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Commit how far a member has read, in its generation or epoch; with generation -1 and no member id, how far an
    empty group has.

    `offsets` are (offset, leader epoch, metadata) by partition; the offset is that of the next record to read. With
    `all_or_none` nothing is stored where one of them is refused; without it the others are, as in Kafka.
    """

    group_id: str
    offsets: Mapping[TopicPartition, tuple[int, int, str]]
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    all_or_none: bool = False


@dataclass(frozen=True, slots=True)
class CommitReply:
    """`error` is for the request as a whole; `refused` are the partitions that were left out, and why."""

    error: ErrorCode = ErrorCode.NONE
    refused: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


class OffsetBook:
    """The latest commit per group and partition."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    @property
    def groups(self) -> Collection[str]:
        return self._by_group.keys()

    @property
    def topics(self) -> set[str]:
        return {topic for offsets in self._by_group.values() for topic, _ in offsets}

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._by_group.get(group_id, {})

    def apply(self, rows: Iterable[OffsetRow]) -> None:
        """Take in changes in the order in which they were made."""
        by_group = self._by_group
        for group, topic, partition, offset, leader_epoch, metadata, committed_us in rows:
            key = TopicPartition(topic, partition)
            if offset is not None:
                committed = CommittedOffset(offset, leader_epoch, metadata, committed_us)
                by_group.setdefault(group, {})[key] = committed
            elif group in by_group:
                by_group[group].pop(key, None)
                if not by_group[group]:
                    del by_group[group]

    def expired(self, group_id: str, *, idle_since_ms: int, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """What a group without members has kept for too long, as Kafka counts it: the retention begins when the last
        member went, or with the commit if that came later.
        """
        due_us = (now_ms - retention_ms) * 1000
        if idle_since_ms * 1000 > due_us:
            return []
        return [key for key, committed in self.of(group_id).items() if committed.committed_us <= due_us]
