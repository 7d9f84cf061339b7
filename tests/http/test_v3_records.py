"""Produce by v3: records one after the other in one request, a report for each, and batches."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from lakelog_cli.local_gateway import LocalGateway
from tests.http.conftest import OpenGateway, Served
from tests.http.requests import JSON, b64, create, error_of, stored

RECORDS = "/v3/clusters/lakelog/topics/orders/records"
AS_JSON = {"Content-Type": JSON}


def value(data: Any, form: str = "JSON", **fields: Any) -> dict[str, Any]:
    return {"value": {"type": form, "data": data}, **fields}


async def reports_of(served: Served, body: bytes, **headers: str) -> list[dict[str, Any]]:
    reply = await served.post(RECORDS, content=body, headers={**AS_JSON, **headers})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == JSON
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_a_report_for_each_record_in_order(served: Served) -> None:
    await create(served, "orders", 2)
    sent = [
        value({"a": "}{"}, partition_id=1),
        {"key": {"type": "STRING", "data": "ké"}, "value": {"type": "BINARY", "data": b64(b"\x00\xff")}}
        | {"partition_id": 0, "timestamp": "2021-02-05T19:14:42Z", "headers": [{"name": "h", "value": b64(b"v")}]},
        {"key": {"type": "JSON", "data": 1}, "value": None, "partition_id": 1},
    ]
    reports = await reports_of(served, "".join(map(json.dumps, sent)).encode())
    assert [(each["error_code"], each["partition_id"], each["offset"]) for each in reports] == [
        (200, 1, 0),
        (200, 0, 0),
        (200, 1, 1),
    ]
    assert reports[1] == {
        "error_code": 200,
        "cluster_id": "lakelog",
        "topic_name": "orders",
        "partition_id": 0,
        "offset": 0,
        "timestamp": "2021-02-05T19:14:42.000Z",
        "key": {"type": "STRING", "size": 3},
        "value": {"type": "BINARY", "size": 2},
    }
    assert (reports[0]["key"], reports[2]["value"]) == (None, None)
    assert await stored(served, "orders") == [
        (0, "ké".encode(), b"\x00\xff", [("h", b"v")]),
        (1, None, b'{"a": "}{"}', []),
        (1, b"1", None, []),
    ]


async def test_a_bad_record_is_refused_alone(served: Served) -> None:
    await create(served, "orders", 1, **{"max.message.bytes": "100"})
    sent = [
        (value(1), 200),
        (value("x" * 200), 413),
        (value(2, partition_id=1), 40403),
        (value(3, partition_id=-1), 40403),
        (value(4, form="AVRO"), 422),
        ({"value": {"data": 5}}, 422),
        ({"value": {"type": "JSON", "data": 5, "schema_id": 1}}, 422),
        (value(6, form="STRING"), 422),
        (value("?", form="BINARY"), 422),
        (value(7, timestamp="yesterday"), 422),
        (value(7, timestamp="1969-01-01T00:00:00Z"), 422),
        (value(7, timestamp="3000-01-01T00:00:00Z"), 422),
        (value(8, colour="red"), 422),
        (value(9), 200),
    ]
    reports = await reports_of(served, "\n".join(json.dumps(record) for record, _ in sent).encode())
    assert [each["error_code"] for each in reports] == [code for _, code in sent], reports
    assert all(set(each) == {"error_code", "message"} for each in reports if each["error_code"] != 200)
    assert reports[2]["message"].startswith("the record names a partition"), "which one is said by its place"
    assert [each[2] for each in await stored(served, "orders")] == [b"1", b"9"]


async def test_json_that_is_not_utf_8_is_refused_alone(served: Served) -> None:
    await create(served, "orders", 1)
    bad = b'{"key": {"type": "JSON", "data": "\xff"}, "value": {"type": "JSON", "data": 1}}'
    reports = await reports_of(served, bad + json.dumps(value(2)).encode())
    assert [each["error_code"] for each in reports] == [400, 200]
    assert "key.data" in reports[0]["message"]
    assert [each[2] for each in await stored(served, "orders")] == [b"2"]


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        (b"", 422, 42206, "no record"),
        (b"  \n", 422, 42206, "no record"),
        (b"[1]", 400, 400, "JSON objects"),
        (b'{"value', 400, 400, "middle of a record"),
        (b"'{}'", 400, 400, "JSON objects"),
    ],
)
async def test_a_body_without_records_is_an_ordinary_error(
    served: Served, body: bytes, status: int, code: int, words: str
) -> None:
    await create(served, "orders")
    reply = await served.post(RECORDS, content=body, headers=AS_JSON)
    assert error_of(reply)[:2] == (status, code), reply.text
    assert words in error_of(reply)[2]
    assert served.gateway.bodies.room.bytes == 0


async def test_what_can_not_be_read_further_on_is_the_last_report(served: Served) -> None:
    await create(served, "orders")
    reports = await reports_of(served, json.dumps(value(1)).encode() + b" oops " + json.dumps(value(2)).encode())
    assert [each["error_code"] for each in reports] == [200, 400]
    assert "oops" in reports[1]["message"]
    assert len(await stored(served, "orders")) == 1
    assert served.gateway.bodies.room.bytes == 0


async def test_compressed_and_other_bodies(served: Served) -> None:
    await create(served, "orders")
    text = json.dumps(value(1)).encode() * 3
    assert len(await reports_of(served, gzip.compress(text), **{"Content-Encoding": "gzip"})) == 3
    for headers in ({"Content-Type": "text/plain"}, {}, {**AS_JSON, "Content-Encoding": "br"}):
        assert error_of(await served.post(RECORDS, content=text, headers=headers))[0] == 415
    assert error_of(await served.post(RECORDS.replace("lakelog", "x"), content=text, headers=AS_JSON))[0] == 404


async def test_topics_are_created_by_their_first_record_if_so_set(open_gateway: OpenGateway) -> None:
    record = json.dumps(value(1)).encode()
    async with open_gateway(auto_create_topics_enable="false") as client:
        (report,) = await reports_of(client, record)
        assert report["error_code"] == 40403
    async with open_gateway() as client:
        assert (await reports_of(client, record))[0]["offset"] == 0


async def test_a_record_has_the_limit_of_every_body(open_gateway: OpenGateway) -> None:
    async with open_gateway(body_bytes_max="1000") as client:
        await create(client, "orders")
        small = json.dumps(value("x" * 500)).encode()
        assert len(await reports_of(client, small * 5)) == 5, "the row of them may be longer"
        large = json.dumps(value("x" * 2000)).encode()
        assert error_of(await client.post(RECORDS, content=large, headers=AS_JSON))[0] == 413
        assert client.gateway.bodies.room.bytes == 0


async def test_a_record_that_does_not_become_whole_is_waited_for_so_long(open_gateway: OpenGateway) -> None:
    whole, silent = json.dumps(value("x" * 500)).encode(), asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield whole + whole[:300]
        await silent.wait()

    async with open_gateway(body_timeout_ms="50") as client:
        await create(client, "orders")
        reply = await client.post(RECORDS, content=half(), headers=AS_JSON)
        reports = [json.loads(line) for line in reply.text.replace("}{", "}\n{").splitlines()]
        assert [each["error_code"] for each in reports] == [200, 408]
        assert client.gateway.bodies.room.bytes == 0


async def test_reports_come_while_records_are_sent(shared_process: LocalGateway) -> None:
    """The sender waits for the report of each record before it sends the next one, all in one request."""
    address = urlsplit(shared_process.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    path = "/v3/clusters/lakelog/topics/streamed/records"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())

    async def chunk() -> bytes:
        size = int(await reader.readline(), 16)
        return (await reader.readexactly(size + 2))[:-2]

    for number in range(3):
        text = json.dumps(value(number)).encode()
        for piece in (text[:9], text[9:]):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if number == 0:
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert json.loads(await chunk())["offset"] == number
    writer.write(b"0\r\n\r\n")
    assert await chunk() == b""
    writer.close()


async def test_a_batch(served: Served) -> None:
    await create(served, "orders")
    entries = [
        value(1, id="a"),
        value(2, id="b", partition_id=7),
        value(3, id="c", form="AVRO"),
        value(4, id="d"),
    ]
    reply = await served.post(f"{RECORDS}:batch", json={"entries": entries})
    assert reply.status_code == 207
    done, failed = reply.json()["successes"], reply.json()["failures"]
    assert [(each["id"], each["error_code"], each["offset"]) for each in done] == [("a", 200, 0), ("d", 200, 1)]
    assert [(each["id"], each["error_code"]) for each in failed] == [("b", 40403), ("c", 422)]
    assert [each[2] for each in await stored(served, "orders")] == [b"1", b"4"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, 400),
        (b"[]", 422, 422),
        (b"{}", 422, 42208),
        (b'{"records": []}', 422, 422),
        (b'{"entries": []}', 422, 42208),
        (b'{"entries": [{}]}', 422, 422),
        (b'{"entries": [{"id": ""}]}', 422, 422),
        (b'{"entries": [{"id": "%s"}]}' % (b"x" * 81), 422, 422),
        (b'{"entries": [{"id": "a"}, {"id": "a"}]}', 422, 42208),
        (b'{"entries": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}', 422, 42208),
    ],
)
async def test_a_batch_that_is_refused_whole(open_gateway: OpenGateway, body: bytes, status: int, code: int) -> None:
    async with open_gateway(request_records_max="2") as client:
        await create(client, "orders")
        reply = await client.post(f"{RECORDS}:batch", content=body, headers=AS_JSON)
        assert error_of(reply)[:2] == (status, code), reply.text
        assert await stored(client, "orders") == []
