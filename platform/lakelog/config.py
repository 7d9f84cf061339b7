"""Configuration: of a topic, and of the log in a server.

Owns the name, type, default, bounds and documentation of every setting, one row each, and promises that an
object of these classes holds only values that its rows allow. Topic configs have Kafka's names and parse as
Kafka parses them. Where the text of a setting comes from (table properties, the environment, a request), and
what a setting makes the log do, must not be known here.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, TypeVar

from lakelog.errors import ErrorCode, LakelogError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MIB = 1024 * 1024

# Every partition costs state in memory and a file per commit, and a fetch over all of them says three numbers of each
# in the head of its reply, of which clients take so much and no more.
PARTITIONS_MAX = 1_000

V = TypeVar("V")


class Kind(Protocol[V]):
    """What a setting takes."""

    @property
    def type(self) -> str:
        """Kafka's name for the type."""

    @property
    def allowed(self) -> str:
        """The values, in words that complete the sentence "it takes ..."."""

    def parse(self, text: str) -> V:
        """The value that a trimmed text stands for; ValueError if it is not even of this type."""

    def admits(self, value: object) -> bool:
        """Whether the value is of this type and within its bounds."""

    def text(self, value: V) -> str:
        """The canonical text of a value: parsing it gives the value again."""


@dataclass(frozen=True, slots=True)
class Whole:
    type: str
    least: int
    most: int

    @property
    def allowed(self) -> str:
        if self.most == LONG_MAX:
            return f"a whole number, {self.least} or more"
        return f"a whole number from {self.least} to {self.most}"

    def parse(self, text: str) -> int:
        # int() alone would also take underscores, and with them texts that Kafka's tools refuse.
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            raise ValueError(text)
        return int(text)

    def admits(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most

    def text(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Ratio:
    type: str = "double"
    allowed: str = "a number from 0 to 1"

    def parse(self, text: str) -> float:
        if "_" in text:
            raise ValueError(text)
        return float(text)

    def admits(self, value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1

    def text(self, value: float) -> str:
        return str(float(value))


@dataclass(frozen=True, slots=True)
class Boolean:
    type: str = "boolean"
    allowed: str = "true or false"

    def parse(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"

    def admits(self, value: object) -> bool:
        return isinstance(value, bool)

    def text(self, value: bool) -> str:
        return str(value).lower()


@dataclass(frozen=True, slots=True)
class OneOf:
    values: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    type: str = "string"

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.values)}"

    def parse(self, text: str) -> str:
        return self.aliases.get(text, text)

    def admits(self, value: object) -> bool:
        return value in self.values

    def text(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class SomeOf:
    values: tuple[str, ...]
    type: str = "list"

    @property
    def allowed(self) -> str:
        return f"one or more of {', '.join(self.values)}, with commas between them"

    def parse(self, text: str) -> frozenset[str]:
        return frozenset(item.strip() for item in text.split(","))

    def admits(self, value: object) -> bool:
        return isinstance(value, frozenset) and bool(value) and value.issubset(self.values)

    def text(self, value: frozenset[str]) -> str:
        return ",".join(sorted(value))


@dataclass(frozen=True, slots=True)
class Text:
    allowed: str = "any text"
    type: str = "string"

    def parse(self, text: str) -> str:
        return text

    def admits(self, value: object) -> bool:
        return isinstance(value, str)

    def text(self, value: str) -> str:
        return value


def int_of(least: int, most: int = INT_MAX) -> Kind[int]:
    return Whole("int", least, most)


def long_of(least: int) -> Kind[int]:
    return Whole("long", least, LONG_MAX)


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """All there is to know about one setting."""

    name: str
    attribute: str
    kind: Kind[Any]
    default: Any
    default_on_object_store: Any
    doc: str

    @property
    def type(self) -> str:
        return self.kind.type

    @property
    def allowed(self) -> str:
        return self.kind.allowed

    def default_for(self, on_object_store: bool) -> Any:
        return self.default_on_object_store if on_object_store else self.default

    def parse(self, text: str) -> Any:
        try:
            value = self.kind.parse(text.strip())
        except ValueError:
            raise self.refusal(text) from None
        if not self.kind.admits(value):
            raise self.refusal(text)
        return value

    def refusal(self, value: object) -> LakelogError:
        message = f"{self.name} is {value!r}, but it takes {self.allowed}"
        return LakelogError(ErrorCode.INVALID_CONFIG, message)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting as it stands in one topic or server, in text."""

    name: str
    value: str
    default: str
    is_default: bool
    type: str
    doc: str


def row(kind: Kind[V], default: V, doc: str, *, on_object_store: V | None = None) -> V:
    """A field of a configuration class that carries its own row."""
    there = default if on_object_store is None else on_object_store
    return field(default=default, metadata={"kind": kind, "doc": doc, "on_object_store": there})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configuration of one topic.

    The name of a config is that of its attribute with dots for underscores.
    """

    cleanup_policy: frozenset[str] = row(
        SomeOf(("delete", "compact")),
        frozenset({"delete"}),
        "What happens to old records: delete drops whole segments by age and size, compact keeps the latest "
        "record of every key, and both together do both.",
    )
    retention_ms: int = row(
        long_of(-1),
        604_800_000,
        "How long records are kept where the cleanup policy deletes; -1 keeps them for ever.",
    )
    retention_bytes: int = row(
        long_of(-1),
        -1,
        "How many bytes each partition may grow to before its oldest segments are deleted; -1 sets no limit.",
    )
    segment_bytes: int = row(
        int_of(1024),
        128 * MIB,
        "The size at which a segment is sealed. Segments are Parquet files, so the default is a good size "
        "for one, and smaller than Kafka's.",
    )
    segment_ms: int = row(
        long_of(1),
        604_800_000,
        "The age at which a segment is sealed even though it is small, so that retention and compaction reach it.",
    )
    min_cleanable_dirty_ratio: float = row(
        Ratio(),
        0.5,
        "The share of a partition's bytes that has never been compacted at which compaction is worth its while.",
    )
    min_compaction_lag_ms: int = row(
        long_of(0),
        0,
        "How long a record stays safe from compaction, so that readers who keep up see every version of a key.",
    )
    max_compaction_lag_ms: int = row(
        long_of(1),
        LONG_MAX,
        "How long a record may wait for compaction, whatever the dirty ratio; the default sets no limit.",
    )
    delete_retention_ms: int = row(
        long_of(0),
        86_400_000,
        "How long a tombstone outlives the first compaction that meets it, so that slow readers learn that "
        "the key is gone.",
    )
    file_delete_delay_ms: int = row(
        long_of(0),
        3_600_000,
        "How long a file stays in the store after it has left the table. Delta readers that hold an older "
        "snapshot have this long to finish.",
    )
    max_message_bytes: int = row(
        int_of(0),
        1_048_588,
        "The largest record that is taken, in bytes of key, value and headers together.",
    )
    message_timestamp_type: str = row(
        OneOf(("CreateTime", "LogAppendTime")),
        "CreateTime",
        "Whose clock stamps a record: the producer's when it made the record, or the server's when it appends it.",
    )
    message_timestamp_before_max_ms: int = row(
        long_of(0),
        LONG_MAX,
        "How far a producer's timestamp may lie before the server's clock; a record further back is refused.",
    )
    message_timestamp_after_max_ms: int = row(
        long_of(0),
        3_600_000,
        "How far a producer's timestamp may lie ahead of the server's clock; a record further ahead is "
        "refused, since it would put off retention.",
    )
    compression_type: str = row(
        OneOf(("producer", "none", "lz4", "zstd", "snappy", "gzip"), aliases={"uncompressed": "none"}),
        "producer",
        "The codec of the topic's Parquet files, and of what Kafka's clients fetch. With producer, tail files are "
        "written in lz4 as they arrive and merged segments in zstd; uncompressed is another word for none.",
    )
    flush_files_per_second: int = row(
        int_of(1),
        50,
        "How many files a busy topic may write per second, after a burst. Fewer make larger commits that "
        "wait longer; the default is lower on object stores, where every file is a paid request. On a disk, one "
        "of 16 KiB counts half, one of 64 KiB an eighth, and so on; those of 1 MiB count nowhere.",
        on_object_store=10,
    )
    delta_log_retention_ms: int = row(
        long_of(600_000),
        7_200_000,
        "How long commits stay in the table's Delta log once a checkpoint holds their outcome. It bounds "
        "time travel and how far a plain Delta stream may lag.",
    )
    min_insync_replicas: int = row(
        int_of(1),
        1,
        "Accepted so that Kafka's tools work, and without effect: the store keeps the copies of a committed file.",
    )
    unclean_leader_election_enable: bool = row(
        Boolean(),
        False,
        "Accepted so that Kafka's tools work, and without effect: the store keeps the copies, so no replica lags.",
    )

    on_object_store: bool = False
    explicit: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        _check(self, TOPIC_ROWS.values())
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise LakelogError(
                ErrorCode.INVALID_CONFIG,
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) is more than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})",
            )

    @classmethod
    def parse(cls, overrides: Mapping[str, str], *, on_object_store: bool = False) -> Self:
        """The configuration of a topic that sets `overrides` and leaves the rest at its defaults."""
        values = {each.attribute: each.default_for(on_object_store) for each in TOPIC_ROWS.values()}
        values |= _parse(overrides, TOPIC_ROWS)
        return cls(**values, on_object_store=on_object_store, explicit=frozenset(overrides))

    def altered(self, set: Mapping[str, str], unset: Iterable[str] = ()) -> Self:
        """This configuration with some configs set anew and others back at their defaults."""
        dropped = frozenset(unset)
        for name in dropped:
            _find(name, TOPIC_ROWS)
        if both := dropped.intersection(set):
            raise LakelogError(ErrorCode.INVALID_REQUEST, f"{', '.join(sorted(both))} is to be set and unset")
        kept = {name: text for name, text in self.overrides.items() if name not in dropped}
        return self.parse({**kept, **set}, on_object_store=self.on_object_store)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is sealed. As in Kafka, max.compaction.lag.ms does not wait for segment.ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def overrides(self) -> dict[str, str]:
        """What was set, in canonical text: parsing it gives this configuration again."""
        return {entry.name: entry.value for entry in self.describe() if not entry.is_default}

    def describe(self) -> list[ConfigEntry]:
        return [self._entry(each) for each in TOPIC_ROWS.values()]

    def _entry(self, of: ConfigRow) -> ConfigEntry:
        value, default = getattr(self, of.attribute), of.default_for(self.on_object_store)
        # As in Kafka, a config that was set to its default is set: a new default would not change it.
        is_default = value == default and of.name not in self.explicit
        return ConfigEntry(of.name, of.kind.text(value), of.kind.text(default), is_default, of.type, of.doc)


class Settings:
    """What a process runs with, one row per field: the base of the classes that list them."""

    def __post_init__(self) -> None:
        _check(self, self.rows().values())

    @classmethod
    def rows(cls) -> dict[str, ConfigRow]:
        """By name, in the order of the documentation."""
        return _rows_of(cls, "_")

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> Self:
        """The settings that `texts` sets, and the defaults of all others."""
        return cls(**_parse(texts, cls.rows()))

    def describe(self) -> list[ConfigEntry]:
        return [self._entry(each) for each in self.rows().values()]

    def _entry(self, of: ConfigRow) -> ConfigEntry:
        value = getattr(self, of.attribute)
        text, default = of.kind.text(value), of.kind.text(of.default)
        return ConfigEntry(of.name, text, default, value == of.default, of.type, of.doc)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(Settings):
    """The settings of the log in one process."""

    num_partitions: int = row(
        int_of(1, PARTITIONS_MAX),
        1,
        "How many partitions a topic gets when nobody says.",
    )
    auto_create_topics_enable: bool = row(
        Boolean(),
        True,
        "Whether a topic is created by the first record that is sent to it.",
    )
    in_flight_bytes_max: int = row(
        long_of(1),
        64 * MIB,
        "How many bytes of records may wait for their commits, over all topics, with 16 more for each record and "
        "each header. It bounds the memory of the append path.",
    )
    in_flight_wait_ms: int = row(
        long_of(0),
        10_000,
        "How long an append waits for room among the bytes in flight before it fails with THROTTLING_QUOTA_EXCEEDED.",
    )
    request_bytes_max: int = row(
        long_of(1),
        64 * MIB,
        "The largest request that is taken, in bytes of keys, values and headers.",
    )
    hot_tail_bytes_max: int = row(
        long_of(0),
        64 * MIB,
        "How many bytes of the newest records are kept in memory, over all topics, for readers who keep up.",
    )
    read_cache_bytes_max: int = row(
        long_of(0),
        64 * MIB,
        "How many bytes of row groups are kept in memory once read, for readers of older records.",
    )
    footer_cache_bytes_max: int = row(
        long_of(0),
        32 * MIB,
        "How many bytes the footers of files, which say where in them records lie, may take up in memory once read.",
    )
    group_bytes_max: int = row(
        long_of(1),
        16 * MIB,
        "How many bytes one commit gathers at the most.",
    )
    commits_in_flight_max: int = row(
        int_of(1, 1024),
        16,
        "How many topics commit at the same time; the others take their turn.",
    )
    commit_timeout_ms: int = row(
        long_of(1),
        30_000,
        "How long a commit is tried again while the store fails, or while other writers are always faster.",
    )
    fetch_max_bytes: int = row(
        int_of(1),
        50 * MIB,
        "How many bytes one fetch answers at the most, over all of its partitions; a first record that is "
        "larger comes all the same.",
    )
    fetch_partition_max_bytes: int = row(
        int_of(1),
        MIB,
        "How many bytes of one partition a fetch answers when it does not say.",
    )
    follow_interval_ms: int = row(
        int_of(1),
        50,
        "How often waiting readers look for commits of other processes.",
    )
    fsync: bool = row(
        Boolean(),
        False,
        "Whether files and their directories are flushed to the disk before the acknowledgement. It guards "
        "against loss of power, costs latency, and applies to local disks alone.",
    )
    maintenance_threads: int = row(
        int_of(1, 64),
        1,
        "How many threads merge tails, write checkpoints and clean logs.",
    )
    encode_threads: int = row(
        int_of(0, 1024),
        0,
        "How many threads encode Parquet; 0 stands for the number of cores.",
    )
    producer_expiration_ms: int = row(
        long_of(1),
        86_400_000,
        "How long the sequence numbers of a silent idempotent producer are remembered.",
    )
    open_topics_max: int = row(
        int_of(1),
        10_000,
        "How many topics are kept open; the one that was idle the longest makes room for another.",
    )


def topic_rows() -> tuple[ConfigRow, ...]:
    """Every topic config, in the order of the documentation."""
    return tuple(TOPIC_ROWS.values())


def _rows_of(cls: type, separator: str) -> dict[str, ConfigRow]:
    found = {}
    for each in fields(cls):
        if each.metadata:
            name = each.name.replace("_", separator)
            kind, doc, there = (each.metadata[part] for part in ("kind", "doc", "on_object_store"))
            found[name] = ConfigRow(name, each.name, kind, each.default, there, doc)
    return found


def _find(name: str, rows: Mapping[str, ConfigRow]) -> ConfigRow:
    if name in rows:
        return rows[name]
    nearest = difflib.get_close_matches(name, rows, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise LakelogError(ErrorCode.INVALID_CONFIG, f"there is no config {name!r}{hint}")


def _parse(texts: Mapping[str, str], rows: Mapping[str, ConfigRow]) -> dict[str, Any]:
    found = ((_find(name, rows), text) for name, text in texts.items())
    return {each.attribute: each.parse(text) for each, text in found}


def _check(settings: object, rows: Iterable[ConfigRow]) -> None:
    for each in rows:
        value = getattr(settings, each.attribute)
        if not each.kind.admits(value):
            raise each.refusal(value)


TOPIC_ROWS = _rows_of(TopicConfig, ".")
