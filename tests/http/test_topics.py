"""v2's view of topics, and their administration."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.http.conftest import OpenGateway, Served
from tests.http.requests import JSON, V2, create, ends, error_of, send

REPLICA = {"broker": 0, "leader": True, "in_sync": True}


def _partition(number: int) -> dict[str, Any]:
    return {"partition": number, "leader": 0, "replicas": [REPLICA]}


async def test_v2_views(served: Served) -> None:
    await create(served, "orders", 2, **{"retention.ms": "1000"})
    await send(served, "payments", "a", "b")
    expected: dict[str, Any] = {
        "/brokers": {"brokers": [0]},
        "/topics": ["orders", "payments"],
        "/topics/orders/partitions": [_partition(0), _partition(1)],
        "/topics/orders/partitions/1": _partition(1),
        "/topics/payments/partitions/0/offsets": {"beginning_offset": 0, "end_offset": 2},
    }
    for path, body in expected.items():
        for accept in (V2, JSON):
            reply = await served.get(path, headers={"Accept": accept})
            assert reply.headers["content-type"] == accept
            assert reply.json() == body
        assert error_of(await served.get(path, headers={"Accept": "text/html"}))[:2] == (406, 406)
    orders = (await served.get("/topics/orders")).json()
    assert orders["name"] == "orders"
    assert orders["configs"]["retention.ms"] == "1000"
    assert orders["partitions"] == [_partition(0), _partition(1)]
    assert (await served.get("/")).json()["name"] == "lakelog"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/topics/none", 404, 40401),
        ("GET", "/topics/none/partitions", 404, 40401),
        ("GET", "/topics/none/partitions/0", 404, 40401),
        ("GET", "/topics/none/partitions/0/offsets", 404, 40401),
        ("GET", "/topics/orders/partitions/1", 404, 40402),
        ("GET", "/topics/orders/partitions/1/offsets", 404, 40402),
        ("GET", "/topics/orders/partitions/x", 404, 40402),
        ("GET", "/topics/a%20b", 422, 422),
        ("GET", "/admin/topics/none", 404, 40401),
        ("DELETE", "/admin/topics/none", 404, 40401),
        ("GET", "/admin/topics/none/configs", 404, 40401),
        ("GET", "/nowhere", 404, 404),
        ("GET", "/topics/", 404, 404),
        ("DELETE", "/topics/orders", 405, 405),
        ("PUT", "/admin/topics", 405, 405),
    ],
)
async def test_what_is_not_there(served: Served, method: str, path: str, status: int, code: int) -> None:
    await create(served, "orders")
    reply = await served.request(method, path)
    assert error_of(reply)[:2] == (status, code), reply.text
    if status == 405:
        assert reply.headers["allow"]


async def test_the_life_of_a_topic(served: Served) -> None:
    body = {"topic_name": "orders", "partitions_count": 2, "replication_factor": 3, "config": {"retention.ms": 1000}}
    created = await served.post("/admin/topics", json=body)
    assert created.status_code == 201
    assert [each["high_watermark"] for each in created.json()["partitions"]] == [0, 0]
    assert error_of(await served.post("/admin/topics", json=body))[:2] == (409, 409)

    await send(served, "orders", "a", "b", "c")
    listed = (await served.get("/admin/topics")).json()
    assert listed == [{"name": "orders", "internal": False, "partitions": 2, "records": 3, "bytes": listed[0]["bytes"]}]
    assert listed[0]["bytes"] > 0
    described = (await served.get("/admin/topics/orders")).json()
    assert (described["name"], described["internal"]) == ("orders", False)
    assert sum(each["high_watermark"] for each in described["partitions"]) == 3
    assert sum(each["segments"] for each in described["partitions"]) == 1
    assert described["topic_id"] == created.json()["topic_id"]

    grown = await served.post("/admin/topics/orders/partitions", json={"partitions_count": 4})
    assert len(grown.json()["partitions"]) == 4
    for fewer in (3, 4):
        reply = await served.post("/admin/topics/orders/partitions", json={"partitions_count": fewer})
        assert error_of(reply)[:2] == (422, 422)

    full = (await ends(served, "orders", 4)).index(3)
    reply = await served.post("/admin/topics/orders/delete-records", json={"offsets": {str(full): 2}})
    assert reply.json() == {"log_start_offsets": {str(full): 2}}
    assert [each["value"] for each in (await served.get("/topics/orders/records")).json()] == ["c"]
    reply = await served.post("/admin/topics/orders/delete-records", json={"offsets": {str(full): -1}})
    assert reply.json() == {"log_start_offsets": {str(full): 3}}

    assert (await served.delete("/admin/topics/orders")).status_code == 204
    assert (await served.get("/topics")).json() == []
    assert error_of(await served.get("/topics/orders/records"))[:2] == (404, 40401)
    await create(served, "orders")
    assert await ends(served, "orders") == [0]


async def test_configuration(served: Served) -> None:
    await create(served, "orders", 1, **{"retention.ms": "1000", "segment.ms": "5"})

    async def changed() -> dict[str, str]:
        entries = (await served.get("/admin/topics/orders/configs")).json()
        assert all(set(each) == {"name", "value", "default", "is_default", "type", "doc"} for each in entries)
        return {each["name"]: each["value"] for each in entries if not each["is_default"]}

    assert await changed() == {"retention.ms": "1000", "segment.ms": "5"}
    change = {"set": {"retention.ms": -1, "cleanup.policy": "compact"}, "unset": ["segment.ms"]}
    assert (await served.patch("/admin/topics/orders/configs", json=change)).status_code == 200
    assert await changed() == {"retention.ms": "-1", "cleanup.policy": "compact"}
    refused = {"set": {"retention.ms": 5, "segment.bytes": "many"}}
    assert error_of(await served.patch("/admin/topics/orders/configs", json=refused))[:2] == (422, 422)
    assert (await changed())["retention.ms"] == "-1", "all of a change or nothing"
    # A compacted topic wants keys.
    reply = await served.post("/topics/orders", json={"records": [{"value": 1}]})
    assert error_of(reply)[:2] == (422, 422)


CREATE, CHANGE = ("POST", "/admin/topics"), ("PATCH", "/admin/topics/orders/configs")
GROW, EMPTY = ("POST", "/admin/topics/orders/partitions"), ("POST", "/admin/topics/orders/delete-records")


@pytest.mark.parametrize(
    ("to", "body", "status", "words"),
    [
        (CREATE, b"{", 400, "not JSON"),
        (CREATE, b"\xff", 400, "not JSON"),
        (CREATE, b"[]", 422, "body"),
        (CREATE, b"{}", 422, "topic_name"),
        (CREATE, b'{"topic_name": "a b"}', 422, "ASCII"),
        (CREATE, b'{"topic_name": "\\ud800"}', 422, "ASCII"),
        (CREATE, b'{"topic_name": "x", "partitions": 1}', 422, "partitions"),
        (CREATE, b'{"topic_name": "x", "partitions_count": 0}', 422, "partitions_count"),
        (CREATE, b'{"topic_name": "x", "partitions_count": 1001}', 422, "1000"),
        (CREATE, b'{"topic_name": "x", "config": {"retention": 1}}', 422, "retention.ms"),
        (CREATE, b'{"topic_name": "x", "config": {"retention.ms": "soon"}}', 422, "whole number"),
        (CREATE, b'{"topic_name": "x", "config": {"retention.ms": NaN}}', 422, "retention.ms"),
        (CREATE, b'{"topic_name": "x", "config": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "nested too deep"),
        (CHANGE, b'{"set": {"a": "b"}}', 422, "'a'"),
        (CHANGE, b'{"unset": ["a"]}', 422, "'a'"),
        (CHANGE, b'{"set": {"segment.ms": 1}, "unset": ["segment.ms"]}', 422, "set and unset"),
        (GROW, b'{"partitions_count": "many"}', 422, "partitions_count"),
        (GROW, b'{"partitions_count": 99999999999}', 422, "partitions_count"),
        (EMPTY, b'{"offsets": {}}', 422, "offsets"),
        (EMPTY, b'{"offsets": {"zero": 1}}', 422, "offsets"),
        (EMPTY, b'{"offsets": {"0": -2}}', 422, "offsets"),
        (EMPTY, b'{"offsets": {"0": 9}}', 416, "0 to 0"),
        (EMPTY, b'{"offsets": {"4": 0}}', 404, "partition 4"),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_administration_that_is_refused(
    served: Served, to: tuple[str, str], body: bytes, status: int, words: str
) -> None:
    await create(served, "orders")
    before = (await served.get("/admin/topics/orders")).json()
    reply = await served.request(to[0], to[1], content=body, headers={"Content-Type": JSON})
    assert error_of(reply)[0] == status, reply.text
    assert words in error_of(reply)[2]
    assert (await served.get("/admin/topics/orders")).json() == before
    assert (await served.get("/topics")).json() == ["orders"]


async def test_names_that_are_one_in_metrics_collide(served: Served) -> None:
    await create(served, "a.b")
    reply = await served.post("/admin/topics", json={"topic_name": "a_b"})
    assert error_of(reply)[:2] == (422, 422)


async def test_a_body_of_administration_has_the_limits_of_every_body(open_gateway: OpenGateway) -> None:
    async with open_gateway(body_bytes_max="1000") as client:
        large = json.dumps({"topic_name": "x", "config": {"a": "b" * 1000}}).encode()
        for body, headers in ((large, {}), (gzip.compress(large), {"Content-Encoding": "gzip"})):
            reply = await client.post("/admin/topics", content=body, headers={"Content-Type": JSON, **headers})
            assert error_of(reply)[:2] == (413, 413)
        packed = gzip.compress(b'{"topic_name": "x"}')
        headers = {"Content-Type": JSON, "Content-Encoding": "gzip"}
        assert (await client.post("/admin/topics", content=packed, headers=headers)).status_code == 201
        assert client.gateway.bodies.room.bytes == 0
