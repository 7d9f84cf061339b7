"""Streams that end by their limit; those that go on need a connection, and are tested with the process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import Served
from tests.http.requests import BINARY, b64, create, error_of, produce, send

TOPIC = "/topics/orders"
STREAM = f"{TOPIC}/partitions/0/stream"
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"


async def _lines(client: Served, path: str) -> list[dict[str, Any]]:
    reply = await client.get(path, headers={"Accept": LINES})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith(LINES)
    return [json.loads(line) for line in reply.text.splitlines()]


async def _events(client: Served, path: str, **headers: str) -> list[tuple[str, dict[str, Any]]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = await client.get(path, headers={"Accept": EVENTS, **named})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith(EVENTS)
    assert reply.headers["cache-control"] == "no-store"
    events = []
    for block in reply.text.removesuffix("\n\n").split("\n\n"):
        event_id, data = block.split("\n")
        events.append((event_id.removeprefix("id: "), json.loads(data.removeprefix("data: "))))
    return events


async def test_lines_are_the_records_of_a_fetch(served: Served) -> None:
    await send(served, "orders", {"a": 1}, "b\nc", None)
    assert await _lines(served, f"{STREAM}?limit=3") == (await served.get(f"{TOPIC}/records")).json()
    assert [each["offset"] for each in await _lines(served, f"{STREAM}?offset=1&limit=1")] == [1]


async def test_events_have_ids_to_go_on_from(served: Served) -> None:
    await create(served, "orders", 2)
    for partition in (0, 1):
        body = {"records": [{"value": f"{partition}-{n}"} for n in range(3)]}
        await produce(served, f"{TOPIC}/partitions/{partition}", json.dumps(body).encode())
    events = await _events(served, f"{TOPIC}/stream?limit=6")
    assert {data["value"] for _, data in events} == {f"{p}-{n}" for p in (0, 1) for n in range(3)}
    for taken in range(1, 6):
        resumed = await _events(served, f"{TOPIC}/stream?limit={6 - taken}", Last_Event_ID=events[taken - 1][0])
        rest = {data["value"] for _, data in events[taken:]}
        assert {data["value"] for _, data in resumed} == rest


@pytest.mark.parametrize(
    ("format", "value"),
    [("json", {"a": [1, 2]}), ("text", '{"a":\n [1,\r\n2]}'), ("binary", b64(b'{"a":\n [1,\r\n2]}'))],
)
async def test_a_record_is_one_line_in_every_format(served: Served, format: str, value: Any) -> None:
    await produce(served, TOPIC, json.dumps({"records": [{"value": b64(b'{"a":\n [1,\r\n2]}')}]}).encode(), BINARY)
    (line,) = await _lines(served, f"{STREAM}?format={format}&limit=1")
    assert line["value"] == value
    ((_, data),) = await _events(served, f"{STREAM}?format={format}&limit=1")
    assert data["value"] == value


async def test_where_to_begin(served: Served) -> None:
    await produce(
        served, TOPIC, json.dumps({"records": [{"value": n, "timestamp": 10**12 + n} for n in range(4)]}).encode()
    )
    for query, first in (("", 0), ("offset=2", 2), (f"timestamp={10**12 + 3}", 3), ("offset=earliest", 0)):
        assert (await _lines(served, f"{STREAM}?limit=1&{query}"))[0]["value"] == first
        assert (await _lines(served, f"{TOPIC}/stream?limit=1&{query}"))[0]["value"] == first
    assert (await _lines(served, f"{TOPIC}/stream?limit=1&positions=0:3"))[0]["value"] == 3


@pytest.mark.parametrize("value", [b"\xff", b"{"])
async def test_a_record_that_the_format_can_not_write_is_the_last_thing_said(served: Served, value: bytes) -> None:
    await send(served, "orders", "fine")
    await produce(served, TOPIC, json.dumps({"records": [{"value": b64(value)}]}).encode(), BINARY)
    last = (await _lines(served, f"{STREAM}?offset=1"))[-1]
    assert last["error_code"] == 406
    assert "offset 1" in last["message"]
    reply = await served.get(f"{STREAM}?offset=1", headers={"Accept": EVENTS})
    assert reply.text.startswith("event: error\ndata: {")
    assert served.gateway.replies.room.bytes == 0


async def test_a_position_that_is_gone_is_the_last_thing_said(served: Served) -> None:
    await send(served, "orders", "a", "b")
    await served.post("/admin/topics/orders/delete-records", json={"offsets": {"0": 1}})
    (only,) = await _lines(served, f"{STREAM}?offset=0")
    assert only["error_code"] == 416


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/topics/none/stream", {}, 404, 40401),
        (f"{TOPIC}/partitions/4/stream", {}, 404, 40402),
        (f"{STREAM}?format=avro", {}, 422, 422),
        (f"{STREAM}?limit=0", {}, 422, 422),
        (f"{STREAM}?offset=x", {}, 422, 422),
        (STREAM, {"Accept": "application/json"}, 406, 406),
        (STREAM, {"Last-Event-ID": "0:latest"}, 422, 422),
        (STREAM, {"Last-Event-ID": "zero"}, 422, 422),
    ],
)
async def test_refusals(served: Served, path: str, headers: dict[str, str], status: int, code: int) -> None:
    await send(served, "orders", 1)
    assert error_of(await served.get(path, headers=headers))[:2] == (status, code)
