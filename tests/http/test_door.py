"""What every request passes: limits, the access log, metrics, CORS; and what the process says of itself."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tests.http.conftest import OpenGateway, Served
from tests.http.requests import JSON, create, error_of, produce, records, send

TOPIC = "/topics/orders"


async def _metrics(client: httpx.AsyncClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    reply = await client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = (sample for family in text_string_to_metric_families(reply.text) for sample in family.samples)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


async def test_health(served: Served) -> None:
    for path in ("/healthy", "/ready"):
        reply = await served.get(path)
        assert (reply.status_code, reply.content) == (204, b"")
    served.gateway.stopping.set()
    assert (await served.get("/healthy")).status_code == 204
    reply = await served.get("/ready")
    assert error_of(reply)[:2] == (503, 503)
    assert reply.headers["retry-after"]


async def test_the_description_of_the_api(served: Served) -> None:
    described = (await served.get("/openapi")).json()
    assert described == (await served.get("/openapi.json")).json()
    assert {"/topics/{topic}", "/topics/{topic}/partitions/{partition}/records", "/admin/topics"} <= set(
        described["paths"]
    )
    shown = await served.get("/docs")
    assert (shown.status_code, shown.headers["location"]) == (307, "ui/#/api")
    assert (await served.get("/redoc")).status_code == 404


async def test_a_body_that_finds_no_room_waits_and_is_refused(open_gateway: OpenGateway) -> None:
    async with open_gateway(bodies_bytes_max="1000", bodies_wait_ms="20") as client:
        client.gateway.bodies.room.claim(990)
        reply = await produce(client, TOPIC, records("v"))
        assert error_of(reply)[:2] == (429, 429)
        assert "bodies_bytes_max" in error_of(reply)[2]
        assert int(reply.headers["retry-after"]) > 0
        client.gateway.bodies.room.leave(990)
        assert (await produce(client, TOPIC, records("v"))).status_code == 200


async def test_records_that_find_no_room_wait_and_are_refused(open_gateway: OpenGateway) -> None:
    async with open_gateway(in_flight_bytes_max="1000", in_flight_wait_ms="20") as client:
        await create(client, "orders")
        client.gateway.broker.produce_path.in_flight.claim(999)
        reply = await produce(client, TOPIC, records("v"))
        assert error_of(reply)[:2] == (429, 429)
        assert reply.headers["retry-after"]


async def test_a_body_that_does_not_arrive(open_gateway: OpenGateway) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield records("v")[:5]
        await asyncio.Event().wait()

    async with open_gateway(body_timeout_ms="20") as client:
        reply = await client.post(TOPIC, content=half(), headers={"Content-Type": JSON})
        assert error_of(reply)[:2] == (408, 408)
        assert client.gateway.bodies.room.bytes == 0


async def test_requests_beyond_the_limit_are_refused_but_not_questions_of_health(open_gateway: OpenGateway) -> None:
    async with open_gateway(requests_max="1") as client:
        await send(client, "orders", "a")
        waiting = asyncio.ensure_future(client.get(f"{TOPIC}/records?offset=latest&timeout=60000"))
        while not client.gateway.broker.fetch_path._waiting:  # noqa: ASYNC110 - nobody tells of this
            await asyncio.sleep(0)
        reply = await client.get("/topics")
        assert error_of(reply)[:2] == (503, 503)
        assert reply.headers["retry-after"]
        assert [(await client.get(path)).status_code for path in ("/healthy", "/ready", "/metrics")] == [204, 204, 200]
        client.gateway.stopping.set()  # a long poll ends when the process does
        assert (await waiting).json() == []
        refused = await _metrics(client)
        assert refused["lakelog_http_refused_total", frozenset({("reason", "requests_max")})] == 1


async def test_metrics_count_what_happened(served: Served) -> None:
    await send(served, "orders", "abc", "defg")
    await served.get(f"{TOPIC}/records")
    await served.get("/nowhere/1")
    await served.get("/nowhere/2")
    found = await _metrics(served)
    of_topic = frozenset({("topic", "orders")})
    of_partition = frozenset({("topic", "orders"), ("partition", "0")})
    assert found["lakelog_topic_messages_in_total", of_topic] == 2
    assert found["lakelog_topic_bytes_in_total", of_topic] == len('"abc"') + len('"defg"')
    assert found["lakelog_topic_messages_out_total", of_topic] == 2
    assert found["lakelog_log_end_offset", of_partition] == 2
    assert found["lakelog_log_segments", of_partition] == 1
    assert found["lakelog_commit_seconds_count", frozenset()] == 1
    assert found["lakelog_reads_total", frozenset({("source", "memory")})] >= 1
    produced = frozenset({("method", "POST"), ("route", "/topics/{topic}"), ("status", "200")})
    assert found["lakelog_http_requests_total", produced] == 1
    nowhere = frozenset({("method", "GET"), ("route", "none"), ("status", "404")})
    assert found["lakelog_http_requests_total", nowhere] == 2, "unknown paths share one series"
    assert found["lakelog_http_body_bytes", frozenset()] == found["lakelog_http_reply_bytes", frozenset()] == 0


async def test_metrics_are_written_down_where_nobody_waits_for_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[int] = []

    def watched(collector: Collector) -> bytes:
        places.append(threading.get_ident())
        return generate_latest(collector)

    monkeypatch.setattr("ingest_api.metrics.generate_latest", watched)
    assert await _metrics(served)
    assert len(places) == 1
    assert threading.get_ident() not in places


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_the_access_log_in_json(
    open_gateway: OpenGateway, caplog: pytest.LogCaptureFixture, fast_lane: bool
) -> None:
    async with open_gateway(access_log="json", fast_lane=fast_lane) as client:
        with caplog.at_level(logging.INFO, "lakelog.access"):
            await produce(client, f"{TOPIC}?acks=1", records("v"))
            await client.get("/topics/a%0Ab%22")
    first, second = (json.loads(record.getMessage()) for record in caplog.records if record.name == "lakelog.access")
    assert set(first) == {"time", "client", "method", "path", "query", "status", "bytes", "ms"}
    assert [first[name] for name in ("method", "path", "query", "status")] == ["POST", TOPIC, "acks=1", 200]
    assert (second["path"], second["status"]) == ('/topics/a\nb"', 422)


async def test_the_access_log_in_text_and_off(open_gateway: OpenGateway, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lakelog.access"):
        async with open_gateway(access_log="text") as client:
            await client.get("/topics/a%0A127.0.0.1%20GET%20/forged")
        async with open_gateway(access_log="off") as client:
            await client.get("/topics")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "lakelog.access"]
    assert "\n" not in line
    assert "GET /topics/a%0A127.0.0.1%20GET%20/forged 404" in line


async def test_cors(open_gateway: OpenGateway) -> None:
    preflight = {"Origin": "https://one.example", "Access-Control-Request-Method": "POST"}
    async with open_gateway(cors_origins="https://one.example, https://two.example") as client:
        allowed = await client.options(TOPIC, headers=preflight)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://one.example"
        other = await client.options(TOPIC, headers={**preflight, "Origin": "https://three.example"})
        assert other.status_code == 400
        reply = await produce(client, TOPIC, records("v"), Origin="https://two.example")
        assert reply.headers["access-control-allow-origin"] == "https://two.example"
        assert "Lakelog-Next-Offset" in reply.headers["access-control-expose-headers"]
    async with open_gateway(cors_origins="*") as client:
        reply = await client.get("/topics", headers={"Origin": "https://any.example"})
        assert reply.headers["access-control-allow-origin"] == "*"
    async with open_gateway() as client:
        reply = await client.get("/topics", headers={"Origin": "https://any.example"})
        assert "access-control-allow-origin" not in reply.headers
