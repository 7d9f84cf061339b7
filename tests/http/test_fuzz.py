"""Any bytes and any JSON as a produce body: never a failure of the gateway, never a part of a request stored."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelog_cli.local_gateway import LocalGateway
from tests.http.requests import ARROW, BINARY, JSON, JSON_V2, TEXT, arrow_body, records

EXAMPLES = 500
KINDS = st.sampled_from([BINARY, JSON, JSON_V2, TEXT, ARROW])

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
any_json = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
# Near enough to a record to get past the first checks.
near_records = st.fixed_dictionaries(
    {},
    optional={
        "key": any_json,
        "value": any_json,
        "partition": st.integers(-1, 3) | scalars,
        "timestamp": st.integers(-1, 2**64) | scalars,
        "headers": st.lists(st.fixed_dictionaries({}, optional={"key": scalars, "value": scalars}), max_size=2)
        | scalars,
        "extra": scalars,
    },
)
near_bodies = st.fixed_dictionaries({"records": st.lists(near_records, max_size=4) | any_json})
VALID = {
    JSON: b'{"records": [{"key": {"a": 1}, "value": [1, "x"], "timestamp": 1, "headers": [{"key": "h"}]}, {}]}',
    BINARY: b'{"records": [{"key": "YQ==", "value": "YmI=", "partition": 0}]}',
    ARROW: arrow_body(pa.table({"key": ["a", None], "value": [b"1", b"2"], "timestamp": [1, 2]})),
}


class Tally:
    """A topic, and how many records of it were acknowledged: the log must end exactly there."""

    def __init__(self, url: str, topic: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)
        self._topic = topic
        self._acknowledged = 0
        body = {"topic_name": topic, "partitions_count": 1}
        assert self._client.post("/admin/topics", json=body).status_code == 201

    def send(self, body: bytes, kind: str, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = self._client.post(f"/topics/{self._topic}", content=body, headers={"Content-Type": kind, **named})
        assert reply.status_code < 500, (reply.status_code, reply.text)
        content = reply.json()
        if reply.status_code == 200 and kind == ARROW:
            self._acknowledged += content["records"]
        elif reply.status_code == 200:
            # One that was sent before is answered with its first offsets.
            self._acknowledged += sum(each["offset"] >= self._acknowledged for each in content["offsets"])
        else:
            assert set(content) == {"error_code", "message"}
        offsets = self._client.get(f"/topics/{self._topic}/partitions/0/offsets").json()
        assert offsets["end_offset"] == self._acknowledged

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def tally(shared_process: LocalGateway, request: pytest.FixtureRequest) -> Iterator[Tally]:
    tally = Tally(shared_process.url, request.function.__name__)
    yield tally
    tally.close()


def fuzzed(**strategies: Any) -> Any:
    def decorate(test: Any) -> Any:
        # One gateway and one topic for all examples: what one of them breaks the next may meet.
        shared = [HealthCheck.function_scoped_fixture]
        return settings(max_examples=EXAMPLES, suppress_health_check=shared)(given(**strategies)(test))

    return decorate


@fuzzed(body=st.binary(max_size=300), kind=KINDS, encoding=st.sampled_from(["identity", "gzip", "zstd"]))
def test_any_bytes(tally: Tally, body: bytes, kind: str, encoding: str) -> None:
    tally.send(body, kind, Content_Encoding=encoding)


@fuzzed(content=near_bodies | any_json, kind=KINDS, packed=st.booleans())
def test_any_json(tally: Tally, content: Any, kind: str, packed: bool) -> None:
    body = json.dumps(content).encode()
    if packed:
        tally.send(gzip.compress(body), kind, Content_Encoding="gzip")
    else:
        tally.send(body, kind)


@fuzzed(
    kind=st.sampled_from(list(VALID)),
    place=st.integers(0, 10**6),
    junk=st.binary(min_size=1, max_size=9),
    cut=st.booleans(),
)
def test_bodies_with_a_wound(tally: Tally, kind: str, place: int, junk: bytes, cut: bool) -> None:
    body = VALID[kind]
    place %= len(body)
    tally.send(body[:place] + junk + (b"" if cut else body[place + len(junk) :]), kind)


@fuzzed(
    producer=st.integers(0, 9).map(str) | st.text("0123456789-x", max_size=25),
    sequence=st.integers(0, 2).map(str) | st.text("0123456789", max_size=25),
    expected=st.integers(0, 9).map("0:{}".format) | st.text("0123456789:,x", max_size=25),
)
def test_any_headers(tally: Tally, producer: str, sequence: str, expected: str) -> None:
    named = {"Lakelog_Producer_Id": producer, "Lakelog_Sequence": sequence, "Lakelog_Expected_Offset": expected}
    tally.send(records(1), JSON, **named)
    del named["Lakelog_Expected_Offset"]  # which is hard to meet by chance
    tally.send(records(1), JSON, **named)
