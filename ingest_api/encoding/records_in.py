"""Produce bodies to records.

JSON is decoded by msgspec straight to structs and from there to lists; Arrow is taken as it is, after a check that its
buffers are what they say. What is wrong with a body is said with the place where it is.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from ingest_api.encoding.arrow_in import reading_arrow
from ingest_api.encoding.utf8 import is_utf8
from ingest_api.errors import HttpError
from ingest_api.media import Embedded
from ingest_api.positions import INT32_MAX, INT64_MAX
from ingest_api.settings import GatewaySettings
from lakelog.model.batch import NO_PARTITION, ListRecords, Records, from_arrow

_FIELDS = {name: attrgetter(name) for name in ("key", "value", "headers", "timestamp", "partition")}
_RAW = ("key", "value")

HeaderPair: TypeAlias = tuple[str, bytes | None]


class Header(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str
    value: bytes | None = None


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    partition: int | None = None
    timestamp: int | None = None
    headers: list[Header] | None = None


class BinaryRecord(_Record):
    key: bytes | None = None
    value: bytes | None = None


class TextRecord(_Record):
    key: str | None = None
    value: str | None = None


class JsonRecord(_Record):
    # Raw takes no union, and a null that was sent is Raw too: None is what was not sent.
    key: msgspec.Raw = None  # type: ignore[assignment]
    value: msgspec.Raw = None  # type: ignore[assignment]


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """v2's schema fields are known so that they can be refused by name."""

    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class BinaryBody(_Body, kw_only=True):
    records: list[BinaryRecord]


class TextBody(_Body, kw_only=True):
    records: list[TextRecord]


class JsonBody(_Body, kw_only=True):
    records: list[JsonRecord]


_DECODERS: dict[Embedded, msgspec.json.Decoder[Any]] = {
    Embedded.BINARY: msgspec.json.Decoder(BinaryBody),
    Embedded.TEXT: msgspec.json.Decoder(TextBody),
    Embedded.JSON: msgspec.json.Decoder(JsonBody),
}


def json_records(body: bytes, embedded: Embedded, partition: int | None, settings: GatewaySettings) -> ListRecords:
    """The records of a body, for a partition if the path names one."""
    try:
        decoded = _DECODERS[embedded].decode(body)
    except msgspec.ValidationError as error:
        raise HttpError(422, f"the body has the wrong shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise HttpError(422, "the body has values that are nested too deep") from None
    schemas = (decoded.key_schema, decoded.key_schema_id, decoded.value_schema, decoded.value_schema_id)
    if any(schema is not None for schema in schemas):
        raise HttpError(422, "schemas are not taken here; send the records without key_schema and value_schema")
    records: list[_Record] = decoded.records
    _check_count(len(records), settings.request_records_max)
    if embedded is Embedded.JSON and not is_utf8(body):
        raise _not_utf8(records)
    values, keys = _embedded(records, "value", embedded), _embedded(records, "key", embedded)
    headers = _column(records, "headers")
    size = sum(map(len, filter(None, values or ()))) + sum(map(len, filter(None, keys or ())))
    pairs = None if headers is None else [_pairs(each) for each in headers]
    for each in pairs or ():
        size += sum(len(key.encode()) + len(value or b"") for key, value in each or ())
    return ListRecords(
        values=values if values is not None else [None] * len(records),
        size_bytes=size,
        keys=keys,
        headers=pairs,
        timestamps_ms=_timestamps(_column(records, "timestamp")),
        partitions=_partitions(_column(records, "partition"), len(records), partition),
    )


def arrow_records(body: bytes, partition: int | None, settings: GatewaySettings) -> Generator[int, None, Records]:
    """The same of an Arrow body. Each yield says how many bytes are made beside the body when it goes on."""
    table = yield from reading_arrow(body, settings.body_bytes_max)
    _check_count(table.num_rows, settings.request_records_max)
    if partition is not None:
        if "partition" in table.schema.names:
            raise HttpError(422, "the path names the partition, so the column 'partition' must not be there")
        table = table.append_column("partition", pa.repeat(pa.scalar(partition, pa.int32()), table.num_rows))
    return from_arrow(table)


def _not_utf8(records: list[_Record]) -> HttpError:
    """What is kept as it was sent was not decoded, so nobody has looked at its letters before."""
    sent = ((f"$.records[{index}].{name}", _FIELDS[name](each)) for index, each in enumerate(records) for name in _RAW)
    wrong = (place for place, raw in sent if raw is not None and not is_utf8(bytes(raw)))
    return HttpError(400, f"the body is not JSON: {next(wrong, 'it')} is not UTF-8")


def _column(records: list[_Record], name: str) -> list[Any] | None:
    """One field of all records, or None where no record has it. No line of Python runs per record."""
    column = list(map(_FIELDS[name], records))
    return None if column.count(None) == len(column) else column


def _embedded(records: list[_Record], name: str, embedded: Embedded) -> list[bytes | None] | None:
    column = _column(records, name)
    if column is None or embedded is Embedded.BINARY:
        return column
    if embedded is Embedded.TEXT:
        return [None if text is None else text.encode() for text in column]
    texts: list[bytes | None] = (
        [b"null" if raw is None else bytes(raw) for raw in column] if None in column else list(map(bytes, column))
    )
    return [None if text == b"null" else text for text in texts] if b"null" in texts else texts


def _pairs(headers: list[Header] | None) -> Sequence[HeaderPair] | None:
    return [(header.key, header.value) for header in headers] if headers else None


def _timestamps(timestamps: list[int | None] | None) -> list[int | None] | None:
    for index, time in enumerate(timestamps or ()):
        if time is not None and not 0 <= time <= INT64_MAX:
            raise HttpError(422, f"$.records[{index}].timestamp is {time}; it counts milliseconds since 1970")
    return timestamps


def _partitions(chosen: list[int | None] | None, count: int, partition: int | None) -> list[int] | None:
    if chosen is None:
        return None if partition is None else [partition] * count
    for index, number in enumerate(chosen):
        if number is None:
            continue
        if partition is not None and number != partition:
            raise HttpError(422, f"$.records[{index}].partition is not {partition}, which the path names")
        if not 0 <= number <= INT32_MAX:
            raise HttpError(404, f"$.records[{index}].partition is {number}, which no topic has", 40402)
    other = NO_PARTITION if partition is None else partition
    return [other if number is None else number for number in chosen]


def _check_count(count: int, most: int) -> None:
    if count == 0:
        raise HttpError(422, "$.records is empty; there is nothing to append")
    if count > most:
        raise HttpError(413, f"{count} records in one request; request_records_max is {most}")
