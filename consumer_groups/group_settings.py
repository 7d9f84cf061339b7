"""What the group coordinator can be told by an operator: Kafka's names and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.config import Settings, int_of, row


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings(Settings):
    group_min_session_timeout_ms: int = row(
        int_of(1),
        6_000,
        "The shortest session timeout that a member may ask for. Shorter ones find dead members sooner, and cost "
        "more heartbeats.",
    )
    group_max_session_timeout_ms: int = row(
        int_of(1),
        1_800_000,
        "The longest session timeout that a member may ask for: so long may the partitions of a dead member lie idle.",
    )
    group_consumer_session_timeout_ms: int = row(
        int_of(1),
        45_000,
        "How long a member of Kafka's newer group protocol (KIP-848) may be silent before its partitions go to the "
        "others.",
    )
    group_consumer_heartbeat_interval_ms: int = row(
        int_of(1),
        5_000,
        "How often members of the newer protocol are told to send heartbeats. A partition changes hands by a few of "
        "them.",
    )
    group_max_size: int = row(
        int_of(1),
        10_000,
        "How many members a group may have.",
    )
    group_initial_rebalance_delay_ms: int = row(
        int_of(0),
        0,
        "How long an empty group of Kafka clients waits for more members before it divides its partitions. By "
        "default it does not wait, so the first member reads at once.",
    )
    group_topics_refresh_ms: int = row(
        int_of(10),
        30_000,
        "How often the coordinator looks for topics and partitions that other processes have added or deleted.",
    )
    offset_metadata_bytes_max: int = row(
        int_of(0),
        4_096,
        "How much text a member may attach to an offset that it commits.",
    )
    offsets_retention_minutes: int = row(
        int_of(1),
        10_080,
        "How long committed offsets are kept once their group has no members and commits no more.",
    )
    offsets_retention_check_interval_ms: int = row(
        int_of(1),
        600_000,
        "How often the coordinator looks for offsets that have been kept for long enough.",
    )
