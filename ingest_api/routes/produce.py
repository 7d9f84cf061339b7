"""Produce: a body of records in, their offsets out."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from ingest_api import media
from ingest_api.bodies import BodyOf
from ingest_api.encoding.records_in import arrow_records, json_records
from ingest_api.encoding.replies import offsets_reply, ranges_reply
from ingest_api.errors import HttpError
from ingest_api.gateway import Gateway, gateway_of
from ingest_api.media import Embedded
from ingest_api.positions import INT32_MAX, INT64_MAX, parse_exact, parse_whole
from ingest_api.routes.direct import DirectRoute, optional_parameter, path_parameter
from ingest_api.routes.schemas import ERRORS, PRODUCED
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.producers import ProducerBatch
from lakelog.log.stamp import Appended
from lakelog.model.batch import AnyRecords, Records
from lakelog.produce import Acks

ACKS = {"all": Acks.ALL, "-1": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}
INT16_MAX = 2**15 - 1
TOPIC_PATH = "/topics/{topic}"
PARTITION_PATH = "/topics/{topic}/partitions/{partition}"

HeaderMap: TypeAlias = dict[bytes, bytes]


async def produce(request: Request, topic: str, partition_text: str | None) -> Response:
    gateway = gateway_of(request)
    headers = dict(request.scope["headers"])
    partition = None if partition_text is None else _partition(partition_text)
    embedded = media.body_type(headers.get(b"content-type", b"").decode("latin-1"))
    reply_type = media.negotiate(headers.get(b"accept", b"").decode("latin-1"), media.METADATA_OUT)
    acks, timeout_ms = _acks(request), _timeout_ms(request, gateway)
    producer, expected = _producer(headers), _expected_offsets(headers, partition)
    async with (held := gateway.bodies.read(request)) as body:
        records = await _records(gateway, held, body, embedded, partition)
        appended = await append_within(gateway, topic, records, acks, producer, expected, timeout_ms)
    if appended is None:
        return Response(status_code=204)
    encode = ranges_reply if embedded is None else offsets_reply
    return Response(await gateway.compute(16 * len(records), lambda: encode(appended)), media_type=reply_type)


async def _records(
    gateway: Gateway, held: BodyOf, body: bytes, embedded: Embedded | None, partition: int | None
) -> AnyRecords:
    if embedded is not None:
        return await gateway.compute(len(body), lambda: json_records(body, embedded, partition, gateway.settings))
    reading, size = arrow_records(body, partition, gateway.settings), len(body)

    def go_on() -> int | Records:
        try:
            return next(reading)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    while isinstance(step := await gateway.compute(size, go_on), int):
        await held.take(step)
        size += step
    return step


async def append_within(
    gateway: Gateway,
    topic: str,
    records: AnyRecords,
    acks: Acks,
    producer: ProducerBatch | None,
    expected: dict[int, int] | None,
    timeout_ms: int,
) -> Appended | None:
    """Raises once the time is over. What becomes of the records then is open."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await gateway.broker.append(topic, records, acks=acks, producer=producer, expected_offsets=expected)
    except TimeoutError:
        raise LakelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"not committed within {timeout_ms} ms; the records may still be stored, so send them again as an "
            "idempotent producer or look first",
        ) from None


def _acks(request: Request) -> Acks:
    if not request.scope["query_string"]:
        return Acks.ALL
    query = request.query_params
    if query.get("async", "").lower() == "true":
        return Acks.NONE
    text = query.get("acks", "all")
    if text not in ACKS:
        raise LakelogError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {text[:50]!r}; it is all, 1 or 0")
    return ACKS[text]


def _timeout_ms(request: Request, gateway: Gateway) -> int:
    text = request.query_params.get("timeout") if request.scope["query_string"] else None
    return gateway.settings.request_timeout_ms if text is None else _whole("timeout", text, 1, INT32_MAX)


def _producer(headers: HeaderMap) -> ProducerBatch | None:
    producer_id = headers.get(b"lakelog-producer-id")
    sequence = headers.get(b"lakelog-sequence")
    if producer_id is None and sequence is None:
        return None
    if producer_id is None or sequence is None:
        raise HttpError(422, "Lakelog-Producer-Id and Lakelog-Sequence go together")
    epoch = headers.get(b"lakelog-producer-epoch", b"0")
    return ProducerBatch(
        producer_id=_whole("Lakelog-Producer-Id", producer_id.decode("latin-1"), 0, INT64_MAX),
        epoch=_whole("Lakelog-Producer-Epoch", epoch.decode("latin-1"), 0, INT16_MAX),
        sequence=_whole("Lakelog-Sequence", sequence.decode("latin-1"), 0, INT32_MAX),
    )


def _expected_offsets(headers: HeaderMap, partition: int | None) -> dict[int, int] | None:
    given = headers.get(b"lakelog-expected-offset")
    if given is None:
        return None
    text = given.decode("latin-1")
    if partition is not None and ":" not in text:
        return {partition: _whole("Lakelog-Expected-Offset", text, 0, INT64_MAX)}
    return parse_exact(text)


def _partition(text: str) -> int:
    partition = parse_whole(text, INT32_MAX)
    if partition is None:
        raise HttpError(404, f"there is no partition {text[:50]!r}", 40402)
    return partition


def _whole(name: str, text: str, least: int, most: int) -> int:
    number = parse_whole(text, most)
    if number is None or number < least:
        raise HttpError(422, f"{name} is {text[:50]!r}; it is a number from {least} to {most}")
    return number


def _described(*more: dict[str, Any]) -> dict[str, Any]:
    """What the API's description says of a produce request."""
    header: dict[str, Any] = {
        "type": "object",
        "required": ["key"],
        "properties": {"key": {"type": "string"}, "value": {"type": ["string", "null"], "format": "byte"}},
        "additionalProperties": False,
    }

    def body(value: dict[str, Any]) -> dict[str, Any]:
        record = {
            "type": "object",
            "properties": {
                "key": value,
                "value": value,
                "partition": {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
                "timestamp": {"type": "integer", "minimum": 0, "description": "milliseconds since 1970"},
                "headers": {"type": "array", "items": header},
            },
            "additionalProperties": False,
        }
        records = {"type": "array", "minItems": 1, "items": record}
        return {"schema": {"type": "object", "required": ["records"], "properties": {"records": records}}}

    number = {"type": "integer", "minimum": 0}
    return {
        "parameters": [
            path_parameter("topic", "string", "The topic's name"),
            *more,
            optional_parameter(
                "acks",
                "query",
                {"type": "string", "enum": list(ACKS)},
                "What the reply waits for; 1 tells offsets before the commit, which may make them later ones",
            ),
            optional_parameter("async", "query", {"type": "boolean"}, "The same as acks=0"),
            optional_parameter("timeout", "query", {"type": "integer", "minimum": 1}, "Milliseconds for the commit"),
            optional_parameter("Lakelog-Producer-Id", "header", number, "Who sends, for a batch that is stored once"),
            optional_parameter("Lakelog-Producer-Epoch", "header", number, "Which life of the producer"),
            optional_parameter("Lakelog-Sequence", "header", number, "The number of the first record"),
            optional_parameter("Lakelog-Expected-Offset", "header", {"type": "string"}, "Store only at these offsets"),
        ],
        "requestBody": {
            "required": True,
            "content": {
                Embedded.BINARY.media_type: body({"type": ["string", "null"], "format": "byte"}),
                Embedded.JSON.media_type: body({}),
                Embedded.TEXT.media_type: body({"type": ["string", "null"]}),
                media.JSON: body({}),
                media.ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
        },
    }


async def produce_to_topic(request: Request) -> Response:
    return await produce(request, request.path_params["topic"], None)


async def produce_to_partition(request: Request) -> Response:
    return await produce(request, request.path_params["topic"], request.path_params["partition"])


def register(app: FastAPI) -> None:
    """The paths as the API's description has them."""
    partition = path_parameter("partition", "integer", "The partition's number")
    for path, handler, summary, described in (
        (TOPIC_PATH, produce_to_topic, "Append records to a topic", _described()),
        (PARTITION_PATH, produce_to_partition, "Append to a partition", _described(partition)),
    ):
        app.router.add_api_route(
            path,
            handler,
            methods=["POST"],
            summary=summary,
            tags=["produce"],
            response_class=Response,
            responses={**PRODUCED, **ERRORS},
            openapi_extra=described,
            route_class_override=DirectRoute,
        )
