"""What a topic's table says now: the sum of the actions of its log.

`apply` is the only way in, for a checkpoint, for a commit of our own and for one of another process, so that a state
that was followed equals one that was opened; only the removed files of a checkpoint come beside it, as columns. What
another writer did that a topic can't live with is kept as a fault and not raised here, because a later commit may mend
it. Pure: it neither reads nor writes a store.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from lakelog.config import TopicConfig
from lakelog.delta.actions import PRODUCERS_TAG, Action, Metadata, Protocol, Remove, segment_of
from lakelog.delta.tombstones import Tombstones
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.producers import ProducerStates, WrittenBatch, decode_notes, in_order
from lakelog.model.segment import Segment

CONFIG_PREFIX = "lakelog."
PARTITIONS_PROPERTY = "lakelog.partitions"
PARTITIONS_READ_MAX = 10_000  # more than a topic may get: what there is stays readable if that becomes less
DELETED_PROPERTY = "lakelog.deleted"
# What is remembered of producers whose records are gone, and with them the files that said so.
PRODUCERS_PROPERTY = "lakelog.producers"
NOT_TOPIC_CONFIG = frozenset({PARTITIONS_PROPERTY, DELETED_PROPERTY, PRODUCERS_PROPERTY})

APPEND_APP = "lakelog/partition/"
LOG_START_APP = "lakelog/log-start/"
CLEANER_APP = "lakelog/cleaner/"

# Delta's legacy writer versions, and the feature that each one brought.
_LEGACY_WRITER_FEATURES = {
    3: "checkConstraints",
    4: "changeDataFeed, generatedColumns",
    5: "columnMapping",
    6: "identityColumns",
}
_WRITABLE_FEATURES = frozenset({"appendOnly", "invariants"})


class PartitionState:
    """The files of one partition in the order of their offsets, and its three marks."""

    __slots__ = ("bases", "log_start_offset", "next_offset", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.bases: list[int] = []  # of the segments: what a binary search looks at
        self.next_offset = 0
        self.log_start_offset = 0

    def insert(self, segment: Segment) -> None:
        self.next_offset = max(self.next_offset, segment.end_offset)
        if not self.bases or segment.base_offset > self.bases[-1]:
            self.segments.append(segment)
            self.bases.append(segment.base_offset)
            return
        position = bisect_left(self.bases, segment.base_offset)
        self.segments.insert(position, segment)
        self.bases.insert(position, segment.base_offset)

    def discard(self, segment: Segment) -> None:
        position = bisect_left(self.bases, segment.base_offset)
        while self.segments[position].path != segment.path:
            position += 1
        del self.segments[position]
        del self.bases[position]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(slots=True)
class Changes:
    """What some commits did, for those who wait on it or had planned on the state before."""

    appended: dict[int, list[Segment]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    records_removed: bool = False  # and not only moved to other files
    metadata: bool = False
    commits: int = 0


class TableState:
    def __init__(self, *, on_object_store: bool = False) -> None:
        self.version = -1
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.config = TopicConfig.parse({}, on_object_store=on_object_store)
        self.partitions: list[PartitionState] = []
        self.producers = ProducerStates()
        self.txns: dict[str, int] = {}
        self.live: dict[str, Segment] = {}
        self.foreign: dict[str, str] = {}  # live files that no writer of ours vouches for, and what they lack
        # Files that have left the table, and when, as long as readers of an older snapshot may hold on to them.
        self.tombstones = Tombstones()
        self.notes_without_files: list[WrittenBatch] = []  # they stand in the table's properties
        self._bad_terms: str | None = None
        self._on_object_store = on_object_store

    @property
    def is_topic(self) -> bool:
        """Whether the table is ours. Other people's tables in the warehouse are none of our business."""
        return self.metadata is not None and PARTITIONS_PROPERTY in self.metadata.configuration

    @property
    def exists(self) -> bool:
        """Whether there is a topic: a table of ours that was not deleted since."""
        return self.is_topic and self.metadata is not None and DELETED_PROPERTY not in self.metadata.configuration

    @property
    def fault(self) -> LakelogError | None:
        """Why nobody may serve the table or write to it, until a later commit sets it right."""
        reason = self._bad_terms
        if reason is None and self.foreign:
            lacking = next(iter(self.foreign.values()))
            reason = f"not written by Lakelog: {lacking}; RESTORE the table to a version before it"
        return None if reason is None else LakelogError(ErrorCode.UNSUPPORTED_TABLE, reason)

    def require_sound(self) -> None:
        fault = self.fault
        if fault is not None:
            raise fault

    @property
    def table_id(self) -> str:
        return self.metadata.id if self.metadata is not None else ""

    @property
    def next_offsets(self) -> list[int]:
        return [partition.next_offset for partition in self.partitions]

    def reaches(self, partition: int, offset: int) -> bool:
        return partition < len(self.partitions) and offset <= self.partitions[partition].next_offset

    def apply(self, version: int, actions: Sequence[Action], changes: Changes | None = None) -> Changes:
        """Take in one commit, or a checkpoint when nothing has been taken in before."""
        changes = changes if changes is not None else Changes()
        self._apply_terms(actions, changes)
        if self.is_topic:
            self._apply_files(actions, changes)
        self.version = version
        changes.commits += 1
        return changes

    def _apply_terms(self, actions: Sequence[Action], changes: Changes) -> None:
        terms = [action for action in actions if action.protocol is not None or action.metaData is not None]
        if not terms:
            return
        for action in terms:
            if action.protocol is not None:
                self.protocol = action.protocol
            elif action.metaData is not None:
                self._apply_metadata(action.metaData)
                changes.metadata = True
        self._bad_terms = None
        try:
            self._read_terms()
        except LakelogError as error:
            self._bad_terms = error.message

    def _apply_metadata(self, metadata: Metadata) -> None:
        if metadata.id != self.table_id:  # created, or deleted and created again: nothing of before holds
            self.partitions, self.producers = [], ProducerStates()
            self.txns, self.live = {}, {}
        self.metadata = metadata

    def _read_terms(self) -> None:
        """Take over what the terms say of a topic. Raises if they are none that we can keep."""
        if self.metadata is None or not self.is_topic:
            return
        properties = self.metadata.configuration
        overrides = {
            name.removeprefix(CONFIG_PREFIX): value
            for name, value in properties.items()
            if name.startswith(CONFIG_PREFIX) and name not in NOT_TOPIC_CONFIG
        }
        self._partition(_partition_count(properties[PARTITIONS_PROPERTY]) - 1)
        self.notes_without_files = _notes_in(properties)
        self.config = TopicConfig.parse(overrides, on_object_store=self._on_object_store)
        if self.protocol is not None:
            check_protocol(self.protocol)

    def _apply_files(self, actions: Sequence[Action], changes: Changes) -> None:
        removes = [action.remove for action in actions if action.remove is not None]
        for remove in removes:
            self._apply_remove(remove, changes)
        if removes:
            # Here too, by the time of the commits, for those who follow a busy table and write no checkpoint of it.
            latest_ms = max(remove.deletionTimestamp or 0 for remove in removes)
            self.tombstones.forget_before(latest_ms - self.config.file_delete_delay_ms)
        added = self._segments_added(actions)
        # Asked before any mark moves: files that lie below it hold records that were there before.
        new = [segment for segment in added if not self.reaches(segment.partition, segment.end_offset)]
        self._bury_no_longer(actions, new, changes)
        for action in actions:
            if action.txn is not None:
                self._apply_txn(action.txn.appId, action.txn.version)
        for segment in added:
            self._partition(segment.partition).insert(segment)
            self.live[segment.path] = segment
        # Who opens a table finds these; who follows it has seen the batches themselves.
        written = list(self.notes_without_files) if self.version < 0 else []
        for segment in new:
            changes.appended.setdefault(segment.partition, []).append(segment)
            if PRODUCERS_TAG in segment.tags:
                written.extend(decode_notes(segment.tags[PRODUCERS_TAG]))
        for batch in in_order(written):  # the files of a checkpoint are in none
            self.producers.apply(batch)

    def _segments_added(self, actions: Sequence[Action]) -> list[Segment]:
        """The files that a commit adds, but for those of other writers: these are put down as such."""
        segments: list[Segment] = []
        for action in actions:
            if action.add is not None:
                self._take_out(action.add.path)  # in Delta an add may say something new of a file that is there
                try:
                    segments.append(segment_of(action.add))
                except ValueError as error:
                    self.foreign[action.add.path] = str(error)
        return segments

    def _partition(self, number: int) -> PartitionState:
        while len(self.partitions) <= number:
            self.partitions.append(PartitionState())
        return self.partitions[number]

    def _apply_remove(self, remove: Remove, changes: Changes) -> None:
        if self._take_out(remove.path):
            changes.removed.add(remove.path)
            changes.records_removed |= remove.dataChange
        self.tombstones.put(remove.path, remove.deletionTimestamp or 0)

    def _bury_no_longer(self, actions: Sequence[Action], new: Sequence[Segment], changes: Changes) -> None:
        """Files may come back, as RESTORE has them do, but none that holds records which nobody had before: so appends
        are not looked up. Under other terms offsets may have begun anew.
        """
        fresh = set() if changes.metadata else {segment.path for segment in new}
        back = [action.add.path for action in actions if action.add is not None and action.add.path not in fresh]
        if back and len(self.tombstones):
            self.tombstones.discard(back)

    def cleaned_up_to(self, partition: int) -> int:
        """Below this offset compaction may have taken records away."""
        return self.txns.get(f"{CLEANER_APP}{partition}", 0)

    def _take_out(self, path: str) -> bool:
        """Whether the file was in the table."""
        segment = self.live.pop(path, None)
        if segment is not None:
            self.partitions[segment.partition].discard(segment)
        return self.foreign.pop(path, None) is not None or segment is not None

    def _apply_txn(self, app: str, version: int) -> None:
        # No mark goes back: of two who move a log start at the same time the lower one may commit last.
        version = self.txns[app] = max(version, self.txns.get(app, version))
        if app.startswith(APPEND_APP):
            partition = self._partition(int(app.removeprefix(APPEND_APP)))
            partition.next_offset = max(partition.next_offset, version)
        elif app.startswith(LOG_START_APP):
            partition = self._partition(int(app.removeprefix(LOG_START_APP)))
            partition.log_start_offset = max(partition.log_start_offset, version)


def _partition_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= PARTITIONS_READ_MAX:
        wanted = f"a number from 1 to {PARTITIONS_READ_MAX}"
        raise LakelogError(ErrorCode.INVALID_PARTITIONS, f"{PARTITIONS_PROPERTY} should be {wanted}, not {text!r}")
    return int(text)


def _notes_in(properties: Mapping[str, str]) -> list[WrittenBatch]:
    try:
        return decode_notes(properties.get(PRODUCERS_PROPERTY, "[]"))
    except msgspec.DecodeError as error:
        raise LakelogError(ErrorCode.UNSUPPORTED_TABLE, f"{PRODUCERS_PROPERTY} was changed by hand: {error}") from error


def check_protocol(protocol: Protocol) -> None:
    """Refuse a table that asks for more than plain Delta, by the name of what it asks for."""
    if protocol.minReaderVersion <= 1 and protocol.minWriterVersion <= 2:
        return
    features = set(protocol.readerFeatures or ()) | set(protocol.writerFeatures or ())
    if protocol.writerFeatures is None:  # versions stood for features before these were named
        features = {
            feature for version, feature in _LEGACY_WRITER_FEATURES.items() if version <= protocol.minWriterVersion
        }
    unsupported = sorted(features - _WRITABLE_FEATURES)
    if unsupported:
        raise LakelogError(
            ErrorCode.UNSUPPORTED_TABLE,
            f"the table asks for {', '.join(unsupported)} (reader {protocol.minReaderVersion}, "
            f"writer {protocol.minWriterVersion}); Lakelog writes reader 1, writer 2",
        )
