"""Consumers over HTTP, one at a time: paths, shapes and refusals are REST Proxy v2's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.http.conftest import OpenGateway, Served
from tests.http.consumers import ConsumerOf, consumer, place
from tests.http.requests import ARROW, BINARY, JSON, JSON_V2, TEXT, V2, b64, create, error_of, produce, send

GROUP = "/consumers/readers"


async def _to(client: Served, topic: str, partition: int, *values: Any) -> None:
    body = json.dumps({"records": [{"value": value} for value in values]}).encode()
    assert (await produce(client, f"/topics/{topic}/partitions/{partition}", body)).status_code == 200


# Making one, and its end.


async def test_a_consumer_is_made_with_a_name_and_an_address(served: Served) -> None:
    reply = await served.post(GROUP, json={"name": "one"}, headers={"Content-Type": V2})
    assert (reply.status_code, reply.headers["content-type"]) == (200, V2)
    assert reply.json() == {"instance_id": "one", "base_uri": f"{served.base_url}/consumers/readers/instances/one"}
    drawn = (await served.post(GROUP)).json()
    assert drawn["instance_id"] not in ("one", "")
    assert drawn["base_uri"].endswith(drawn["instance_id"])
    assert (await served.post(GROUP, json={"id": "two", "name": "three"})).json()["instance_id"] == "two"


async def test_its_address_begins_with_the_public_url(open_gateway: OpenGateway) -> None:
    async with open_gateway(public_url="https://streams.example.com") as client:
        made = (await client.post(GROUP, json={"name": "one"})).json()
    assert made["base_uri"] == "https://streams.example.com/consumers/readers/instances/one"


async def test_a_name_is_taken_once_in_a_group(served: Served) -> None:
    await served.post(GROUP, json={"name": "one"})
    assert error_of(await served.post(GROUP, json={"name": "one"}))[:2] == (409, 40902)
    assert (await served.post("/consumers/others", json={"name": "one"})).status_code == 200
    await served.delete(f"{GROUP}/instances/one")
    assert (await served.post(GROUP, json={"name": "one"})).status_code == 200


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"format": "avro"}, 422),
        ({"auto.offset.reset": "middle"}, 42204),
        ({"auto.commit.enable": "perhaps"}, 42204),
        ({"consumer.request.timeout.ms": -1}, 42204),
        ({"session.timeout.ms": 0}, 42204),
        ({"name": "a/b"}, 42204),
        ({"name": ""}, 42204),
        ({"fetch.min.bytes": 10_000_001}, 40001),
        ({"fetch.min.bytes": -2}, 40001),
        ({"maxWindowSize": "1"}, 422),
        ({"fetch.min.bytes": "many"}, 422),
    ],
)
async def test_options_that_are_refused(served: Served, options: dict[str, Any], code: int) -> None:
    assert error_of(await served.post(GROUP, json=options))[:2] == (422, code)
    assert len(served.gateway.consumers) == 0


async def test_numbers_and_switches_may_come_as_text(served: Served) -> None:
    options = {"fetch.min.bytes": "100", "consumer.request.timeout.ms": "500", "auto.commit.enable": "FALSE"}
    assert (await served.post(GROUP, json=options)).status_code == 200


@pytest.mark.parametrize(
    ("method", "what", "body"),
    [
        ("DELETE", "", None),
        ("GET", "/records", None),
        ("GET", "/subscription", None),
        ("POST", "/subscription", {"topics": ["a"]}),
        ("DELETE", "/subscription", None),
        ("GET", "/assignments", None),
        ("POST", "/assignments", {"partitions": []}),
        ("GET", "/offsets", {"partitions": []}),
        ("POST", "/offsets", {"offsets": []}),
        ("POST", "/positions", {"offsets": []}),
        ("POST", "/positions/beginning", {"partitions": []}),
        ("POST", "/positions/end", {"partitions": []}),
    ],
)
async def test_there_is_no_such_consumer(served: Served, method: str, what: str, body: Any) -> None:
    missing = ConsumerOf(served, f"{GROUP}/instances/nobody")
    assert error_of(await missing.request(method, what, body))[:2] == (404, 40403)
    one = await consumer(served)
    await one.delete()
    assert error_of(await one.request(method, what, body))[:2] == (404, 40403)


async def test_there_is_a_most_of_consumers(open_gateway: OpenGateway) -> None:
    async with open_gateway(consumers_max="2") as client:
        one, _ = await consumer(client), await consumer(client)
        assert error_of(await client.post(GROUP))[:2] == (429, 429)
        await one.delete()
        assert (await client.post(GROUP)).status_code == 200


async def test_an_idle_consumer_is_let_go_of_and_a_waiting_one_is_not(open_gateway: OpenGateway) -> None:
    async with open_gateway(consumer_instance_timeout_ms="200") as client:
        await create(client, "orders")
        idle, waiting = await consumer(client), await consumer(client)
        await idle.subscribe("orders")
        await waiting.subscribe("orders")
        assert await idle.assigned() == [("orders", 0)]
        await send(client, "orders", 1)
        assert await waiting.values("timeout=60000") == [1], "when the other is gone"
        assert error_of(await idle.request("GET", "/records"))[:2] == (404, 40403)


async def test_a_poll_ends_when_its_consumer_is_deleted(served: Served) -> None:
    await create(served, "orders")
    one = await consumer(served)
    await one.subscribe("orders")
    polling = asyncio.create_task(one.request("GET", "/records?timeout=30000"))
    await one.assigned()
    await one.delete()
    assert error_of(await polling)[:2] == (404, 40403)


# Polls.


async def test_the_first_poll_has_the_records(served: Served) -> None:
    await send(served, "orders", {"a": 1}, None)
    one = await consumer(served)
    await one.subscribe("orders")
    first, second = await one.poll("")
    assert first == place("orders", 0, offset=0, key=None, value={"a": 1}, timestamp=first["timestamp"])
    assert second["value"] is None
    assert await one.poll() == []


async def test_records_have_their_headers(served: Served) -> None:
    record = {"value": 1, "key": "k", "headers": [{"key": "unit", "value": b64(b"C")}]}
    await produce(served, "/topics/orders", json.dumps({"records": [record]}).encode())
    one = await consumer(served)
    await one.subscribe("orders")
    (found,) = await one.poll()
    assert (found["key"], found["headers"]) == ("k", [{"key": "unit", "value": b64(b"C")}])


async def test_a_poll_that_waits_returns_with_the_first_record(served: Served) -> None:
    await create(served, "orders", 2)
    one = await consumer(served)
    await one.subscribe("orders")
    polling = asyncio.create_task(one.values("timeout=60000"))
    await one.assigned()
    await send(served, "orders", "x")
    assert await asyncio.wait_for(polling, 30) == ["x"]


async def test_a_poll_waits_for_as_much_as_the_consumer_wants(served: Served) -> None:
    await create(served, "orders")
    one = await consumer(served, fetch_min_bytes=300)
    await one.subscribe("orders")
    await send(served, "orders", "x" * 100)
    polling = asyncio.create_task(one.values("timeout=60000"))
    await one.assigned()
    await send(served, "orders", "y" * 100)
    await send(served, "orders", "z" * 200)
    assert [value[0] for value in await asyncio.wait_for(polling, 30)] == ["x", "y", "z"]
    await send(served, "orders", "w")
    assert await one.values() == ["w"], "and no longer than it says"


async def test_how_long_a_poll_waits(served: Served) -> None:
    await create(served, "orders")
    patient = await consumer(served, consumer_request_timeout_ms=60_000)
    hasty = await consumer(served, group="hasty", consumer_request_timeout_ms=0)
    for each, query in ((patient, "timeout=0"), (patient, "timeout=5"), (hasty, "timeout=60000"), (hasty, "")):
        await each.subscribe("orders")
        assert await asyncio.wait_for(each.poll(query), 30) == []


async def test_a_body_that_nobody_asked_for_holds_up_no_poll(served: Served) -> None:
    await create(served, "orders")
    reader = await consumer(served, "one")
    await reader.subscribe("orders")
    path, headers = f"{reader.path}/records?timeout=60000", {"Accept": JSON_V2}
    waiting = asyncio.ensure_future(served.request("GET", path, content=b"{}", headers=headers))
    assert (await served.get("/healthy")).status_code == 204, "it waits without holding up the others"
    await send(served, "orders", "a")
    assert [each["value"] for each in (await waiting).json()] == ["a"]


async def test_a_poll_has_so_many_bytes_and_records(served: Served) -> None:
    await send(served, "orders", *range(10))
    one = await consumer(served)
    await one.subscribe("orders")
    assert await one.values("max_bytes=1") == [0], "one at least"
    assert await one.values("max_bytes=40") == [1, 2]
    assert await one.values("max_records=3") == [3, 4, 5]
    assert await one.values("max_bytes=-1") == [6, 7, 8, 9]


async def test_partitions_take_turns(served: Served) -> None:
    await create(served, "orders", 3)
    for partition in range(3):
        await _to(served, "orders", partition, *[f"{partition}-{number}" for number in range(4)])
    one = await consumer(served)
    await one.subscribe("orders")
    firsts = [(await one.values("max_records=2"))[0][0] for _ in range(6)]
    assert sorted(firsts[:3]) == sorted(firsts[3:]) == ["0", "1", "2"]


async def test_two_polls_at_once_share_the_records(served: Served) -> None:
    await create(served, "orders")
    one = await consumer(served)
    await one.subscribe("orders")
    polls = [asyncio.create_task(one.values("timeout=60000&max_records=1")) for _ in range(2)]
    await one.assigned()
    await send(served, "orders", 1, 2)
    assert sorted(await asyncio.gather(*polls)) == [[1], [2]]


async def test_a_poll_that_is_sent_again_has_the_same_records(served: Served) -> None:
    await send(served, "orders", *range(4))
    one = await consumer(served, auto_commit_enable="true", auto_commit_interval_ms=0)
    await one.subscribe("orders")
    assert await one.values("max_records=2", Lakelog_Poll="1") == [0, 1]
    assert await one.values("max_records=2", Lakelog_Poll="1") == [0, 1]
    assert await one.committed() == {("orders", 0): 0}, "who asks again did not get them"
    assert await one.values("max_records=2", Lakelog_Poll="2") == [2, 3]
    assert await one.committed() == {("orders", 0): 2}


async def test_a_consumer_without_topics_has_nothing_to_poll(served: Served) -> None:
    one = await consumer(served)
    assert error_of(await one.request("GET", "/records"))[:2] == (409, 40903)


# Formats.


async def test_every_format(served: Served) -> None:
    await produce(
        served, "/topics/orders", json.dumps({"records": [{"value": b64(b'"x"'), "key": None}]}).encode(), BINARY
    )
    for format, accept, value in (
        ("binary", BINARY, b64(b'"x"')),
        ("json", JSON_V2, "x"),
        ("text", TEXT, '"x"'),
        ("json", JSON, "x"),
        ("json", V2, "x"),
        ("binary", V2, b64(b'"x"')),
        ("text", "*/*", '"x"'),
    ):
        one = await consumer(served, group=f"{format}-{hash(accept)}", format=format)
        await one.subscribe("orders")
        reply = await one.request("GET", "/records", Accept=accept)
        assert [record["value"] for record in reply.json()] == [value]
        assert reply.headers["content-type"] == (accept if accept != "*/*" else TEXT)


@pytest.mark.parametrize("format", ["arrow", "json"])
async def test_arrow(served: Served, format: str) -> None:
    await send(served, "orders", 1, 2)
    await send(served, "refunds", 3)
    one = await consumer(served, format=format)
    await one.subscribe("orders", "refunds", "missing")
    accept = "*/*" if format == "arrow" else ARROW
    reply = await one.request("GET", "/records", Accept=accept)
    assert reply.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(reply.content).read_all()
    assert table.column_names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    rows = zip(*(table.column(name).to_pylist() for name in ("topic", "offset", "value")), strict=True)
    assert sorted(rows) == [("orders", 0, b"1"), ("orders", 1, b"2"), ("refunds", 0, b"3")]
    empty = await one.request("GET", "/records?timeout=0", Accept=accept)
    assert pa.ipc.open_stream(empty.content).read_all().schema == table.schema


async def test_a_format_that_the_consumer_does_not_read(served: Served) -> None:
    for format, accept in (("json", BINARY), ("binary", TEXT), ("arrow", JSON_V2), ("arrow", JSON)):
        one = await consumer(served, format=format)
        assert error_of(await one.request("GET", "/records", Accept=accept))[:2] == (406, 40601)
    assert error_of(await one.request("GET", "/records", Accept="image/png"))[:2] == (406, 406)


async def test_a_record_that_the_format_can_not_write_is_not_passed_over(served: Served) -> None:
    await produce(served, "/topics/orders", json.dumps({"records": [{"value": b64(b"\xff")}]}).encode(), BINARY)
    one = await consumer(served)
    await one.subscribe("orders")
    for _ in range(2):
        status, _, message = error_of(await one.request("GET", "/records"))
        assert (status, "offset 0" in message) == (406, True)
    reply = await one.request("GET", "/records", Accept=ARROW)
    assert pa.ipc.open_stream(reply.content).read_all().column("value").to_pylist() == [b"\xff"]


# What it reads.


async def test_a_subscription(served: Served) -> None:
    for name in ("orders", "orders-eu", "refunds"):
        await send(served, name, name)
    one = await consumer(served)
    assert (await one.done("GET", "/subscription")).json() == {"topics": []}
    await one.subscribe("orders", "refunds")
    assert (await one.done("GET", "/subscription")).json() == {"topics": ["orders", "refunds"]}
    await one.subscribe("refunds")
    assert await one.assigned() == [("refunds", 0)]
    await one.done("DELETE", "/subscription")
    assert (await one.done("GET", "/subscription")).json() == {"topics": []}
    await one.done("POST", "/subscription", {"topic_pattern": "orders.*"})
    assert (await one.done("GET", "/subscription")).json() == {"topics": ["orders", "orders-eu"]}
    assert sorted(await one.values()) == ["orders", "orders-eu"]
    await send(served, "orders-us", "new")
    assert await one.values("timeout=30000") == ["new"], "a topic that fits and comes later is read too"
    await one.subscribe()
    assert await one.assigned() == []


async def test_a_topic_that_comes_later_is_read(served: Served) -> None:
    one = await consumer(served)
    await one.subscribe("orders")
    polling = asyncio.create_task(one.values("timeout=60000"))
    await one.assigned()
    await send(served, "orders", 1)
    assert await asyncio.wait_for(polling, 30) == [1]


@pytest.mark.parametrize("what", ["/subscription", "/assignments"])
async def test_a_poll_that_waits_reads_what_it_is_told_to_read_meanwhile(served: Served, what: str) -> None:
    await create(served, "orders")
    await send(served, "refunds", 1)
    bodies = [
        {"topics": [name]} if what == "/subscription" else {"partitions": [place(name, 0)]}
        for name in ("orders", "refunds")
    ]
    one = await consumer(served)
    await one.done("POST", what, bodies[0])
    polling = asyncio.create_task(one.values("timeout=60000"))
    await one.assigned()
    await one.done("POST", what, bodies[1])
    assert await asyncio.wait_for(polling, 30) == [1]
    refused = asyncio.create_task(one.request("GET", "/records?timeout=60000"))
    await one.assigned()
    await one.done("DELETE", "/subscription")
    assert error_of(await asyncio.wait_for(refused, 30))[:2] == (409, 40903)


async def test_partitions_that_are_added_are_read(served: Served) -> None:
    await create(served, "orders")
    one = await consumer(served)
    await one.subscribe("orders")
    assert await one.poll() == []
    await served.post("/admin/topics/orders/partitions", json={"partitions_count": 3})
    await _to(served, "orders", 2, "x")
    assert await one.values("timeout=30000") == ["x"]


@pytest.mark.parametrize("auto_commit", ["false", "true"])
async def test_a_topic_that_is_deleted_is_not_missed(served: Served, auto_commit: str) -> None:
    await send(served, "orders", 1)
    await send(served, "refunds", 2)
    one = await consumer(served, auto_commit_enable=auto_commit, auto_commit_interval_ms=0)
    await one.subscribe("orders", "refunds")
    assert sorted(await one.values()) == [1, 2]
    await served.delete("/admin/topics/orders")
    await send(served, "refunds", 3)
    assert await one.values() == [3]
    await send(served, "orders", 4)
    assert await one.values("timeout=30000") == [4]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": None},
        {"topics": ["a"], "topic_pattern": "b"},
        {"topic_pattern": "("},
        {"topics": ["no/name"]},
        {"topics": [""]},
        {"topics": "orders"},
        {"topics": ["a"], "more": 1},
    ],
)
async def test_subscriptions_that_are_refused(served: Served, body: Any) -> None:
    one = await consumer(served)
    assert error_of(await one.request("POST", "/subscription", body))[0] == 422
    assert (await one.done("GET", "/subscription")).json() == {"topics": []}


async def test_topics_patterns_and_partitions_exclude_each_other(served: Served) -> None:
    await create(served, "orders")
    kinds: list[tuple[str, Any]] = [
        ("/subscription", {"topics": ["orders"]}),
        ("/subscription", {"topic_pattern": "o.*"}),
        ("/assignments", {"partitions": [place("orders", 0)]}),
    ]
    for what, body in kinds:
        one = await consumer(served, group=f"{what[1:]}-{len(str(body))}")
        await one.done("POST", what, body)
        for other in kinds:
            reply = await one.request("POST", *other)
            if other == (what, body):
                assert reply.status_code == 204
            else:
                assert error_of(reply)[:2] == (409, 40903)
        await one.done("DELETE", "/subscription")
        assert await one.assigned() == []


async def test_an_assignment_is_read_whoever_else_does(served: Served) -> None:
    await create(served, "orders", 2)
    await _to(served, "orders", 0, "a")
    await _to(served, "orders", 1, "b")
    one, other = await consumer(served), await consumer(served)
    for each in (one, other):
        await each.done("POST", "/assignments", {"partitions": [place("orders", 1)]})
        assert await each.assigned() == [("orders", 1)]
        assert await each.values() == ["b"]
    await one.done("POST", "/offsets")
    assert await other.committed(("orders", 1)) == {("orders", 1): 1}
    assert error_of(await one.request("POST", "/assignments", {"partitions": [place("gone", 0)]}))[:2] == (404, 40401)
    assert error_of(await one.request("POST", "/assignments", {"partitions": [place("orders", 2)]}))[:2] == (404, 40402)
    assert await one.assigned() == [("orders", 1)]


# Where it stands.


async def test_a_position_before_the_first_poll_is_where_it_begins(served: Served) -> None:
    await send(served, "orders", 0, 1, 2)
    one = await consumer(served)
    await one.subscribe("orders")
    await one.done("POST", "/positions", {"offsets": [place("orders", 0, offset=2)]})
    assert await one.values() == [2]


async def test_positions(served: Served) -> None:
    await create(served, "orders", 2)
    body = [{"value": n, "timestamp": 10**12 + n} for n in range(5)]
    await produce(served, "/topics/orders/partitions/0", json.dumps({"records": body}).encode())
    await _to(served, "orders", 1, "x")
    one = await consumer(served)
    await one.subscribe("orders")
    await one.poll()
    both = {"partitions": [place("orders", 0), place("orders", 1)]}
    assert (await one.done("POST", "/positions/beginning", both)).status_code == 204
    assert sorted(map(str, await one.values())) == ["0", "1", "2", "3", "4", "x"]
    assert (await one.done("POST", "/positions", {"offsets": [place("orders", 0, offset=3)]})).status_code == 204
    assert await one.values() == [3, 4]
    assert (await one.done("POST", "/positions/beginning", both)).status_code == 204
    assert (await one.done("POST", "/positions/end", both)).status_code == 204
    assert await one.poll() == []
    for time in (10**12 + 2, "2001-09-09T01:46:40.002Z"):
        await one.done("POST", "/positions", {"timestamps": [place("orders", 0, timestamp=time)]})
        assert await one.values() == [2, 3, 4]


async def test_a_position_in_what_is_not_assigned(served: Served) -> None:
    await send(served, "orders", 1)
    one = await consumer(served)
    for what, body in (
        ("/positions", {"offsets": [place("orders", 0, offset=0)]}),
        ("/positions/beginning", {"partitions": [place("orders", 0)]}),
        ("/positions/end", {"partitions": [place("orders", 0)]}),
    ):
        assert error_of(await one.request("POST", what, body))[:2] == (409, 40903)
    assert error_of(await one.request("POST", "/positions", {"offsets": [place("orders", 0, offset=-1)]}))[0] == 422


@pytest.mark.parametrize(("reset", "values"), [("earliest", [0, 1, 2]), ("latest", []), ("none", None)])
async def test_where_a_group_without_offsets_begins(served: Served, reset: str, values: list[int] | None) -> None:
    await send(served, "orders", *range(3))
    one = await consumer(served, auto_offset_reset=reset)
    await one.subscribe("orders")
    reply = await one.request("GET", "/records?timeout=0")
    if values is None:
        assert error_of(reply)[:2] == (416, 416)
        await one.done("POST", "/positions", {"offsets": [place("orders", 0, offset=1)]})
        assert await one.values() == [1, 2]
    else:
        assert [record["value"] for record in reply.json()] == values


@pytest.mark.parametrize(("reset", "values"), [("earliest", [2, 3]), ("latest", []), ("none", None)])
async def test_an_offset_that_is_gone(served: Served, reset: str, values: list[int] | None) -> None:
    await send(served, "orders", *range(4))
    one = await consumer(served, auto_offset_reset=reset)
    await one.subscribe("orders")
    await one.done("POST", "/positions", {"offsets": [place("orders", 0, offset=0)]})
    await served.post("/admin/topics/orders/delete-records", json={"offsets": {"0": 2}})
    reply = await one.request("GET", "/records?timeout=0")
    if values is None:
        assert error_of(reply)[0] == 416
    else:
        assert [record["value"] for record in reply.json()] == values


# What it commits.


async def test_a_commit_names_the_last_record_that_was_read(served: Served) -> None:
    await send(served, "orders", *range(4))
    one = await consumer(served)
    await one.subscribe("orders")
    await one.poll()
    reply = await one.done("POST", "/offsets", {"offsets": [place("orders", 0, offset=1, metadata="half")]})
    assert (reply.status_code, reply.json()) == (200, [])
    reply = await one.done("GET", "/offsets", {"partitions": [place("orders", 0), place("orders", 7)]})
    assert reply.json() == {"offsets": [place("orders", 0, offset=2, metadata="half")]}
    await one.delete()
    other = await consumer(served)
    await other.subscribe("orders")
    assert await other.values() == [2, 3]
    assert (await other.done("POST", "/offsets")).json() == []
    assert await other.committed() == {("orders", 0): 4}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"offsets": [place("gone", 0, offset=1)]}, 40401),
        ({"offsets": [place("orders", 9, offset=1)]}, 40402),
        ({"offsets": [place("orders", 0, offset=-1)]}, 422),
        ({"offsets": [place("orders", 0, offset=1, metadata="x" * 5000)]}, 422),
        ({"offsets": [{"topic": "orders"}]}, 422),
        ({}, 422),
    ],
)
async def test_commits_that_are_refused(served: Served, body: Any, code: int) -> None:
    await send(served, "orders", *range(4))
    one = await consumer(served)
    assert error_of(await one.request("POST", "/offsets", body))[1] == code
    assert await one.committed(("orders", 0)) == {}


async def test_of_a_commit_all_is_stored_or_nothing(served: Served) -> None:
    await create(served, "orders", 2)
    one = await consumer(served)
    offsets = [place("orders", 0, offset=1), place("orders", 1, offset=1, metadata="x" * 5000)]
    assert error_of(await one.request("POST", "/offsets", {"offsets": offsets}))[1] == 422
    assert await one.committed(("orders", 0)) == {}


async def test_a_commit_may_leave_out_what_is_gone(served: Served) -> None:
    await create(served, "orders")
    one = await consumer(served)
    offsets = [place("orders", 0, offset=1), place("orders", 9, offset=1), place("gone", 0, offset=1)]
    await one.done("POST", "/offsets?skip_missing=true", {"offsets": offsets})
    assert await one.committed(*((each["topic"], each["partition"]) for each in offsets)) == {("orders", 0): 2}


async def test_what_the_client_came_back_from_is_committed_by_itself(served: Served) -> None:
    await send(served, "orders", *range(6))
    one = await consumer(served, auto_commit_enable="true", auto_commit_interval_ms=0)
    await one.subscribe("orders")
    await one.poll("max_records=2")
    assert await one.committed() == {}
    await one.poll("max_records=2")
    assert await one.committed() == {("orders", 0): 2}
    await one.delete()
    other = await consumer(served)
    await other.subscribe("orders")
    assert await other.values() == [4, 5], "who deletes a consumer had its records"


async def test_records_that_nobody_came_back_from_are_delivered_again(open_gateway: OpenGateway) -> None:
    async with open_gateway(consumer_instance_timeout_ms="200") as client:
        await send(client, "orders", *range(6))
        one = await consumer(client, auto_commit_enable="true")
        await one.subscribe("orders")
        await one.poll("max_records=2")
        await one.poll("max_records=2")
        other = await consumer(client)
        await other.subscribe("orders")
        assert await other.values("timeout=60000") == [2, 3, 4, 5]


async def test_the_end_that_a_group_began_at_is_kept(served: Served) -> None:
    """A record that comes between two consumers is not skipped because the first one saw none."""
    await send(served, "orders", 1)
    one = await consumer(served, auto_offset_reset="latest", auto_commit_enable="true")
    await one.subscribe("orders")
    assert await one.poll() == []
    await one.delete()
    await send(served, "orders", 2)
    other = await consumer(served, auto_offset_reset="latest")
    await other.subscribe("orders")
    assert await other.values() == [2]


async def test_a_store_that_fails_is_retriable_and_skips_nothing(open_gateway: OpenGateway, tmp_path: Path) -> None:
    async with open_gateway(hot_tail_bytes_max="0", read_cache_bytes_max="0") as client:
        await send(client, "orders", 1)
        one = await consumer(client)
        await one.subscribe("orders")
        (segment,) = (tmp_path / "warehouse" / "orders").rglob("*.parquet")
        away = segment.rename(tmp_path / "away")
        reply = await one.request("GET", "/records")
        assert (error_of(reply)[:2], reply.headers["retry-after"]) == ((503, 50003), "1")
        away.rename(segment)
        assert await one.values() == [1]
