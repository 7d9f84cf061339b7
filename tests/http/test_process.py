"""The gateway as a process: killed and stopped under load, slow readers and readers who leave, settings."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import PATIENCE_S, command, environment, gateway
from tests.http.requests import JSON, records

pytestmark = pytest.mark.e2e

PRODUCERS, BATCHES, RECORDS = 8, 40, 3
KILLS = (40, 150)  # after so many acknowledgements


def _gauge(url: str, name: str) -> float:
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    return next(family.samples[0].value for family in families if family.name == name)


def _all_values(url: str, topic: str) -> list[str]:
    reply = httpx.get(f"{url}/topics/{topic}/records?max_bytes=50000000", timeout=PATIENCE_S)
    rows = reply.json()
    assert [row["offset"] for row in rows] == list(range(len(rows))), "dense, unique, in order"
    return [row["value"] for row in rows]


async def test_killed_under_load_every_acknowledged_record_is_there_once(tmp_path: Path) -> None:
    with gateway(tmp_path, {"access_log": "off"}) as server:
        acknowledged: dict[str, int] = {}
        lives = asyncio.Condition()
        life = 0

        def lives_after(before: int) -> bool:
            return life > before

        def has_acknowledged(batches: int) -> bool:
            return len(acknowledged) >= batches * RECORDS

        async def produce(client: httpx.AsyncClient, number: int) -> None:
            """Batches one after the other; one that was not answered is sent again when the gateway is back."""
            for batch in range(BATCHES):
                values = [f"{number}/{batch}/{n}" for n in range(RECORDS)]
                headers = {
                    "Content-Type": JSON,
                    "Lakelog-Producer-Id": str(number + 1),
                    "Lakelog-Sequence": str(batch * RECORDS),
                }
                while True:
                    begun = life
                    try:
                        reply = await client.post("/topics/orders", content=records(*values), headers=headers)
                    except httpx.TransportError:
                        async with lives:
                            await lives.wait_for(partial(lives_after, begun))
                        continue
                    assert reply.status_code == 200, reply.text
                    break
                for value, place in zip(values, reply.json()["offsets"], strict=True):
                    acknowledged[value] = place["offset"]
                async with lives:
                    lives.notify_all()

        async def kill_now_and_then() -> None:
            nonlocal life
            for count in KILLS:
                async with lives:
                    await lives.wait_for(partial(has_acknowledged, count))
                server.kill()
                await asyncio.to_thread(server.start)
                async with lives:
                    life += 1
                    lives.notify_all()

        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
            await asyncio.gather(kill_now_and_then(), *(produce(client, number) for number in range(PRODUCERS)))

        values = await asyncio.to_thread(_all_values, server.url, "orders")
        assert len(values) == len(set(values)) == PRODUCERS * BATCHES * RECORDS
        assert {value: offset for offset, value in enumerate(values)} == acknowledged


async def test_told_to_stop_under_load_it_answers_what_it_has_and_loses_nothing(tmp_path: Path) -> None:
    with gateway(tmp_path, {"access_log": "off"}) as server:
        acknowledged: list[str] = []
        enough = asyncio.Event()

        async def produce(client: httpx.AsyncClient, number: int) -> None:
            for batch in range(10**6):
                value = f"{number}/{batch}"
                try:
                    # A connection each: one that is accepted is answered, and then there are no more.
                    headers = {"Content-Type": JSON, "Connection": "close"}
                    reply = await client.post("/topics/orders", content=records(value), headers=headers)
                except httpx.TransportError:
                    return
                assert reply.status_code == 200, reply.text
                acknowledged.append(value)
                if len(acknowledged) > 200:
                    enough.set()

        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
            load = [asyncio.create_task(produce(client, number)) for number in range(PRODUCERS)]
            await enough.wait()
            server.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*load)
        assert await asyncio.to_thread(server.process.wait, PATIENCE_S) == 0
        server.start()
        values = await asyncio.to_thread(_all_values, server.url, "orders")
        assert len(values) == len(set(values))
        assert set(acknowledged) <= set(values)


def _connected(server: LocalGateway, **options: int) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.settimeout(PATIENCE_S)
    for name, value in options.items():
        connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    try:
        connection.connect((host, int(port)))
    except OSError:
        connection.close()
        raise
    return connection


def _refuses_connections(server: LocalGateway) -> bool:
    try:
        _connected(server).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # right at the moment when the door shut
        return False
    return False


def _rest(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_requests_under_way_are_answered_when_it_stops(tmp_path: Path) -> None:
    body = records("late")
    head = f"POST /topics/orders HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    with gateway(tmp_path, {"access_log": "off", "heartbeat_ms": "50"}) as server:
        assert httpx.post(f"{server.url}/topics/orders", json={"records": [{"value": 0}]}).status_code == 200
        with _connected(server) as half, _connected(server) as poll, _connected(server) as stream:
            half.sendall(head.encode() + body[:5])
            poll.sendall(b"GET /topics/orders/records?offset=latest&timeout=60000 HTTP/1.1\r\nHost: x\r\n\r\n")
            stream.sendall(b"GET /topics/orders/stream HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n")
            streamed = b""
            while b'"offset":0' not in streamed:
                streamed += stream.recv(65536)
            while _gauge(server.url, "lakelog_http_requests_active") < 4:  # these three and the question itself
                pass
            server.process.send_signal(signal.SIGTERM)
            while not _refuses_connections(server):
                pass
            half.sendall(body[5:])
            answers = {"half": _rest(half), "poll": _rest(poll), "stream": streamed + _rest(stream)}
        assert server.process.wait(PATIENCE_S) == 0
    assert answers["half"].startswith(b"HTTP/1.1 200")
    assert b'"offset":1' in answers["half"]
    assert answers["poll"].startswith(b"HTTP/1.1 200")
    assert answers["poll"].endswith(b"[]")
    assert answers["stream"].endswith(b"0\r\n\r\n"), "a stream ends as a reply that is whole"


def test_one_that_does_not_finish_is_not_waited_for(tmp_path: Path) -> None:
    with gateway(tmp_path, {"access_log": "off", "stop_timeout_ms": "1000"}) as server, _connected(server) as half:
        half.sendall(b"POST /topics/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        half.sendall(b"Content-Length: 100\r\n\r\n{")
        while _gauge(server.url, "lakelog_http_requests_active") < 2:
            pass
        assert server.stop() == 0


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """A gateway with room for one large reply, and 30 MB of records to fetch."""
    settings = {
        "access_log": "off",
        "replies_bytes_max": "40000000",
        "replies_wait_ms": "50",
        "reply_timeout_ms": "1000",
        "heartbeat_ms": "50",
    }
    with gateway(tmp_path_factory.mktemp("bounded"), settings) as server:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
            for _ in range(6):
                body = records(*["x" * 1_000_000] * 5)
                reply = client.post("/topics/large", content=body, headers={"Content-Type": JSON})
                assert reply.status_code == 200, reply.text
        yield server


def test_a_slow_reader_holds_no_more_than_there_is_room_for_and_is_let_go(bounded: LocalGateway) -> None:
    large = f"{bounded.url}/topics/large/records?max_bytes=30000000"
    with _connected(bounded, SO_RCVBUF=4096) as slow:
        slow.sendall(b"GET /topics/large/records?max_bytes=30000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert 25_000_000 < _gauge(bounded.url, "lakelog_http_reply_bytes") <= 40_000_000
        refused = httpx.get(large, timeout=PATIENCE_S)
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        small = httpx.get(f"{bounded.url}/topics/large/records?max_bytes=1", timeout=PATIENCE_S)
        assert len(small.json()) == 1
        while _gauge(bounded.url, "lakelog_http_reply_bytes"):
            pass
    reply = httpx.get(large, timeout=PATIENCE_S)
    assert reply.status_code == 200
    assert len(reply.json()) > 25
    assert "did not take its reply" in bounded.log


def test_readers_who_leave_are_forgotten(bounded: LocalGateway) -> None:
    paths = ("stream", "stream?offset=latest", "records?offset=latest&timeout=60000", "records?max_bytes=30000000")
    for path in paths:
        with _connected(bounded, SO_RCVBUF=4096) as leaving:
            accept = "application/x-ndjson" if path.startswith("stream") else JSON
            leaving.sendall(f"GET /topics/large/{path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n".encode())
            while _gauge(bounded.url, "lakelog_http_requests_active") < 2:
                pass
        while _gauge(bounded.url, "lakelog_http_requests_active") > 1:
            pass
    assert _gauge(bounded.url, "lakelog_http_reply_bytes") == 0


def test_a_stream_is_live_and_beats_while_nothing_comes(bounded: LocalGateway) -> None:
    with httpx.Client(base_url=bounded.url, timeout=PATIENCE_S) as client:
        assert client.post("/admin/topics", json={"topic_name": "live"}).status_code == 201
        headers = {"Accept": "text/event-stream"}
        with client.stream("GET", "/topics/live/stream?offset=latest", headers=headers) as reply:
            lines = reply.iter_lines()
            assert next(lines).startswith(":"), "a sign of life"
            client.post("/topics/live", json={"records": [{"value": "now"}]})
            found = [line for line in iter(lambda: next(lines), "id: 0:1") if line and not line.startswith(":")]
            assert found == []
            assert json.loads(next(lines).removeprefix("data: "))["value"] == "now"


def _lines_of(process: subprocess.Popen[str], wanted: str) -> str:
    """The first line of its output in which the pattern is found."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(wanted, line):
            return found[1]
    raise AssertionError(f"it ended with {process.wait()} and without a line like {wanted}")


def test_settings_come_from_a_file_the_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'warehouse = "{tmp_path / "w"}"\naccess_log = "json"\nrequests_max = 7\nfsync = true\n')
    surroundings = {**environment(""), "LAKELOG_ACCESS_LOG": "text", "LAKELOG_HEARTBEAT_MS": "77"}
    arguments = ("--config", str(file), "--heartbeat-ms", "88", "--http", "127.0.0.1:0", "--kafka", "none")
    shown = subprocess.run(
        command("config", "--json", *arguments), env=surroundings, capture_output=True, check=True, timeout=PATIENCE_S
    )
    entries: Mapping[str, Any] = {entry["name"]: entry for entry in map(json.loads, shown.stdout.splitlines())}
    wanted = {
        "requests_max": ("7", str(file)),
        "fsync": ("true", str(file)),
        "access_log": ("text", "environment"),
        "heartbeat_ms": ("88", "flag"),
        "num_partitions": ("1", "default"),
    }
    assert {name: (entries[name]["value"], entries[name]["source"]) for name in wanted} == wanted

    # And a process runs with them: its log is text.
    process = subprocess.Popen(command("serve", *arguments), env=surroundings, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(PATIENCE_S, process.kill)
    watchdog.start()
    try:
        url = _lines_of(process, r"on (http://\S+)$")
        assert httpx.get(f"{url}/topics").json() == []
        assert _lines_of(process, r"GET (/topics) 200") == "/topics"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("flags", "variables", "file", "words"),
    [
        (["--requests-max", "none"], {}, "", "requests_max is 'none', but it takes a whole number"),
        (["--access-log", "xml"], {}, "", "access_log is 'xml'"),
        (["--http", "8082"], {"LAKELOG_REQUESTS_MAX": "0"}, "", "requests_max is '0'"),
        (["--http", "host:many"], {}, "", "http is 'host:many', but it takes an address as HOST:PORT"),
        ([], {}, "reqests_max = 1", "did you mean requests_max"),
        ([], {}, "requests_max =", "is not TOML"),
        ([], {}, "storage = 1", "[storage]"),
        (["--config", "nowhere.toml"], {}, "", "nowhere.toml can't be read"),
        (["--nonsense", "1"], {}, "", "--nonsense"),
    ],
)
def test_a_bad_setting_is_named_and_ends_with_2(
    tmp_path: Path, flags: list[str], variables: dict[str, str], file: str, words: str
) -> None:
    if file:
        (tmp_path / "bad.toml").write_text(file)
        variables = {"LAKELOG_CONFIG": "bad.toml", **variables}
    ended = subprocess.run(
        command("serve", *flags),
        env={**environment(""), **variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 2, ended.stderr
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    assert os.listdir(tmp_path) == (["bad.toml"] if file else []), "nothing was begun"


@pytest.mark.parametrize("place", ["port", "warehouse", "scheme"])
def test_what_can_not_be_had_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if place == "port" else 0
        warehouse = {"port": "warehouse", "warehouse": "file/warehouse", "scheme": "ftp://host/x"}[place]
        ended = subprocess.run(
            command("serve", "--http", f"127.0.0.1:{port}", "--warehouse", warehouse),
            env=environment(""),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert ended.returncode == 1, ended.stderr
    assert f"127.0.0.1:{port}" in ended.stderr if place == "port" else warehouse in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == "", "it does not greet before it can serve"
