"""What the API's description says of replies: their shapes, and the media types that each comes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ingest_api import media

Schema: TypeAlias = dict[str, Any]
Responses: TypeAlias = dict[int | str, dict[str, Any]]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
ANYTHING: Schema = {}
BYTES: Schema = {"type": "string", "format": "binary"}


def a_list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def an_object(optional: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """All properties are there, but for those that are optional."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def a_map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def answered(schema: Schema, *kinds: str, status: int = 200, doc: str = "Done") -> Responses:
    content = {kind: {"schema": schema} for kind in kinds or media.METADATA_OUT}
    return {status: {"description": doc, "content": content}}


_PLACE = an_object(partition=NUMBER, offset=NUMBER, error_code=or_null(NUMBER), error=or_null(TEXT))
_OFFSETS = an_object(offsets=a_list(_PLACE), key_schema_id=or_null(NUMBER), value_schema_id=or_null(NUMBER))
_RANGE = an_object(partition=NUMBER, start_offset=NUMBER, end_offset=NUMBER)
_RANGES = an_object(records=NUMBER, ranges=a_list(_RANGE))
PRODUCED: Responses = {
    **answered({"anyOf": [_OFFSETS, _RANGES]}, doc="Stored: the place of each record, or for Arrow the ranges of them"),
    204: {"description": "Taken in, and nobody waits for more (acks=0)"},
}

_HEADER = an_object(key=TEXT, value=or_null(TEXT))


def _record(embedded: Schema) -> Schema:
    return an_object(
        ("headers",),
        topic=TEXT,
        key=embedded,
        value=embedded,
        partition=NUMBER,
        offset=NUMBER,
        timestamp=NUMBER,
        headers=a_list(_HEADER),
    )


def _records(kinds: Mapping[str, media.Embedded | None]) -> dict[str, Any]:
    return {
        kind: {"schema": BYTES}
        if embedded is None
        else {"schema": a_list(_record(ANYTHING if embedded is media.Embedded.JSON else or_null(TEXT)))}
        for kind, embedded in kinds.items()
    }


_POSITION_HEADERS = {
    name: {"description": doc, "schema": TEXT}
    for name, doc in (
        ("Lakelog-High-Watermark", "The offset after the last record; over a topic a map as in `positions`"),
        ("Lakelog-Log-Start-Offset", "The lowest offset that is served; over a topic a map"),
        ("Lakelog-Next-Offset", "Where to go on; over a topic a map"),
    )
}
FETCHED: Responses = {
    200: {
        "description": "Records, or none",
        "headers": _POSITION_HEADERS,
        "content": _records(media.RECORDS_OUT),
    }
}
_ANY_FORMAT = {media.V2: media.Embedded.JSON, media.V2_SHORT: media.Embedded.JSON}
POLLED: Responses = {
    200: {"description": "Records, or none", "content": _records({**_ANY_FORMAT, **media.RECORDS_OUT})},
}
CONSUMER = an_object(instance_id=TEXT, base_uri=TEXT)
SUBSCRIBED = an_object(topics=a_list(TEXT))
ASSIGNED = an_object(partitions=a_list(an_object(topic=TEXT, partition=NUMBER)))
COMMITTED = an_object(offsets=a_list(an_object(topic=TEXT, partition=NUMBER, offset=NUMBER, metadata=TEXT)))
STREAMED: Responses = {
    200: {
        "description": "Records as they arrive, and a sign of life while there are none. An error is the last to come",
        "content": {kind: {"schema": TEXT} for kind in media.STREAMS_OUT},
    }
}

_REPLICA = an_object(broker=NUMBER, leader={"type": "boolean"}, in_sync={"type": "boolean"})
V2_PARTITION = an_object(partition=NUMBER, leader=NUMBER, replicas=a_list(_REPLICA))
V2_TOPIC = an_object(name=TEXT, configs=a_map(TEXT), partitions=a_list(V2_PARTITION))
V2_OFFSETS = an_object(beginning_offset=NUMBER, end_offset=NUMBER)

CONFIGS = a_list(an_object(name=TEXT, value=TEXT, default=TEXT, is_default={"type": "boolean"}, type=TEXT, doc=TEXT))
_PARTITION = an_object(
    partition=NUMBER,
    log_start_offset=NUMBER,
    high_watermark=NUMBER,
    segments=NUMBER,
    bytes=NUMBER,
    min_timestamp_ms=or_null(NUMBER),
    max_timestamp_ms=or_null(NUMBER),
)
TOPIC = an_object(
    name=TEXT,
    topic_id=TEXT,
    internal={"type": "boolean"},
    table_version=NUMBER,
    configs=CONFIGS,
    partitions=a_list(_PARTITION),
)
TOPICS = a_list(an_object(name=TEXT, internal={"type": "boolean"}, partitions=NUMBER, records=NUMBER, bytes=NUMBER))
LOG_STARTS = an_object(log_start_offsets=a_map(NUMBER))
ERROR = an_object(error_code=NUMBER, message=TEXT)
ERRORS: Responses = {
    status: {"description": doc, "content": {media.JSON: {"schema": ERROR}}}
    for status, doc in (
        ("4XX", "The request is refused, and changed nothing"),
        ("5XX", "The request could not be done"),
    )
}
