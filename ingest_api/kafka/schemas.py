"""The messages of every API and version, as kio describes them, made into readers and writers.

kio knows each message of each version as a class with typed fields. Handlers see one shape per message whatever the
version: a request has all fields of the newest version, at their defaults where the sender's version has none; a reply
is a mapping of the newest version's fields, of which those are sent that the sender's version knows. kio's own reader
is not used: it makes room for as many elements as an array announces, so that twenty bytes could end the process.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from ingest_api.kafka import wire
from ingest_api.kafka.wire import Cursor, Malformed, Read, Write

# A request, or a part of one: attributes by kio's names. Spans of time are in milliseconds.
Message: TypeAlias = SimpleNamespace
# A reply, or a part of one, by kio's names. What is left out is at its default.
Reply: TypeAlias = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    read: Read
    write: Write
    default: Any
    tag: int | None


class Struct:
    """One part of a message in one version."""

    def __init__(self, fields: Sequence[_Field], *, flexible: bool, missing: Mapping[str, Any], known: frozenset[str]):
        self.flexible = flexible
        self._plain = [field for field in fields if field.tag is None]
        self._tagged = {field.tag: field for field in fields if field.tag is not None}
        # What a reader sees of the fields that this version, or this message, does not have.
        self._missing = {**missing, **{field.name: field.default for field in self._tagged.values()}}
        self._known = known

    def read(self, cursor: Cursor) -> Message:
        values = dict(self._missing)
        for field in self._plain:
            values[field.name] = field.read(cursor)
        if self.flexible:
            self._read_tagged(cursor, values)
        return SimpleNamespace(**values)

    def _read_tagged(self, cursor: Cursor, values: dict[str, Any]) -> None:
        for _ in range(cursor.elements(cursor.unsigned_varint())):
            tag = cursor.unsigned_varint()
            end = cursor.unsigned_varint() + cursor.at
            field = self._tagged.get(tag)
            if field is None:
                cursor.take(end - cursor.at)
                continue
            values[field.name] = field.read(cursor)
            if cursor.at != end:
                raise Malformed(f"the field of tag {tag} is not as long as it says")

    def write(self, pieces: list[bytes | memoryview], values: Reply) -> None:
        if not self._known.issuperset(values):
            raise TypeError(f"no version has {sorted(set(values) - self._known)}")
        for field in self._plain:
            field.write(pieces, values.get(field.name, field.default))
        if self.flexible:
            self._write_tagged(pieces, values)

    def _write_tagged(self, pieces: list[bytes | memoryview], values: Reply) -> None:
        given = [(tag, f) for tag, f in sorted(self._tagged.items()) if values.get(f.name, f.default) != f.default]
        wire.write_unsigned_varint(pieces, len(given))
        for tag, field in given:
            content: list[bytes | memoryview] = []
            field.write(content, values[field.name])
            wire.write_unsigned_varint(pieces, tag)
            wire.write_unsigned_varint(pieces, sum(map(len, content)))
            pieces.extend(content)


@cache
def request_schema(api: str, version: int, oldest: int, newest: int) -> Struct:
    """How a version of a request is read, seen from all versions that are served."""
    return _schema(api, "request", version, range(oldest, newest + 1))


@cache
def response_schema(api: str, version: int, oldest: int, newest: int) -> Struct:
    return _schema(api, "response", version, range(oldest, newest + 1))


def is_flexible(api: str, version: int) -> bool:
    return bool(_payload(api, version, "request").__flexible__)


def _schema(api: str, direction: str, version: int, others: Iterable[int]) -> Struct:
    return _struct(_payload(api, version, direction), tuple(_payload(api, each, direction) for each in others))


@cache
def _payload(api: str, version: int, direction: str) -> Any:
    module = import_module(f"kio.schema.{api}.v{version}.{direction}")
    name = "".join(part.capitalize() for part in api.split("_")) + direction.capitalize()
    return getattr(module, name)


@cache
def _struct(cls: Any, others: tuple[Any, ...]) -> Struct:
    """The class of one version; `others` are what stands in its place in all that are served. Some fields are there in
    neither the oldest nor the newest.
    """
    fields = [_field(field, cls, others) for field in dataclasses.fields(cls)]
    own = {field.name for field in fields}
    missing = {
        field.name: _default(field, _hints(other)[field.name])
        for other in others
        for field in dataclasses.fields(other)
        if field.name not in own
    }
    return Struct(fields, flexible=cls.__flexible__, missing=missing, known=frozenset(own | missing.keys()))


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _field(field: dataclasses.Field[Any], cls: Any, others: tuple[Any, ...]) -> _Field:
    flexible, tag = cls.__flexible__, field.metadata.get("tag")
    hint, nullable = _without_none(_hints(cls)[field.name])
    is_array = get_origin(hint) is tuple
    inner = _element(hint)
    if dataclasses.is_dataclass(inner):
        theirs = (_element(_without_none(_hints(other).get(field.name))[0]) for other in others)
        others = tuple(each for each in theirs if dataclasses.is_dataclass(each))
        struct: Struct = _struct(cast(Any, inner), others)
        pair: tuple[Read, Write] = (struct.read, struct.write)
        if nullable and not is_array:
            pair = _nullable(pair)
    else:
        # A tag that is there has a value, whatever the class says; and what is null in an array is the array.
        may_be_null = nullable and tag is None and not is_array
        pair = wire.primitive(field.metadata["kafka_type"], flexible=flexible, nullable=may_be_null)
    if is_array:
        pair = wire.array(pair, flexible=flexible, nullable=nullable)
    return _Field(field.name, *pair, _default(field, _hints(cls)[field.name]), tag)


def _element(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is tuple else hint


def _nullable(pair: tuple[Read, Write]) -> tuple[Read, Write]:
    read_value, write_value = pair

    def read(cursor: Cursor) -> Any:
        return None if cursor.take(1)[0] == 0xFF else read_value(cursor)

    def write(pieces: list[bytes | memoryview], value: Any) -> None:
        pieces.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            write_value(pieces, value)

    return read, write


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, UnionType):
        others = [each for each in get_args(hint) if each is not NoneType]
        return others[0], len(others) < len(get_args(hint))
    return hint, False


def _default(field: dataclasses.Field[Any], hint: Any) -> Any:
    """The schema's default; where it has none, what is empty or zero."""
    hint, nullable = _without_none(hint)
    kind = field.metadata.get("kafka_type")
    if field.default not in (dataclasses.MISSING, None):
        return _plain_value(field.default)
    if nullable or field.default is None:
        return -1 if kind == "datetime_i64" else None  # kio's word for a time that is not set, a number on the wire
    if get_origin(hint) is tuple:
        return ()
    if dataclasses.is_dataclass(hint):
        return {}
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind or "", 0)


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, enum.Enum):
        return int(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain_value(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value
