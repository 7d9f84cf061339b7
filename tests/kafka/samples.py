"""Messages with something in every field, and the bytes that kio makes of them: a second opinion on our own reader."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import uuid
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import TZAware


def sample(cls: Any, rng: random.Random) -> Any:
    hints = get_type_hints(cls)
    return cls(**{field.name: _value(field, hints[field.name], rng) for field in dataclasses.fields(cls)})


def _value(field: dataclasses.Field, hint: Any, rng: random.Random) -> Any:
    options = get_args(hint) if NoneType in get_args(hint) else ()
    tagged = "tag" in field.metadata
    if options and not tagged and rng.random() < 0.2:
        return None
    kind = next((each for each in options if each is not NoneType), hint)
    if get_origin(kind) is tuple:
        return tuple(_single(field, get_args(kind)[0], rng) for _ in range(rng.randrange(3)))
    return _single(field, kind, rng)


def _single(field: dataclasses.Field, kind: Any, rng: random.Random) -> Any:
    if dataclasses.is_dataclass(kind):
        return sample(kind, rng)
    match field.metadata["kafka_type"]:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return kind("".join(rng.choices("abcäö☃", k=rng.randrange(1, 9))))
        case "bytes" | "records":
            return rng.randbytes(rng.randrange(1, 300))
        case "uuid":
            return uuid.UUID(int=rng.getrandbits(128) | 1)
        case "error_code":
            return rng.choice(list(ErrorCode))
        case "float64":
            return kind(rng.random())
        case "timedelta_i32" | "timedelta_i64":
            return kind.parse(datetime.timedelta(milliseconds=rng.randrange(1, 10**6)))
        case "datetime_i64":
            return TZAware.parse(datetime.datetime.fromtimestamp(rng.randrange(10**9), datetime.UTC))
        case number:
            bits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}[number]
            return kind(rng.getrandbits(bits))


def encoded(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decoded(cls: Any, data: bytes) -> Any:
    entity, size = entity_reader(cls)(data, 0)
    assert size == len(data), "kio did not read all of it"
    return entity


def plain(value: Any) -> Any:
    """As our messages have it: times in milliseconds, errors as numbers, parts as mappings."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, ErrorCode):
        return int(value.value)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value
