"""What a topic is called, how many partitions it may have, and how it is described.

Owns Kafka's rules for topic names and the values that a description of a topic is made of. Where topics are
kept, and how they come to be, must not be known here.
"""

import re
from dataclasses import dataclass

from lakelog.config import PARTITIONS_MAX, TopicConfig
from lakelog.errors import ErrorCode, LakelogError

# Kafka's limit: its directories are named by topic, dash and partition, and a file name ends at 255 bytes.
TOPIC_NAME_CHARS_MAX = 249


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; its records have offsets from `log_start_offset` to below `high_watermark`."""

    partition: int
    log_start_offset: int
    high_watermark: int
    segments: int
    bytes: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None

    @property
    def records(self) -> int:
        """Offsets that are served; in a compacted topic some of them have no record any more."""
        return self.high_watermark - self.log_start_offset


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic as of a version of its table."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    config: TopicConfig
    version: int
    internal: bool


def check_topic_name(name: str) -> None:
    """Refuse, with the reason, a name that Kafka would refuse."""
    if reason := _fault_of(name):
        raise LakelogError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:300]!r} {reason}")


def _fault_of(name: str) -> str | None:
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "is a directory's own name"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return f"has {len(name)} characters, and {TOPIC_NAME_CHARS_MAX} are the most"
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        return "may only have ASCII letters, digits, '.', '_' and '-'"
    return None


def is_internal(name: str) -> bool:
    """Whether the topic is the platform's own, kept out of listings and not written by clients."""
    return name.startswith("__")


def check_not_internal(name: str) -> None:
    if is_internal(name):
        raise LakelogError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is the platform's own, as all names are that begin with __"
        )


def collides(a: str, b: str) -> bool:
    """Whether two different names are one in metrics, where '.' is written as '_'."""
    return a != b and a.replace(".", "_") == b.replace(".", "_")


def check_partition_count(count: int) -> None:
    if not 1 <= count <= PARTITIONS_MAX:
        raise LakelogError(
            ErrorCode.INVALID_PARTITIONS, f"a topic has from 1 to {PARTITIONS_MAX} partitions, not {count}"
        )
