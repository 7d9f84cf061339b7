"""What each operation on a topic commits, and when it still holds: append, rewrite, expire, create, alter, delete.

Every writer of a topic, the gateway and the jobs alike, makes its commits here. Tables of rows (`ledger`, `rows`) have
operations of their own; they too say what they did in the form that stands here (`commit_info`), so that `DESCRIBE
HISTORY` of any table reads like a log of what happened.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

import lakelog
from lakelog.config import TopicConfig
from lakelog.delta.actions import (
    PRODUCERS_TAG,
    Action,
    CommitInfo,
    Metadata,
    Protocol,
    Txn,
    add_of,
    remove_of,
)
from lakelog.delta.state import (
    APPEND_APP,
    CONFIG_PREFIX,
    DELETED_PROPERTY,
    LOG_START_APP,
    NOT_TOPIC_CONFIG,
    PARTITIONS_PROPERTY,
    PRODUCERS_PROPERTY,
    TableState,
)
from lakelog.delta.table import Draft
from lakelog.log.producers import ProducerBatch, ProducerStates, WrittenBatch, decode_notes, encode_notes
from lakelog.model.segment import Segment


def new_commit_id() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Basis:
    """What an append was decided on: the topic's terms, where partitions end, what producers wrote last. While it
    holds, the same decision would be made again, be it to take records or to refuse them.
    """

    terms: Metadata | None
    ends: Mapping[int, int]
    producers: Mapping[ProducerBatch, tuple[WrittenBatch, ...]]

    def holds(self, now: TableState) -> bool:
        return (
            now.metadata is self.terms
            and all(now.partitions[partition].next_offset == end for partition, end in self.ends.items())
            and all(now.producers.of(batch) == before for batch, before in self.producers.items())
        )


def append(commit_id: str, segments: Sequence[Segment], basis: Basis, now_ms: int) -> Draft:
    """New records, those of a partition in one file or several. Holds as long as what they were decided on."""
    new_ends = {
        segment.partition: segment.end_offset for segment in sorted(segments, key=lambda each: each.base_offset)
    }
    actions = [
        _info(commit_id, "APPEND", now_ms, written=segments, blind=True),
        *(Action(txn=Txn(f"{APPEND_APP}{partition}", end)) for partition, end in new_ends.items()),
        *(Action(add=add_of(segment, data_change=True)) for segment in segments),
    ]
    return Draft(commit_id, actions, basis.holds)


def rewrite(
    commit_id: str,
    operation: str,
    removed: Sequence[Segment],
    written: Sequence[Segment],
    state: TableState,
    now_ms: int,
    txns: Mapping[str, int] | None = None,
) -> Draft:
    """The same records in other files. Holds while all the old files are there; appends meanwhile do not matter.

    What the old files say of producers and the new ones do not goes to the table's properties. Then the terms have to
    be the same, too.
    """
    table_id, before = state.table_id, state.metadata
    paths = [segment.path for segment in removed]
    terms = _with_notes(state, _lost_notes(removed, written, state.producers))
    actions = [
        _info(commit_id, operation, now_ms, removed=removed, written=written),
        *(Action(metaData=metadata) for metadata in terms),
        *(Action(txn=Txn(app, version)) for app, version in (txns or {}).items()),
        *(Action(remove=remove_of(segment, data_change=False, now_ms=now_ms)) for segment in removed),
        *(Action(add=add_of(segment, data_change=False)) for segment in written),
    ]

    def holds(now: TableState) -> bool:
        same_terms = now.metadata is before if terms else now.table_id == table_id
        return same_terms and all(path in now.live for path in paths)

    return Draft(commit_id, actions, holds)


def expire(
    operation: str, log_starts: Mapping[int, int], removed: Sequence[Segment], state: TableState, now_ms: int
) -> Draft:
    """Records below a new log start are no longer served; files that lie wholly below it go."""
    txns = {f"{LOG_START_APP}{partition}": offset for partition, offset in log_starts.items()}
    return rewrite(new_commit_id(), operation, removed, (), state, now_ms, txns)


def create(partitions: int, config: TopicConfig, state: TableState, now_ms: int) -> Draft:
    """A new topic. Holds while there is none, so that of two who create it at the same time one finds it there."""
    commit_id = new_commit_id()
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schemaString=SCHEMA_JSON,
        partitionColumns=["partition"],
        configuration=_properties(partitions, config),
        createdTime=now_ms,
    )
    actions = [
        _info(commit_id, "CREATE TOPIC", now_ms, parameters={"partitions": str(partitions)}),
        Action(protocol=Protocol(minReaderVersion=1, minWriterVersion=2)),
        Action(metaData=metadata),
    ]
    started = state.version
    return Draft(commit_id, actions, lambda now: not now.exists and now.version == started)


def alter(partitions: int, config: TopicConfig, state: TableState, now_ms: int) -> Draft:
    """Other terms for the same topic. Holds while nobody else has changed them."""
    before = _metadata(state)
    others = {
        name: text
        for name, text in before.configuration.items()
        if not name.startswith(CONFIG_PREFIX) or name in NOT_TOPIC_CONFIG
    }
    properties = {**others, **_properties(partitions, config)}
    changed = {
        name: properties.get(name, "")
        for name in sorted(properties.keys() | before.configuration.keys())
        if properties.get(name) != before.configuration.get(name)
    }
    return _new_terms("ALTER TOPIC", properties, state, now_ms, parameters=changed)


def delete(state: TableState, now_ms: int) -> Draft:
    """The end of a topic: an empty table that says so. The next topic of the name goes on in the same log."""
    properties = {**_metadata(state).configuration, DELETED_PROPERTY: "true"}
    properties.pop(PRODUCERS_PROPERTY, None)
    return _new_terms("DELETE TOPIC", properties, state, now_ms, removed=list(state.live.values()))


def carried_notes(segments: Iterable[Segment], producers: ProducerStates) -> dict[str, str]:
    """The tags of a file that replaces others: what is still remembered of the producers who wrote them."""
    notes = [note for note in _notes(segments) if producers.remembers(note)]
    return {PRODUCERS_TAG: encode_notes(notes)} if notes else {}


def tagged(segment: Segment, written: Sequence[WrittenBatch]) -> Segment:
    return replace(segment, tags={PRODUCERS_TAG: encode_notes(written)}) if written else segment


def _notes(segments: Iterable[Segment]) -> Iterator[WrittenBatch]:
    for segment in segments:
        if PRODUCERS_TAG in segment.tags:
            yield from decode_notes(segment.tags[PRODUCERS_TAG])


def _lost_notes(
    removed: Iterable[Segment], written: Iterable[Segment], producers: ProducerStates
) -> list[WrittenBatch]:
    """What is still remembered by files that go, and by none of those that take their place."""
    kept = set(_notes(written))
    return [note for note in _notes(removed) if note not in kept and producers.remembers(note)]


def _with_notes(state: TableState, lost: Sequence[WrittenBatch]) -> list[Metadata]:
    """The terms that note these batches too, or none if there is nothing to note. What is forgotten leaves them."""
    if not lost:
        return []
    notes = [note for note in state.notes_without_files if state.producers.remembers(note)]
    before = _metadata(state)
    properties = {**before.configuration, PRODUCERS_PROPERTY: encode_notes([*notes, *lost])}
    return [msgspec.structs.replace(before, configuration=properties)]


def _new_terms(
    operation: str,
    properties: dict[str, str],
    state: TableState,
    now_ms: int,
    *,
    removed: Sequence[Segment] = (),
    parameters: Mapping[str, str] | None = None,
) -> Draft:
    commit_id, before = new_commit_id(), _metadata(state)
    # A deleted topic gets an id of its own, at which every state drops what it knew of the old one.
    table_id = str(uuid.uuid4()) if DELETED_PROPERTY in properties else before.id
    actions = [
        _info(commit_id, operation, now_ms, removed=removed, parameters=parameters),
        Action(metaData=msgspec.structs.replace(before, id=table_id, configuration=properties)),
        *(Action(remove=remove_of(segment, data_change=True, now_ms=now_ms)) for segment in removed),
    ]
    paths = {segment.path for segment in removed}

    def holds(now: TableState) -> bool:
        # The end of a topic takes all of its files, also those that came since.
        return now.metadata is before and (DELETED_PROPERTY not in properties or now.live.keys() == paths)

    return Draft(commit_id, actions, holds)


def _metadata(state: TableState) -> Metadata:
    assert state.metadata is not None, "only a topic that exists is altered"
    return state.metadata


def _properties(partitions: int, config: TopicConfig) -> dict[str, str]:
    """The table's properties: our own configuration, and what Delta's tools have to know of it."""
    own = {f"{CONFIG_PREFIX}{name}": value for name, value in config.overrides.items()}
    return {
        PARTITIONS_PROPERTY: str(partitions),
        "delta.enableDeletionVectors": "false",
        "delta.logRetentionDuration": f"interval {config.delta_log_retention_ms // 1000} seconds",
        "delta.deletedFileRetentionDuration": f"interval {max(1, config.file_delete_delay_ms // 1000)} seconds",
        **own,
    }


def _info(
    commit_id: str,
    operation: str,
    now_ms: int,
    *,
    removed: Sequence[Segment] = (),
    written: Sequence[Segment] = (),
    parameters: Mapping[str, str] | None = None,
    blind: bool = False,
) -> Action:
    metrics: dict[str, str] = {}
    if written:
        metrics["numOutputRows"] = str(sum(segment.records for segment in written))
        metrics["numOutputBytes"] = str(sum(segment.bytes for segment in written))
        metrics["numAddedFiles"] = str(len(written))
    if removed:
        metrics["numRemovedFiles"] = str(len(removed))
    if written or removed:
        touched = sorted({segment.partition for segment in (*written, *removed)})
        parameters = {"partitions": ",".join(map(str, touched)), **(parameters or {})}
    return commit_info(commit_id, operation, now_ms, parameters=parameters, metrics=metrics, blind=blind)


def commit_info(
    commit_id: str,
    operation: str,
    now_ms: int,
    *,
    parameters: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    blind: bool = False,
) -> Action:
    """What DESCRIBE HISTORY shows of a commit."""
    return Action(
        commitInfo=CommitInfo(
            timestamp=now_ms,
            operation=operation,
            operationParameters=dict(parameters or {}),
            operationMetrics=dict(metrics or {}),
            isBlindAppend=blind,
            engineInfo=f"lakelog/{lakelog.__version__}",
            txnId=commit_id,
        )
    )


def schema_field(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    """A column, as the schema in a table's metadata spells it."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


SCHEMA_JSON = msgspec.json.encode(
    {
        "type": "struct",
        "fields": [
            schema_field("partition", "integer"),
            schema_field("offset", "long"),
            schema_field("timestamp", "timestamp"),
            schema_field("key", "binary"),
            schema_field("value", "binary"),
            schema_field(
                "headers",
                {
                    "type": "array",
                    "containsNull": True,
                    "elementType": {
                        "type": "struct",
                        "fields": [schema_field("key", "string"), schema_field("value", "binary")],
                    },
                },
            ),
        ],
    }
).decode()
