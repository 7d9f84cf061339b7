"""How far a group is behind, per partition.

Owns the sum of three things that others know: what the group has committed, who reads what, and how far the partitions
go. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommittedOffset
from consumer_groups.requests import GroupDescription
from consumer_groups.resets import Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a group is in one partition.

    `current` is where its member reads now as far as the gateway knows, else what is committed. `end_offset` is one
    past the last record. What stands in the table is all there is, so it equals the high watermark. `lag` counts from
    what is committed, and is None where nothing is. `member_id` is empty where nobody reads the partition.
    """

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


def partition_lags(
    group: GroupDescription,
    offsets: Mapping[TopicPartition, CommittedOffset],
    positions: Mapping[str, Mapping[TopicPartition, int]],
    marks: Mapping[TopicPartition, Marks],
) -> list[PartitionLag]:
    """One for each partition that `marks` has, in order. `positions` are by member."""
    readers = {key: member for member in group.members for key in member.assignment}
    found = []
    for key in sorted(marks):
        committed, reader = offsets.get(key), readers.get(key)
        offset = committed.offset if committed else None
        end = marks[key].high_watermark
        found.append(
            PartitionLag(
                topic=key.topic,
                partition=key.partition,
                committed=offset,
                current=positions.get(reader.member_id, {}).get(key, offset) if reader else offset,
                log_start_offset=marks[key].log_start_offset,
                high_watermark=end,
                end_offset=end,
                lag=None if offset is None else max(0, end - offset),
                metadata=committed.metadata if committed else "",
                member_id=reader.member_id if reader else "",
                instance_id=reader.instance_id if reader else None,
                client_id=reader.client_id if reader else "",
                client_host=reader.client_host if reader else "",
            )
        )
    return found
