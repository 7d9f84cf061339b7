"""Produce, by the fast lane and by FastAPI's route alike: what is stored, what is answered, what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from tests.http.conftest import OpenGateway, Served
from tests.http.requests import (
    ARROW,
    BINARY,
    JSON,
    JSON_V2,
    TEXT,
    V2,
    arrow_body,
    b64,
    create,
    ends,
    error_of,
    produce,
    records,
    send,
    stored,
)

TOPIC, PARTITIONS = "/topics/orders", 2
PARTITION = f"{TOPIC}/partitions/1"
TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Taken:
    """A request that is stored: its one record, as partition, key, value and headers."""

    name: str
    kind: str
    body: Any
    record: tuple[Any, ...]
    path: str = PARTITION


def _one(**record: Any) -> dict[str, Any]:
    return {"records": [record]}


HEADERS = [{"key": "trace", "value": b64(b"\x00\xff")}, {"key": "trace", "value": None}]
PAIRS = [("trace", b"\x00\xff"), ("trace", None)]

TAKEN = [
    Taken("binary", BINARY, _one(key=b64(b"\x00k"), value=b64(b"\xff\xfe")), (1, b"\x00k", b"\xff\xfe", [])),
    Taken("binary without a key", BINARY, _one(value=b64(b"v")), (1, None, b"v", [])),
    Taken("a tombstone", BINARY, _one(key=b64(b"k"), value=None), (1, b"k", None, [])),
    Taken("json", JSON_V2, _one(key={"id": 1}, value=[1, 2.5, None]), (1, b'{"id": 1}', b"[1, 2.5, null]", [])),
    Taken("a json tombstone", JSON_V2, _one(key="k", value=None), (1, b'"k"', None, [])),
    Taken("plain json", JSON, _one(value="text"), (1, None, b'"text"', [])),
    Taken("text", TEXT, _one(key="schlüssel", value="größe"), (1, "schlüssel".encode(), "größe".encode(), [])),
    Taken("an empty text is no tombstone", TEXT, _one(key="", value=""), (1, b"", b"", [])),
    Taken("headers", TEXT, _one(value="v", headers=HEADERS), (1, None, b"v", PAIRS)),
    Taken("a record names its partition", TEXT, _one(value="v", partition=1), (1, None, b"v", []), TOPIC),
    Taken("record and path agree", TEXT, _one(value="v", partition=1), (1, None, b"v", [])),
    # Where a Kafka client puts it: murmur2("21") is -973932308, which is even.
    Taken("by its key", TEXT, _one(key="21", value="v"), (0, b"21", b"v", []), TOPIC),
    Taken("a type with a parameter", f"{TEXT}; charset=utf-8", _one(value="v"), (1, None, b"v", [])),
    Taken("a type in capitals", TEXT.upper(), _one(value="v"), (1, None, b"v", [])),
    Taken("v2's schema fields, empty", JSON_V2, {"key_schema": None, **_one(value=1)}, (1, None, b"1", [])),
    Taken("arrow", ARROW, {"key": [b"k"], "value": [b"v"]}, (1, b"k", b"v", [])),
    Taken("arrow with headers", ARROW, {"value": ["v"], "headers": [[("h", b"1")]]}, (1, None, b"v", [("h", b"1")])),
    Taken("arrow with partitions", ARROW, {"value": ["v"], "partition": [1]}, (1, None, b"v", []), TOPIC),
]


def _encoded(case: Taken) -> bytes:
    if case.kind != ARROW:
        return json.dumps(case.body).encode()
    columns = dict(case.body)
    if "headers" in columns:
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        columns["headers"] = pa.array([[{"key": k, "value": v} for k, v in columns["headers"][0]]], pa.list_(pair))
    return arrow_body(pa.table(columns))


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.name)
async def test_a_record_is_stored_as_it_was_sent(either_lane: Served, case: Taken) -> None:
    await create(either_lane, "orders", PARTITIONS)
    reply = await produce(either_lane, case.path, _encoded(case), case.kind)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == V2
    partition = case.record[0]
    if case.kind == ARROW:
        ranges = [{"partition": partition, "start_offset": 0, "end_offset": 1}]
        assert reply.json() == {"records": 1, "ranges": ranges}
    else:
        place = {"partition": partition, "offset": 0, "error_code": None, "error": None}
        assert reply.json() == {"offsets": [place], "key_schema_id": None, "value_schema_id": None}
    assert await stored(either_lane, "orders") == [case.record]


@dataclass(frozen=True)
class Refused:
    """A request that is refused, and what the refusal says."""

    name: str
    status: int
    words: str
    body: bytes = records("v")
    kind: str = JSON
    path: str = PARTITION
    code: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def _body(**more: Any) -> bytes:
    return json.dumps({"records": [{"value": "v"}, {"value": "v", **more}]}).encode()


# More than Python makes a number of.
MANY_DIGITS = "0" * 20 + "9" * 4980
NO_ROWS = pa.table({"value": pa.array([], pa.binary())})
DEEP = b'{"records":[{"value":' + b"[" * 200_000 + b"]" * 200_000 + b"}]}"

REFUSED = [
    # Where it goes.
    Refused("no such partition", 404, "the topic has 0 to 1", path=f"{TOPIC}/partitions/7", code=40402),
    Refused("a partition that is no number", 404, "'one'", path=f"{TOPIC}/partitions/one", code=40402),
    Refused("a negative partition", 404, "'-1'", path=f"{TOPIC}/partitions/-1", code=40402),
    Refused("digits of another script", 404, "partition", path=f"{TOPIC}/partitions/١", code=40402),
    Refused("a partition beyond 32 bits", 404, "partition", path=f"{TOPIC}/partitions/{2**31}", code=40402),
    Refused("a partition of 5000 digits", 404, "partition", path=f"{TOPIC}/partitions/{MANY_DIGITS}", code=40402),
    Refused("a record's partition is not there", 404, "record 1", body=_body(partition=9), path=TOPIC, code=40402),
    Refused("a record's partition is negative", 404, "records[1]", body=_body(partition=-1), path=TOPIC, code=40402),
    Refused("record and path disagree", 422, "$.records[1].partition", body=_body(partition=0)),
    Refused("a topic with a bad name", 422, "ASCII", path="/topics/a%20b"),
    Refused("a topic with a long name", 422, "249", path=f"/topics/{'x' * 250}"),
    # Its type, and the reply's.
    Refused("no content type", 415, "no Content-Type", kind=""),
    Refused("a content type that is not taken", 415, "text/plain", kind="text/plain"),
    Refused("avro", 415, "avro", kind="application/vnd.kafka.avro.v2+json"),
    Refused("v2 without a format", 415, V2, kind=V2),
    Refused("an accept that is not offered", 406, "text/html", headers={"Accept": "text/html"}),
    Refused("an encoding that is not taken", 415, "'br'", headers={"Content-Encoding": "br"}),
    Refused("two encodings", 415, "gzip, zstd", headers={"Content-Encoding": "gzip, zstd"}),
    # The body.
    Refused("an empty body", 400, "not JSON", body=b""),
    Refused("json cut off", 400, "truncated", body=b'{"records": ['),
    Refused("broken json", 400, "byte 12", body=b'{"records": x}'),
    Refused("json with something behind", 400, "trailing", body=records("v") + b"x"),
    Refused("not utf-8", 400, "not JSON", body=b'{"records":[{"value":"\xff"}]}', kind=TEXT),
    Refused("not utf-8 in json", 400, "$.records[0].value is not UTF-8", body=b'{"records":[{"value":"\xff"}]}'),
    Refused(
        "a key that is not", 400, "[1].key", body=b'{"records":[{"key":"\xc3\xa9"},{"key":["\xc3"]}]}', kind=JSON_V2
    ),
    Refused("in what is not kept", 400, "it is not", body=b'{"records":[{"value":"\xff","value":1}]}'),
    Refused("half a surrogate pair", 400, "not JSON", body=b'{"records":[{"value":"\\ud800"}]}', kind=TEXT),
    Refused("half a surrogate pair in json", 400, "not JSON", body=b'{"records":[{"value":"\\ud800"}]}'),
    Refused("a list", 422, "Expected `object`", body=b"[]"),
    Refused("a number", 422, "Expected `object`", body=b"1"),
    Refused("no records", 422, "`records`", body=b"{}"),
    Refused("records is no list", 422, "$.records", body=b'{"records": 1}'),
    Refused("no record in records", 422, "empty", body=b'{"records": []}'),
    Refused("a record is no object", 422, "$.records[0]", body=b'{"records": [1]}'),
    Refused("an unknown field", 422, "`keys`", body=_body(keys=1)),
    Refused("an unknown field of the body", 422, "`record`", body=b'{"record": [], "records": [{}]}'),
    Refused("a schema", 422, "schemas", body=b'{"value_schema": "{}", "records": [{"value": 1}]}'),
    Refused("a schema's id", 422, "schemas", body=b'{"value_schema_id": 0, "records": [{"value": 1}]}'),
    Refused("text that is a number", 422, "$.records[0].value", body=records(1), kind=TEXT),
    Refused("not base64", 422, "$.records[0].value", body=records("%%"), kind=BINARY),
    Refused("a partition in words", 422, "$.records[1].partition", body=_body(partition="one")),
    Refused("a timestamp before 1970", 422, "$.records[1].timestamp", body=_body(timestamp=-1)),
    Refused("a timestamp beyond 64 bits", 422, "timestamp", body=_body(timestamp=2**64)),
    Refused("a timestamp beyond microseconds", 422, "294247", body=_body(timestamp=2**62)),
    Refused("a timestamp far ahead", 422, "timestamp", body=_body(timestamp=4_000_000_000_000)),
    Refused("a header without a key", 422, "$.records[1].headers[0]", body=_body(headers=[{"value": "eA=="}])),
    Refused("nested too deep", 422, "deep", body=DEEP),
    Refused("one record too large", 413, "max.message.bytes", body=records("v", "x" * 1_100_000)),
    # Arrow.
    Refused("arrow that is none", 400, "Arrow", body=b"x" * 100, kind=ARROW),
    Refused("arrow with no body", 400, "Arrow", body=b"", kind=ARROW),
    Refused("arrow cut off", 400, "Arrow", body=arrow_body(pa.table({"value": ["v"] * 99}))[:-200], kind=ARROW),
    Refused("arrow without rows", 422, "empty", body=arrow_body(NO_ROWS), kind=ARROW),
    Refused("an unknown column", 422, "'val'", body=arrow_body(pa.table({"val": ["v"]})), kind=ARROW),
    Refused("a column twice", 422, "twice", body=arrow_body(pa.table([["a"], ["b"]], ["value", "value"])), kind=ARROW),
    Refused("neither key nor value", 422, "neither", body=arrow_body(pa.table({"timestamp": [1]})), kind=ARROW),
    Refused("a column of another type", 422, "'value'", body=arrow_body(pa.table({"value": [1.5]})), kind=ARROW),
    Refused(
        "arrow and path name partitions",
        422,
        "partition",
        body=arrow_body(pa.table({"value": ["v"], "partition": [1]})),
        kind=ARROW,
    ),
    Refused(
        "an arrow partition that is not there",
        404,
        "partition",
        body=arrow_body(pa.table({"value": ["v", "w"], "partition": [0, 7]})),
        kind=ARROW,
        path=TOPIC,
        code=40402,
    ),
    Refused(
        "runs of equal values",
        422,
        "not taken",
        body=arrow_body(pa.table({"value": pa.RunEndEncodedArray.from_arrays([3], ["v"])})),
        kind=ARROW,
    ),
    # Parameters.
    Refused("acks", 422, "acks is '2'", path=f"{PARTITION}?acks=2"),
    Refused("a timeout of nothing", 422, "timeout is '0'", path=f"{PARTITION}?timeout=0"),
    Refused("a timeout in words", 422, "timeout is 'soon'", path=f"{PARTITION}?timeout=soon"),
    Refused("a timeout of 5000 digits", 422, "timeout", path=f"{PARTITION}?timeout={MANY_DIGITS}"),
    Refused("a sequence alone", 422, "go together", headers={"Lakelog-Sequence": "0"}),
    Refused("a producer alone", 422, "go together", headers={"Lakelog-Producer-Id": "1"}),
    Refused(
        "a producer id beyond 64 bits",
        422,
        "Lakelog-Producer-Id",
        headers={"Lakelog-Producer-Id": MANY_DIGITS, "Lakelog-Sequence": "0"},
    ),
    Refused(
        "an epoch beyond 16 bits",
        422,
        "Lakelog-Producer-Epoch",
        headers={"Lakelog-Producer-Id": "1", "Lakelog-Producer-Epoch": "32768", "Lakelog-Sequence": "0"},
    ),
    Refused("an expected offset in words", 422, "Lakelog-Expected-Offset", headers={"Lakelog-Expected-Offset": "end"}),
    Refused("a named expected offset", 422, "number here", headers={"Lakelog-Expected-Offset": "1:latest"}),
    Refused("expected twice", 422, "two positions", headers={"Lakelog-Expected-Offset": "1:0,1:1"}, path=TOPIC),
    Refused("expected without a partition", 422, "no position", headers={"Lakelog-Expected-Offset": "3"}, path=TOPIC),
    Refused("another expected offset", 412, "offset", headers={"Lakelog-Expected-Offset": "9"}),
    Refused("another in one of two", 412, "offset", headers={"Lakelog-Expected-Offset": "0:0,1:9"}, path=TOPIC),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_what_is_refused_changes_nothing_and_says_why(either_lane: Served, case: Refused) -> None:
    await create(either_lane, "orders", PARTITIONS)
    headers = {"Content-Type": case.kind} if case.kind else {}
    reply = await either_lane.post(case.path, content=case.body, headers={**headers, **case.headers})
    status, code, message = error_of(reply)
    assert (status, code) == (case.status, case.code or case.status), message
    assert case.words in message
    assert len(message) < 1000
    assert await ends(either_lane, "orders", PARTITIONS) == [0, 0]
    assert (await either_lane.get("/topics")).json() == ["orders"]
    assert either_lane.gateway.bodies.room.bytes == 0


@pytest.mark.parametrize("path", ["/topics/", "/topics//partitions/0", "/topics/orders/partitions/", "/topics/a/b/c"])
async def test_paths_that_are_none(either_lane: Served, path: str) -> None:
    assert error_of(await produce(either_lane, path, records("v")))[:2] == (404, 404)


async def test_a_topic_that_is_not_there_is_created_or_refused_by_its_code(open_gateway: OpenGateway) -> None:
    async with open_gateway(auto_create_topics_enable="false") as closed:
        status, code, message = error_of(await produce(closed, "/topics/fresh", records("v")))
        assert (status, code) == (404, 40401)
        assert "'fresh'" in message
    async with open_gateway() as willing:
        await send(willing, "fresh", "v")
        assert await ends(willing, "fresh") == [1]


async def test_each_record_has_an_entry_in_its_place(either_lane: Served) -> None:
    await create(either_lane, "orders", PARTITIONS)
    body = {"records": [{"value": n, "partition": n % 2} for n in range(5)]}
    offsets = (await produce(either_lane, TOPIC, json.dumps(body).encode())).json()["offsets"]
    assert [(each["partition"], each["offset"]) for each in offsets] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]


async def test_records_without_a_key_stay_together_and_requests_take_turns(served: Served) -> None:
    await create(served, "orders", PARTITIONS)
    sent = [await send(served, "orders", 1, 2) for _ in range(4)]
    partitions = [{each["partition"] for each in offsets} for offsets in sent]
    assert sorted(map(tuple, partitions)) == [(0,), (0,), (1,), (1,)]


async def test_timestamps_are_kept(either_lane: Served) -> None:
    await create(either_lane, "orders")
    table = pa.table({"value": ["b"], "timestamp": pa.array([TIME_MS + 1], pa.timestamp("ms"))})
    first = await produce(either_lane, TOPIC, json.dumps(_one(value="a", timestamp=TIME_MS)).encode())
    second = await produce(either_lane, TOPIC, arrow_body(table), ARROW)
    assert (first.status_code, second.status_code) == (200, 200)
    fetched = (await either_lane.get(f"{TOPIC}/records", headers={"Accept": TEXT})).json()
    assert [each["timestamp"] for each in fetched] == [TIME_MS, TIME_MS + 1]


@pytest.mark.parametrize(("query", "status"), [("acks=all", 200), ("acks=-1", 200), ("acks=1", 200), ("", 200)])
async def test_acks_that_wait(either_lane: Served, query: str, status: int) -> None:
    reply = await produce(either_lane, f"{TOPIC}?{query}", records("v"))
    assert reply.status_code == status
    assert reply.json()["offsets"][0]["offset"] == 0


@pytest.mark.parametrize("query", ["acks=0", "async=true"])
async def test_acks_that_do_not_wait(open_gateway: OpenGateway, query: str) -> None:
    async with open_gateway() as client:
        reply = await produce(client, f"{TOPIC}?{query}", records("v"))
        assert (reply.status_code, reply.content) == (204, b"")
    async with open_gateway() as client:  # the first one has committed what it took in before it closed
        assert await ends(client, "orders") == [1]


async def test_a_batch_sent_again_is_stored_once(either_lane: Served, open_gateway: OpenGateway) -> None:
    headers = {"Lakelog_Producer_Id": "77", "Lakelog_Producer_Epoch": "2", "Lakelog_Sequence": "0"}
    first = await send(either_lane, "orders", "a", "b", **headers)
    assert await send(either_lane, "orders", "a", "b", **headers) == first
    assert await ends(either_lane, "orders") == [2]
    assert (await send(either_lane, "orders", "c", **{**headers, "Lakelog_Sequence": "2"}))[0]["offset"] == 2
    skipping = {**headers, "Lakelog_Sequence": "9"}
    assert error_of(await produce(either_lane, TOPIC, records("d"), **skipping))[:2] == (409, 409)
    stale = {**headers, "Lakelog_Producer_Epoch": "1", "Lakelog_Sequence": "3"}
    assert error_of(await produce(either_lane, TOPIC, records("d"), **stale))[:2] == (409, 409)
    async with open_gateway() as restarted:
        assert await send(restarted, "orders", "a", "b", **headers) == first
        assert await ends(restarted, "orders") == [3]


@pytest.mark.parametrize(("path", "header"), [(PARTITION, "{1}"), (PARTITION, "1:{1}"), (TOPIC, "0:{0},1:{1}")])
async def test_an_append_on_a_condition(either_lane: Served, path: str, header: str) -> None:
    await create(either_lane, "orders", PARTITIONS)
    for _ in range(2):
        expected = header.format(*await ends(either_lane, "orders", PARTITIONS))
        assert (await produce(either_lane, path, records("v"), Lakelog_Expected_Offset=expected)).status_code == 200
    assert sum(await ends(either_lane, "orders", PARTITIONS)) == 2


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(records("v"))),
        ("x-gzip", gzip.compress(records("v"))),
        ("GZIP", gzip.compress(records("v")[:9]) + gzip.compress(records("v")[9:])),
        ("zstd", zstandard.compress(records("v"))),
        ("identity", records("v")),
        ("", records("v")),
    ],
)
async def test_compressed_bodies(either_lane: Served, encoding: str, packed: bytes) -> None:
    assert (await produce(either_lane, TOPIC, packed, Content_Encoding=encoding)).status_code == 200
    assert await stored(either_lane, "orders") == [(0, None, b'"v"', [])]
    assert either_lane.gateway.bodies.room.bytes == 0


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_bodies_that_are_not_compressed_as_they_say(either_lane: Served, encoding: str) -> None:
    whole = records("v" * 1000)
    packed = gzip.compress(whole) if encoding == "gzip" else zstandard.compress(whole)
    for broken in (records("v"), packed[:-6], packed[:10], b""):
        reply = await produce(either_lane, TOPIC, broken, Content_Encoding=encoding)
        assert error_of(reply)[:2] == (400, 400), reply.text
    assert (await either_lane.get("/topics")).json() == []


SMALL = 100_000
BOMB = records("\x00" * 300_000)  # of letters that take six bytes each in JSON
SHARED = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), [b"x" * 1000])
SHARED_TABLE = pa.table({"value": SHARED})

LARGE = [
    Refused("a body that says so", 413, "body_bytes_max", body=records("x" * SMALL)),
    Refused("gzip", 413, "body_bytes_max", body=gzip.compress(BOMB), headers={"Content-Encoding": "gzip"}),
    Refused("zstd", 413, "body_bytes_max", body=zstandard.compress(BOMB), headers={"Content-Encoding": "zstd"}),
    Refused(
        "arrow packed by zstd", 413, "body_bytes_max", body=arrow_body(pa.table({"value": [BOMB]}), "zstd"), kind=ARROW
    ),
    Refused(
        "arrow packed by lz4", 413, "body_bytes_max", body=arrow_body(pa.table({"value": [BOMB]}), "lz4"), kind=ARROW
    ),
    Refused("arrow that repeats itself", 413, "body_bytes_max", body=arrow_body(SHARED_TABLE), kind=ARROW),
    Refused("too many records", 413, "request_records_max", body=records(*range(101))),
    Refused("too many rows", 413, "request_records_max", body=arrow_body(pa.table({"value": ["v"] * 101})), kind=ARROW),
]


@pytest.mark.parametrize("fast_lane", [True, False])
@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.name)
async def test_bodies_that_are_too_large(open_gateway: OpenGateway, case: Refused, fast_lane: bool) -> None:
    if "says so" not in case.name:
        assert len(case.body) < SMALL
    async with open_gateway(fast_lane=fast_lane, body_bytes_max=str(SMALL), request_records_max="100") as client:
        status, code, message = error_of(await produce(client, TOPIC, case.body, case.kind, **case.headers))
        assert (status, code) == (413, 413)
        assert case.words in message
        assert (await client.get("/topics")).json() == []
        assert client.gateway.bodies.room.bytes == 0


async def test_a_body_in_pieces_is_cut_off_where_the_limit_is(open_gateway: OpenGateway) -> None:
    taken = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    async with open_gateway(body_bytes_max="10000") as client:
        reply = await client.post(TOPIC, content=pieces(), headers={"Content-Type": JSON})
        assert error_of(reply)[:2] == (413, 413)
    assert taken == 11


async def test_compressed_arrow_within_the_limit_is_taken(either_lane: Served) -> None:
    for packed in ("zstd", "lz4"):
        assert (
            await produce(either_lane, TOPIC, arrow_body(pa.table({"value": ["v"]}), packed), ARROW)
        ).status_code == 200
    shared = pa.table({"value": SHARED.slice(0, 2), "key": pa.array(["k" * 20] * 2, pa.string_view())})
    assert (await produce(either_lane, TOPIC, arrow_body(shared), ARROW)).status_code == 200
    assert await ends(either_lane, "orders") == [4]


@pytest.mark.parametrize("accept", [V2, JSON, "application/vnd.kafka+json", "*/*", "text/html;q=0.9, application/*"])
async def test_the_reply_is_of_a_type_that_is_accepted(either_lane: Served, accept: str) -> None:
    reply = await produce(either_lane, TOPIC, records("v"), Accept=accept)
    assert reply.headers["content-type"] == (V2 if "*" in accept else accept)


async def test_a_commit_that_takes_too_long_is_answered_in_time(open_gateway: OpenGateway) -> None:
    async with open_gateway(commits_in_flight_max="1") as client:
        await create(client, "orders")
        async with client.gateway.broker.produce_path.commits:  # nobody commits while this is held
            status, code, message = error_of(await produce(client, f"{TOPIC}?timeout=20", records("v")))
        assert (status, code) == (504, 504)
        assert "may still be stored" in message


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_a_failure_that_nobody_foresaw_has_the_shape_of_an_error(
    open_gateway: OpenGateway, fast_lane: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_gateway(fast_lane=fast_lane) as client:

        async def fails(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a secret of the gateway")

        monkeypatch.setattr(client.gateway.broker, "append", fails)
        client._transport.raise_app_exceptions = False  # type: ignore[attr-defined]
        status, code, message = error_of(await produce(client, TOPIC, records("v")))
        assert (status, code) == (500, 500)
        assert "secret" not in message
