"""Requests and replies by kio's own writers and readers, over a socket, one frame at a time.

Fields are given and seen as in our own messages (`tests.kafka.samples.plain`); what is left out is at its default.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from types import NoneType
from typing import Any, Self, get_args, get_origin, get_type_hints

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from ingest_api.kafka.apis import APIS
from tests.kafka.samples import decoded, encoded, plain

KEYS = {api.name: api.key for api in APIS.values()}
NO_PRODUCER = (-1, -1, -1)


def payload(api: str, version: int, kind: EntityType) -> Any:
    module: Any = load_payload_module(KEYS[api], version, kind)  # type: ignore[arg-type]
    return next(each for each in vars(module).values() if getattr(each, "__type__", None) is kind)


def request_bytes(api: str, version: int, fields: dict[str, Any], correlation_id: int = 1) -> bytes:
    """A frame without its length."""
    cls = payload(api, version, EntityType.request)
    header = cls.__header_schema__
    named = build(
        header,
        {
            "request_api_key": KEYS[api],
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": "plain",
        },
    )
    return encoded(named) + encoded(build(cls, fields))


def build(cls: Any, fields: dict[str, Any]) -> Any:
    hints = get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}
    assert fields.keys() <= known.keys(), (cls, fields)
    return cls(**{name: _value(field, hints[name], fields) for name, field in known.items()})


def _value(field: dataclasses.Field, hint: Any, fields: dict[str, Any]) -> Any:
    optional = NoneType in get_args(hint)
    kind = next((each for each in get_args(hint) if each is not NoneType), hint) if optional else hint
    if field.name not in fields:
        if field.default is not dataclasses.MISSING:
            return field.default
        empty: Any = (
            () if get_origin(kind) is tuple else None if optional else {} if dataclasses.is_dataclass(kind) else 0
        )
        return _converted(field, kind, empty if field.metadata.get("kafka_type") != "string" or optional else "")
    return _converted(field, kind, fields[field.name])


def _converted(field: dataclasses.Field, kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(kind) is tuple:
        return tuple(_converted(field, get_args(kind)[0], each) for each in value)
    if dataclasses.is_dataclass(kind):
        return build(kind, value)
    match field.metadata["kafka_type"]:
        case "timedelta_i32" | "timedelta_i64":
            return kind.parse(datetime.timedelta(milliseconds=value))
        case "error_code":
            return ErrorCode(value)
        case "uuid" | "bool" | "bytes" | "records":
            return value
    return kind(value)


class PlainClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, host: str, port: int) -> Self:
        return cls(*await asyncio.open_connection(host, port))

    def close(self) -> None:
        self.writer.close()

    def send(self, api: str, version: int, **fields: Any) -> int:
        self._correlation_id += 1
        self.send_frame(request_bytes(api, version, fields, self._correlation_id))
        return self._correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def receive(self, api: str, version: int, correlation_id: int) -> dict[str, Any]:
        cls = payload(api, version, EntityType.response)
        frame = await self.frame()
        assert int.from_bytes(frame[:4], "big") == correlation_id
        start = 5 if cls.__header_schema__.__flexible__ else 4
        reply: dict[str, Any] = plain(decoded(cls, frame[start:]))
        return reply

    async def ask(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        return await self.receive(api, version, self.send(api, version, **fields))

    async def hung_up(self) -> bool:
        """Whether the server has closed the connection without a word."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


GZIP = 1


def batch(
    *values: bytes | None,
    producer: tuple[int, int, int] = NO_PRODUCER,
    timestamp: int = 1_700_000_000_000,
    codec: int = 0,
) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, False, *producer, 1 << 30)
    for offset, value in enumerate(values):
        builder.append(offset, timestamp + offset, None, value, [])
    return bytes(builder.build())


def to_produce(*partitions: tuple[str, int, bytes], acks: int = -1, timeout: int = 30_000) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition, records in partitions:
        topics.setdefault(topic, []).append({"index": partition, "records": records})
    return {
        "acks": acks,
        "timeout": timeout,
        "topic_data": [{"name": name, "partition_data": data} for name, data in topics.items()],
    }


def to_fetch(*positions: tuple[str, int, int], max_wait: int = 0, min_bytes: int = 1, **fields: Any) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition, offset in positions:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics.setdefault(topic, []).append(wanted)
    return {
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "topics": [{"topic": name, "partitions": data} for name, data in topics.items()],
        **fields,
    }
