"""Fetch without a session: every form, every way to say where to begin, how much and how long."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa
import pytest

from tests.http.conftest import OpenGateway, Served
from tests.http.consumers import consumer
from tests.http.requests import ARROW, BINARY, JSON, JSON_V2, TEXT, b64, create, error_of, produce, records, send

TOPIC = "/topics/orders"
RECORDS = f"{TOPIC}/partitions/0/records"
TIME_MS = 1_700_000_000_000


async def _fill(client: Served, *values: Any, partition: int = 0) -> None:
    """Records with times a second apart."""
    body = {"records": [{"value": value, "timestamp": TIME_MS + 1000 * n} for n, value in enumerate(values)]}
    reply = await produce(client, f"{TOPIC}/partitions/{partition}", json.dumps(body).encode())
    assert reply.status_code == 200, reply.text


async def _until_somebody_waits(client: Served, readers: int = 1) -> None:
    while client.gateway.broker.fetch_path._waiting < readers:  # noqa: ASYNC110 - nobody tells of this
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("accept", "kind", "key", "value"),
    [
        (None, JSON, "k", {"a": [1]}),
        (JSON, JSON, "k", {"a": [1]}),
        ("*/*", JSON, "k", {"a": [1]}),
        (f"{BINARY};q=0.2, {TEXT};q=0.9", TEXT, '"k"', '{"a": [1]}'),
        (JSON_V2, JSON_V2, "k", {"a": [1]}),
        (TEXT, TEXT, '"k"', '{"a": [1]}'),
        (BINARY, BINARY, b64(b'"k"'), b64(b'{"a": [1]}')),
    ],
)
async def test_json_forms(served: Served, accept: str | None, kind: str, key: Any, value: Any) -> None:
    header = {"key": "h", "value": b64(b"\xff")}
    record = {"key": "k", "value": {"a": [1]}, "timestamp": TIME_MS, "headers": [header]}
    await produce(served, TOPIC, json.dumps({"records": [record, {"value": None}]}).encode())
    reply = await served.get(RECORDS, headers={"Accept": accept} if accept else {"Accept": ""})
    assert reply.headers["content-type"] == kind
    first, second = reply.json()
    place = {"topic": "orders", "partition": 0, "offset": 0, "timestamp": TIME_MS}
    assert first == {**place, "key": key, "value": value, "headers": [header]}
    assert (second["key"], second["value"], second["offset"]) == (None, None, 1)


async def test_arrow_form(served: Served) -> None:
    await _fill(served, "a", "b")
    reply = await served.get(f"{TOPIC}/records", headers={"Accept": ARROW})
    assert reply.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(reply.content).read_all()
    assert table.schema.names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert table.column("value").to_pylist() == [b'"a"', b'"b"']
    empty = await served.get(f"{RECORDS}?offset=2", headers={"Accept": ARROW})
    assert pa.ipc.open_stream(empty.content).read_all().schema == table.schema


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("offset=earliest", [0, 1, 2, 3, 4]),
        ("offset=3", [3, 4]),
        ("offset=latest", []),
        ("offset=5", []),
        (f"timestamp={TIME_MS}", [0, 1, 2, 3, 4]),
        (f"timestamp={TIME_MS + 1001}", [2, 3, 4]),
        (f"timestamp={TIME_MS + 4001}", []),
        ("offset=1&max_bytes=40", [1, 2]),  # a byte of value and sixteen beside it each
        ("max_bytes=1", [0]),
        ("offset=4&min_bytes=100000&timeout=10", [4]),
        ("offset=4&min_bytes=1&timeout=60000", [4]),
        ("offset=5&min_bytes=0&timeout=60000", []),
        ("max_bytes=40&min_bytes=100000&timeout=60000", [0, 1]),
    ],
)
@pytest.mark.parametrize("path", [RECORDS, f"{TOPIC}/records"])
async def test_where_to_begin_and_how_much(served: Served, path: str, query: str, values: list[int]) -> None:
    await _fill(served, *range(5))
    reply = await served.get(f"{path}?{query}")
    assert [each["value"] for each in reply.json()] == values
    next_offset = 5 if not values else values[-1] + 1
    prefix = "" if path == RECORDS else "0:"
    names = ("Lakelog-High-Watermark", "Lakelog-Log-Start-Offset", "Lakelog-Next-Offset")
    assert [reply.headers[name] for name in names] == [f"{prefix}5", f"{prefix}0", f"{prefix}{next_offset}"]
    assert served.gateway.replies.room.bytes == 0


async def test_over_a_topic_each_partition_has_its_place(served: Served) -> None:
    await create(served, "orders", 3)
    for partition in range(3):
        await _fill(served, *range(3), partition=partition)

    async def places(query: str) -> list[tuple[int, int]]:
        reply = await served.get(f"{TOPIC}/records?{query}")
        return [(each["partition"], each["offset"]) for each in reply.json()]

    assert len(await places("")) == 9
    assert await places("positions=0:2,1:latest&offset=latest") == [(0, 2)]
    assert await places(f"positions=0:3,1:earliest&timestamp={TIME_MS + 2000}") == [(1, 0), (1, 1), (1, 2), (2, 2)]
    collected, positions = [], ""
    while page := await served.get(f"{TOPIC}/records?max_bytes=40&positions={positions}"):
        collected += [(each["partition"], each["offset"]) for each in page.json()]
        positions = page.headers["Lakelog-Next-Offset"]
        if not page.json():
            break
    assert sorted(collected) == sorted(await places(""))


async def test_a_reader_slower_than_the_writers_gets_to_every_partition(served: Served) -> None:
    await create(served, "orders", 3)
    for partition in range(3):
        await _fill(served, *range(100), partition=partition)
    seen: dict[int, int] = {}
    for _ in range(200):
        positions = ",".join(f"{partition}:{offset}" for partition, offset in seen.items())
        page = (await served.get(f"{TOPIC}/records?max_bytes=1&positions={positions}")).json()
        seen |= {each["partition"]: each["offset"] + 1 for each in page}
        if len(seen) == 3:
            return
    raise AssertionError(f"only {set(seen)}, each time")


async def test_a_reply_over_a_topic_is_in_the_order_of_partitions(served: Served) -> None:
    await create(served, "orders", 9)
    for partition in range(9):
        await _fill(served, 1, partition=partition)
    for _ in range(5):
        reply = await served.get(f"{TOPIC}/records")
        assert [each["partition"] for each in reply.json()] == list(range(9))
        assert reply.headers["Lakelog-Next-Offset"] == ",".join(f"{partition}:1" for partition in range(9))


REFUSED = [
    ("/topics/none/records", 404, 40401, "'none'"),
    ("/topics/none/partitions/0/records", 404, 40401, "'none'"),
    (f"{TOPIC}/partitions/7/records", 404, 40402, "partition 7"),
    (f"{TOPIC}/partitions/-1/records", 404, 40402, "partition"),
    (f"{TOPIC}/partitions/one/records", 404, 40402, "partition"),
    (f"{TOPIC}/partitions/{'9' * 5000}/records", 404, 40402, "partition"),
    (f"{TOPIC}/records?positions=7:0", 404, 40402, "partition 7"),
    (f"{RECORDS}?offset=6", 416, 416, "offset 6"),
    (f"{RECORDS}?offset=0", 416, 416, "offset 0"),
    (f"{RECORDS}?offset=-1", 422, 422, "'-1'"),
    (f"{RECORDS}?offset=first", 422, 422, "'first'"),
    (f"{RECORDS}?offset={'9' * 5000}", 422, 422, "offset is"),
    (f"{RECORDS}?timestamp=-1", 422, 422, "timestamp"),
    (f"{RECORDS}?timestamp=today", 422, 422, "timestamp"),
    (f"{RECORDS}?max_bytes=0", 422, 422, "max_bytes"),
    (f"{RECORDS}?min_bytes=-1", 422, 422, "min_bytes"),
    (f"{RECORDS}?timeout={2**31}", 422, 422, "timeout"),
    (f"{TOPIC}/records?positions=0", 422, 422, "0:17,1:earliest"),
    (f"{TOPIC}/records?positions=0:x", 422, 422, "'x'"),
    (f"{TOPIC}/records?positions=0:1,0:2", 422, 422, "two positions"),
    (f"{TOPIC}/records?positions={'9' * 5000}:0", 422, 422, "no position"),
]


@pytest.mark.parametrize(("path", "status", "code", "words"), REFUSED, ids=lambda value: str(value)[:60])
async def test_refusals(served: Served, path: str, status: int, code: int, words: str) -> None:
    await _fill(served, *range(5))
    await served.post("/admin/topics/orders/delete-records", json={"offsets": {"0": 1}})
    refusal = error_of(await served.get(path))
    assert refusal[:2] == (status, code)
    assert words in refusal[2]
    assert served.gateway.replies.room.bytes == 0


@pytest.mark.parametrize(
    ("stored", "accept", "other"),
    [
        (b"\xff", JSON, "ask for binary"),
        (b"{", JSON, "text or binary"),
        (b"\xff", TEXT, "binary"),
        (b"1,2", JSON, "text or binary"),
    ],
)
async def test_a_record_that_the_form_can_not_write(served: Served, stored: bytes, accept: str, other: str) -> None:
    for value in (b"1", stored):
        await produce(served, TOPIC, json.dumps({"records": [{"value": b64(value)}]}).encode(), BINARY)
    status, code, message = error_of(await served.get(RECORDS, headers={"Accept": accept}))
    assert (status, code) == (406, 406)
    assert "orders-0 at offset 1" in message
    assert other in message
    assert served.gateway.replies.room.bytes == 0


@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kafka.avro.v2+json", "application/json;q=0"])
async def test_a_form_that_is_not_offered(served: Served, accept: str) -> None:
    await _fill(served, 1)
    assert error_of(await served.get(RECORDS, headers={"Accept": accept}))[:2] == (406, 406)


async def test_a_long_poll_ends_with_the_record_that_it_waits_for(served: Served) -> None:
    await _fill(served, "a")
    waiting = asyncio.ensure_future(served.get(f"{RECORDS}?offset=1&timeout=60000"))
    await _until_somebody_waits(served)
    assert served.gateway.replies.room.bytes == 0, "who waits for records holds no room"
    await send(served, "orders", "b")
    assert [each["value"] for each in (await waiting).json()] == ["b"]


async def test_a_long_poll_for_more_keeps_what_it_has(served: Served) -> None:
    await _fill(served, "a")
    waiting = asyncio.ensure_future(served.get(f"{RECORDS}?min_bytes=38&timeout=60000"))
    await _until_somebody_waits(served)
    assert served.gateway.replies.room.bytes == len('"a"') + 16
    await send(served, "orders", "b")
    reply = await waiting
    assert [each["value"] for each in reply.json()] == ["a", "b"]
    assert reply.headers["Lakelog-Next-Offset"] == "2"
    text = (await served.get("/metrics")).text
    assert 'lakelog_topic_messages_out_total{topic="orders"} 2.0' in text, "each record is counted once"


async def test_a_record_too_many_for_the_limit_is_left_for_the_next_fetch(served: Served) -> None:
    await _fill(served, "a")
    waiting = asyncio.ensure_future(served.get(f"{RECORDS}?min_bytes=38&max_bytes=60&timeout=60000"))
    await _until_somebody_waits(served)
    await send(served, "orders", "b" * 100)
    assert [each["value"] for each in (await waiting).json()] == ["a"]


async def test_a_fetch_that_finds_no_room_waits_and_is_refused(open_gateway: OpenGateway) -> None:
    async with open_gateway(replies_bytes_max="2000000", replies_wait_ms="50") as client:
        await _fill(client, "a")
        async with client.gateway.replies.hold(1_500_000):  # somebody who reads slowly
            status, code, message = error_of(reply := await client.get(RECORDS))
            assert (status, code) == (429, 429)
            assert "replies_bytes_max" in message
            assert int(reply.headers["Retry-After"]) > 0
            small = await client.get(f"{RECORDS}?max_bytes=1000")
            assert small.status_code == 200
        assert (await client.get(RECORDS)).status_code == 200
        assert client.gateway.replies.room.bytes == 0


async def test_a_long_poll_that_finds_no_room_for_more_gives_what_it_has(open_gateway: OpenGateway) -> None:
    async with open_gateway(replies_bytes_max="2000000", replies_wait_ms="50") as client:
        await _fill(client, "a")
        waiting = asyncio.ensure_future(client.get(f"{RECORDS}?min_bytes=38&timeout=60000"))
        await _until_somebody_waits(client)
        async with client.gateway.replies.hold(1) as slow_reader:
            await slow_reader.take(2_500_000)  # of those that grow, one may go beyond what there is
            await send(client, "orders", "b")
            reply = await waiting
        assert [each["value"] for each in reply.json()] == ["a"]
        assert reply.headers["Lakelog-Next-Offset"] == "1"


@pytest.mark.parametrize("way", ["partition", "topic", "stream", "consumer", "group stream"])
async def test_who_is_woken_finds_room_before_it_reads(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    readers, room_bytes, read_bytes = 10, 700_000, 262_144
    async with open_gateway(replies_bytes_max=str(room_bytes)) as client:
        await send(client, "orders", "a")
        room, fetch = client.gateway.replies.room, client.gateway.broker.fetch
        held: list[int] = []

        async def watched(*arguments: Any, **named: Any) -> Any:
            held.append(room.bytes)
            return await fetch(*arguments, **named)

        monkeypatch.setattr(client.gateway.broker, "fetch", watched)

        async def read(number: int) -> Any:
            headers = {"Accept": "application/x-ndjson" if "stream" in way else JSON_V2}
            path = {
                "partition": f"{RECORDS}?offset=1&timeout=60000&max_bytes={read_bytes}",
                "topic": f"{TOPIC}/records?offset=latest&timeout=60000&max_bytes={read_bytes}",
                "stream": f"{TOPIC}/stream?offset=latest&limit=1",
                "consumer": f"/records?timeout=60000&max_bytes={read_bytes}",
                "group stream": f"/consumers/{number}/stream?topics=orders&limit=1",
            }[way]
            if way == "consumer":
                reader = await consumer(client, str(number), auto_offset_reset="latest")
                await reader.subscribe("orders")
                path = reader.path + path
            return (await client.get(path, headers=headers)).text

        waiting = [asyncio.ensure_future(read(number)) for number in range(readers)]
        await _until_somebody_waits(client, readers)
        assert room.bytes == 0, "who waits for records holds no room"
        async with client.gateway.replies.hold(room_bytes):  # somebody who reads slowly
            await send(client, "orders", "b")
            for _ in range(50):
                await asyncio.sleep(0)
        assert all('"value":"b"' in text for text in await asyncio.gather(*waiting))
        assert read_bytes <= min(held) <= max(held) <= room_bytes
        assert room.bytes == 0


async def test_many_records_and_a_reply_of_many_pieces(served: Served) -> None:
    values = [f"{n}-{'x' * 1000}" for n in range(2000)]
    await produce(served, TOPIC, records(*values))
    reply = await served.get(f"{RECORDS}?max_bytes={2**30}")
    assert [each["value"] for each in reply.json()] == values
    assert int(reply.headers["content-length"]) == len(reply.content) > 2_000_000
    table = pa.ipc.open_stream((await served.get(f"{RECORDS}?max_bytes={2**30}", headers={"Accept": ARROW})).content)
    assert table.read_all().num_rows == 2000
    assert served.gateway.replies.room.bytes == 0
