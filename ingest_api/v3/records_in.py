"""v3's records: each one names the form of its key and its value, and stands or falls by itself. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ingest_api.encoding.utf8 import is_utf8
from ingest_api.errors import HttpError
from ingest_api.positions import INT32_MAX
from ingest_api.v3.errors import INVALID_BATCH, UNKNOWN_TOPIC_OR_PARTITION
from lakelog.model.batch import NO_PARTITION, ListRecords

FORMS = ("BINARY", "JSON", "STRING")
ENTRY_ID_CHARS_MAX = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Data(msgspec.Struct, forbid_unknown_fields=True):
    type: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    # Known so that they can be refused by name.
    subject: Any = None
    subject_name_strategy: Any = None
    schema_id: Any = None
    schema_version: Any = None
    schema: Any = None


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: bytes | None = None


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    partition_id: int | None = None
    headers: list[_Header] | None = None
    key: _Data | None = None
    value: _Data | None = None
    timestamp: datetime | None = None


class _Entry(_Record, kw_only=True):
    id: str


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[msgspec.Raw] = []


class _EntryId(msgspec.Struct):
    id: str


_RECORDS, _ENTRIES = msgspec.json.Decoder(_Record), msgspec.json.Decoder(_Entry)
_BATCHES, _ENTRY_IDS = msgspec.json.Decoder(_Batch), msgspec.json.Decoder(_EntryId)


@dataclass(frozen=True, slots=True)
class Written:
    """A key or a value: its bytes, and the form that they were sent in."""

    form: str
    data: bytes | None

    @property
    def size(self) -> int:
        return len(self.data or b"")


@dataclass(frozen=True, slots=True)
class NewRecord:
    partition: int | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]]
    key: Written | None
    value: Written | None

    @property
    def size_bytes(self) -> int:
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return headers + sum(each.size for each in (self.key, self.value) if each is not None)


def read_record(text: bytes, now_ms: int) -> NewRecord:
    """A record that does not say when it was made was made now."""
    return _new_record(_decoded(_RECORDS, text, "the record"), now_ms)


def read_entry(text: bytes, now_ms: int) -> NewRecord:
    return _new_record(_decoded(_ENTRIES, text, "the entry"), now_ms)


def split_batch(body: bytes, entries_max: int) -> dict[str, bytes]:
    """The entries of a batch by their ids, in order. What is wrong inside of an entry is the entry's own affair."""
    entries: dict[str, bytes] = {}
    for raw in _decoded(_BATCHES, body, "the body").entries:
        name = _decoded(_ENTRY_IDS, bytes(raw), "an entry").id
        if not 1 <= len(name) <= ENTRY_ID_CHARS_MAX:
            raise HttpError(422, f"an entry's id has {len(name)} characters; it has from 1 to {ENTRY_ID_CHARS_MAX}")
        if name in entries:
            raise HttpError(422, f"two entries have the id {name!r}", INVALID_BATCH)
        entries[name] = bytes(raw)
    if not 1 <= len(entries) <= entries_max:
        raise HttpError(422, f"{len(entries)} entries in one batch; there are from 1 to {entries_max}", INVALID_BATCH)
    return entries


def as_records(records: Sequence[NewRecord]) -> ListRecords:
    return ListRecords(
        values=[None if each.value is None else each.value.data for each in records],
        size_bytes=sum(each.size_bytes for each in records),
        keys=[None if each.key is None else each.key.data for each in records],
        headers=[each.headers or None for each in records],
        timestamps_ms=[each.timestamp_ms for each in records],
        partitions=[NO_PARTITION if each.partition is None else each.partition for each in records],
    )


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes, what: str) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise HttpError(422, f"{what} has the wrong shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise HttpError(422, f"{what} has values that are nested too deep") from None


def _new_record(record: _Record, now_ms: int) -> NewRecord:
    partition = record.partition_id
    if partition is not None and not 0 <= partition <= INT32_MAX:
        raise HttpError(404, f"partition_id is {partition}, which no topic has", UNKNOWN_TOPIC_OR_PARTITION)
    return NewRecord(
        partition=partition,
        timestamp_ms=now_ms if record.timestamp is None else _milliseconds(record.timestamp),
        headers=[(header.name, header.value) for header in record.headers or ()],
        key=_written(record.key, "key"),
        value=_written(record.value, "value"),
    )


def _written(data: _Data | None, part: str) -> Written | None:
    if data is None:
        return None
    schema = (data.subject, data.subject_name_strategy, data.schema_id, data.schema_version, data.schema)
    if any(each is not None for each in schema) or data.type not in FORMS:
        raise HttpError(422, f"{part}.type has to be one of {', '.join(FORMS)}; schemas are not taken here")
    raw = bytes(data.data)
    if raw == b"null":
        return Written(data.type, None)
    if data.type == "JSON":
        if not is_utf8(raw):
            raise HttpError(400, f"{part}.data is not JSON: it is not UTF-8")
        return Written("JSON", raw)
    try:
        text = msgspec.json.decode(raw, type=str)
        return Written(data.type, text.encode() if data.type == "STRING" else base64.b64decode(text, validate=True))
    except (msgspec.ValidationError, binascii.Error, UnicodeError):
        wanted = "a string" if data.type == "STRING" else "a string in base64"
        raise HttpError(422, f"{part}.data is not {wanted}, as {part}.type says") from None


def _milliseconds(time: datetime) -> int:
    """A time without a zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    if aware < _EPOCH:
        raise HttpError(422, f"timestamp is {time.isoformat()}, which is before 1970")
    return (aware - _EPOCH) // timedelta(milliseconds=1)
