"""Produce: records one after the other in one request for as long as it lasts, or a batch of them.

A stream of records is answered while it arrives. What arrives together is one append, so a sender that pauses has its
report after one commit, and one that does not gets as many records into a commit as it sends meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial

import msgspec
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ingest_api.encoding.concatenated import ConcatenatedJson
from ingest_api.errors import HttpError, as_http
from ingest_api.gateway import Gateway, gateway_of
from ingest_api.media import JSON
from ingest_api.routes.direct import DirectRoute, path_parameter
from ingest_api.routes.produce import append_within
from ingest_api.routes.schemas import ERRORS, Schema
from ingest_api.v3 import schemas
from ingest_api.v3.cluster import catalogue_of, replied
from ingest_api.v3.delivery import Append, deliver, refusal
from ingest_api.v3.errors import INVALID_PAYLOAD
from ingest_api.v3.records_in import NewRecord, read_entry, read_record, split_batch
from ingest_api.v3.topics import AT_TOPIC
from lakelog.errors import LakelogError
from lakelog.flow import Share
from lakelog.log.stamp import Appended
from lakelog.model.batch import ListRecords
from lakelog.produce import Acks

# A group is one commit; more records than this make it no better.
GROUP_RECORDS_MAX = 10_000
# Of a body that is here already so much is looked at in one go.
PORTION_BYTES = 1 << 20
# So long at the least, so that what is here already is looked at.
TURN_S = 0.01


async def produce(request: Request) -> Response:
    gateway, topic = gateway_of(request), request.path_params["topic_name"]
    cluster_id = catalogue_of(request, request.path_params["cluster_id"]).cluster_id
    _require_json(request)
    groups = _whole(request, gateway) if request.headers.get("content-encoding") else _arriving(request, gateway)
    reports = _reports(groups, gateway, cluster_id, topic)
    try:
        first = await anext(reports)  # what is wrong before there is a report to give is an ordinary error
    except StopAsyncIteration:
        raise HttpError(422, "there is no record in the body", INVALID_PAYLOAD) from None
    return _StreamedReports(first, reports)


async def produce_batch(request: Request) -> Response:
    gateway, topic = gateway_of(request), request.path_params["topic_name"]
    cluster_id = catalogue_of(request, request.path_params["cluster_id"]).cluster_id
    _require_json(request)
    async with gateway.bodies.read(request) as body:
        entries, records = await gateway.compute(len(body), lambda: _read_batch(body, gateway))
        reports = await deliver(records, _append_to(gateway, topic), cluster_id, topic)
    named = [{"id": name, **report} for name, report in zip(entries, reports, strict=True)]
    successes = [report for report in named if "offset" in report]
    failures = [report for report in named if "offset" not in report]
    return replied({"successes": successes, "failures": failures}, 207)


def _require_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise HttpError(415, f"the content type {kind!r} is not taken; v3's records come as {JSON}")


async def _arriving(request: Request, gateway: Gateway) -> AsyncGenerator[list[bytes]]:
    """Groups of records as they arrive, until the sender ends the request or the gateway stops."""
    split, share = ConcatenatedJson(gateway.settings.body_bytes_max), Share(gateway.bodies.room)
    clock, timeout_ms = gateway.broker.clock, gateway.settings.body_timeout_ms
    latest_ms: float | None = None  # for what has arrived of a record, and holds room, to become a whole one
    try:
        async with aclosing(_pieces(request)) as pieces:
            while True:
                left_s = None if latest_ms is None else max(TURN_S, (latest_ms - clock.monotonic_ms()) / 1000)
                async with asyncio.timeout(left_s):
                    piece = await gateway.unless_stopping(anext(pieces, b""))
                if piece is None:
                    return
                asked_ms = clock.monotonic_ms()
                await share.take(len(piece))
                if latest_ms is not None:  # what it waits for room is not the sender's
                    latest_ms += clock.monotonic_ms() - asked_ms
                records = split.feed(piece)
                if records:
                    yield records
                if not piece:
                    split.finish()
                if split.fault is not None:
                    raise split.fault
                if not piece:
                    return
                share.keep(split.pending_bytes)
                if not split.pending_bytes:
                    latest_ms = None
                elif records or latest_ms is None:
                    latest_ms = clock.monotonic_ms() + timeout_ms
    except TimeoutError:
        raise HttpError(408, f"a record did not arrive whole within {timeout_ms} ms") from None
    finally:
        share.keep(0)


async def _pieces(request: Request) -> AsyncGenerator[bytes]:
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        raise HttpError(400, "the body ended before it was whole") from None


async def _whole(request: Request, gateway: Gateway) -> AsyncGenerator[list[bytes]]:
    """A compressed body is unpacked first."""
    async with gateway.bodies.read(request) as body:
        split = ConcatenatedJson(gateway.settings.body_bytes_max)
        for start in range(0, len(body), PORTION_BYTES):
            yield split.feed(body[start : start + PORTION_BYTES])
        split.finish()
        if split.fault is not None:
            raise split.fault


async def _reports(
    groups: AsyncGenerator[list[bytes]], gateway: Gateway, cluster_id: str, topic: str
) -> AsyncGenerator[bytes]:
    """The reports of each group, a line each."""
    encoder, append = msgspec.json.Encoder(), _append_to(gateway, topic)
    async with aclosing(groups):
        async for group in groups:
            for start in range(0, len(group), GROUP_RECORDS_MAX):
                texts = group[start : start + GROUP_RECORDS_MAX]
                records = await gateway.compute(sum(map(len, texts)), partial(_read, texts, read_record, gateway))
                yield encoder.encode_lines(await deliver(records, append, cluster_id, topic))


def _read_batch(body: bytes, gateway: Gateway) -> tuple[Iterable[str], list[NewRecord | HttpError]]:
    """The entries' ids, and the entries."""
    entries = split_batch(body, gateway.settings.request_records_max)
    return entries, _read(entries.values(), read_entry, gateway)


def _read(
    texts: Iterable[bytes], read: Callable[[bytes, int], NewRecord], gateway: Gateway
) -> list[NewRecord | HttpError]:
    now_ms = gateway.broker.clock.now_ms()

    def attempt(text: bytes) -> NewRecord | HttpError:
        try:
            return read(text, now_ms)
        except HttpError as error:
            return error

    return list(map(attempt, texts))


def _append_to(gateway: Gateway, topic: str) -> Append:
    async def append(records: ListRecords) -> Appended:
        timeout_ms = gateway.settings.request_timeout_ms
        appended = await append_within(gateway, topic, records, Acks.ALL, None, None, timeout_ms)
        assert appended is not None, "only who asks for no acknowledgement gets none"
        return appended

    return append


class _StreamedReports(Response):
    """Reports leave while records still arrive. Starlette's own streams would listen in and swallow the records."""

    def __init__(self, first: bytes, others: AsyncGenerator[bytes]) -> None:
        super().__init__(media_type=JSON)
        del self.headers["content-length"]
        self._first = first
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._body()) as body:
            async for piece in body:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _body(self) -> AsyncGenerator[bytes]:
        """The reply is long under way when the rest can't be read, so that is the last thing it says."""
        async with aclosing(self._others):
            try:
                yield self._first
                async for piece in self._others:
                    yield piece
            except LakelogError as error:
                yield msgspec.json.encode(refusal(as_http(error)))
            except HttpError as error:
                yield msgspec.json.encode(refusal(error))


def register(app: FastAPI) -> None:
    parameters = [
        path_parameter("cluster_id", "string", "The cluster's id"),
        path_parameter("topic_name", "string", "The topic's name"),
    ]

    def described(body: Schema) -> Schema:
        return {"parameters": parameters, "requestBody": {"required": True, "content": {JSON: {"schema": body}}}}

    for path, handler, summary, body, responses in (
        ("records", produce, "Append records, one JSON object after the other", schemas.RECORD, schemas.REPORTED),
        ("records:batch", produce_batch, "Append a batch of records", schemas.BATCH, schemas.BATCH_REPORTED),
    ):
        app.router.add_api_route(
            f"/v3{AT_TOPIC}/{path}",
            handler,
            methods=["POST"],
            summary=summary,
            tags=["v3 records"],
            response_class=Response,
            responses={**responses, **ERRORS},
            openapi_extra=described(body),
            route_class_override=DirectRoute,
        )
