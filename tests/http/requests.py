"""Requests that many tests make, and records as they look from outside."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pyarrow as pa

BINARY = "application/vnd.kafka.binary.v2+json"
JSON_V2 = "application/vnd.kafka.json.v2+json"
TEXT = "application/vnd.kafka.text.v2+json"
JSON = "application/json"
V2 = "application/vnd.kafka.v2+json"
ARROW = "application/vnd.apache.arrow.stream"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def records(*values: Any) -> bytes:
    return json.dumps({"records": [{"value": value} for value in values]}).encode()


def arrow_body(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


async def create(client: httpx.AsyncClient, topic: str, partitions: int = 1, **config: str) -> None:
    body = {"topic_name": topic, "partitions_count": partitions, "config": config}
    reply = await client.post("/admin/topics", json=body)
    assert reply.status_code == 201, reply.text


async def produce(
    client: httpx.AsyncClient, path: str, body: bytes, kind: str = JSON, **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(path, content=body, headers={"Content-Type": kind, **named})


async def send(client: httpx.AsyncClient, topic: str, *values: Any, **headers: str) -> list[dict[str, Any]]:
    reply = await produce(client, f"/topics/{topic}", records(*values), **headers)
    assert reply.status_code == 200, reply.text
    offsets: list[dict[str, Any]] = reply.json()["offsets"]
    return offsets


async def stored(client: httpx.AsyncClient, topic: str) -> list[tuple[Any, ...]]:
    """(partition, key, value, headers) of every record, in bytes, by partition and offset."""
    reply = await client.get(f"/topics/{topic}/records", headers={"Accept": BINARY})
    assert reply.status_code == 200, reply.text
    return [
        (each["partition"], _bytes(each["key"]), _bytes(each["value"]), _pairs(each.get("headers", [])))
        for each in reply.json()
    ]


async def ends(client: httpx.AsyncClient, topic: str, partitions: int = 1) -> list[int]:
    replies = [await client.get(f"/topics/{topic}/partitions/{number}/offsets") for number in range(partitions)]
    return [reply.json()["end_offset"] for reply in replies]


def error_of(reply: httpx.Response) -> tuple[int, int, str]:
    """Status, code and message of a refusal, which all have the same shape."""
    assert reply.headers["content-type"] == JSON, reply.text
    body = reply.json()
    assert set(body) == {"error_code", "message"}
    return reply.status_code, body["error_code"], body["message"]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _pairs(headers: Sequence[dict[str, Any]]) -> list[tuple[str, bytes | None]]:
    return [(header["key"], _bytes(header["value"])) for header in headers]
