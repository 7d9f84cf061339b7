"""The console's page and files, and the routes that it has for itself."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace

import pytest

from compaction_jobs.journal import Journal
from compaction_jobs.outcome import Amount, Outcome
from ingest_api.ui.assets import assets
from ingest_api.ui.lag_history import LagHistory
from ingest_api.ui.rates import Rates
from ingest_api.ui.segments import segment_columns
from lakelog.clock import SystemClock
from lakelog.delta.state import CLEANER_APP
from tests.http.conftest import Served
from tests.http.requests import create, error_of, send


async def test_the_page_names_files_that_are_there_and_are_kept_for_ever(served: Served) -> None:
    moved = await served.get("/ui")
    assert (moved.status_code, moved.headers["location"]) == (307, "ui/")
    page = await served.get("/ui/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(named) >= 5
    for path in named:
        reply = await served.get(f"/ui/{path}", headers={"Accept-Encoding": "gzip"})
        assert reply.status_code == 200, path
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["content-encoding"] == "gzip"
    again = await served.get("/ui/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_files_of_another_version_are_not_kept(served: Served) -> None:
    reply = await served.get("/ui/static/000000000000/main.js", headers={"Accept-Encoding": "identity"})
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
    for path in ("/ui/static/x/none.js", "/ui/static/x/../routes.py", "/ui/static/x/%2e%2e/routes.py", "/ui/static/x/"):
        assert error_of(await served.get(path))[0] == 404


def test_nothing_comes_from_outside_and_every_module_is_there() -> None:
    _, found = assets()
    for name, asset in found.items():
        assert gzip.decompress(asset.packed) == asset.content
        text = asset.content.decode()
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name
        folder = name.rpartition("/")[0].split("/") if "/" in name else []
        for imported in re.findall(r'from "(\.[^"]+)"', text):
            steps = list(folder)
            for step in imported.split("/"):
                if step == "..":
                    steps.pop()
                elif step != ".":
                    steps.append(step)
            assert "/".join(steps) in found, f"{name} imports {imported}"


async def test_topics_in_figures(served: Served) -> None:
    assert (await served.get("/ui/api/topics")).json() == {"topics": []}
    await create(served, "orders", 2, **{"retention.ms": "1000"})
    await send(served, "orders", "a", "b", "c")
    (topic,) = (await served.get("/ui/api/topics")).json()["topics"]
    assert (topic["name"], topic["partitions"], topic["records"], topic["segments"]) == ("orders", 2, 3, 1)
    assert (topic["cleanup_policy"], topic["retention_ms"], topic["internal"]) == ("delete", 1000, False)
    assert topic["bytes"] > 0
    assert topic["max_timestamp_ms"] > 0
    assert (await served.get("/ui/api/topics/orders")).json() == topic
    assert error_of(await served.get("/ui/api/topics/none"))[:2] == (404, 40401)


async def test_records_are_those_that_are_there(served: Served) -> None:
    async def counted() -> int:
        records: int = (await served.get("/ui/api/topics/orders")).json()["records"]
        return records

    await create(served, "orders")
    await send(served, "orders", "a", "b", "c", "d")
    await send(served, "orders", "e")
    # The file stays as long as a record of it is served.
    assert (await served.post("/admin/topics/orders/delete-records", json={"offsets": {"0": 1}})).status_code == 200
    assert await counted() == 4
    part = (await served.gateway.broker.topics.get("orders")).state.partitions[0]
    part.segments[0] = replace(part.segments[0], records=2)  # as compaction leaves it
    assert await counted() == 3


async def test_throughput(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sums(path: str) -> dict[str, int]:
        body = (await served.get(path)).json()
        assert len(set(map(len, body["counts"].values()))) == 1
        assert body["end_ms"] % body["interval_ms"] == 0
        return {flow: sum(counts) for flow, counts in body["counts"].items()}

    await send(served, "orders", "a", "b")
    await send(served, "returns", "c")
    await served.get("/topics/orders/records")
    # What is under way now is not shown before its interval is over.
    over = Rates(SystemClock().now_ms).interval + 1
    monkeypatch.setattr(Rates, "interval", property(lambda _: over))
    everything, orders = await sums("/ui/api/throughput"), await sums("/ui/api/throughput?topic=orders")
    assert (everything["records_in"], everything["records_out"]) == (3, 2)
    assert (orders["records_in"], orders["records_out"]) == (2, 2)
    assert everything["bytes_in"] > orders["bytes_in"] > 0
    assert everything["bytes_out"] == orders["bytes_out"] > 0
    assert set((await sums("/ui/api/throughput?topic=none")).values()) == {0}


async def test_files_as_columns(served: Served) -> None:
    await create(served, "orders", 2)
    await send(served, "orders", "a", "b")
    await send(served, "orders", "c")
    parts = (await served.get("/ui/api/topics/orders/segments")).json()["partitions"]
    assert [each["partition"] for each in parts] == [0, 1]
    assert sum(sum(each["records"]) for each in parts) == 3
    for part in parts:
        assert part["state"] == ["active"] * len(part["file"])
        assert [file.split("/")[0] for file in part["file"]] == [f"partition={part['partition']}"] * len(part["file"])
    only = (await served.get("/ui/api/topics/orders/segments?partition=1")).json()["partitions"]
    assert only == parts[1:]
    assert error_of(await served.get("/ui/api/topics/orders/segments?partition=2"))[:2] == (404, 40402)
    assert error_of(await served.get("/ui/api/topics/none/segments"))[:2] == (404, 40401)


@pytest.mark.parametrize(
    ("policy", "expected"), [("delete", ["sealed", "active"]), ("compact", ["clean", "dirty", "active"])]
)
async def test_states_of_files(served: Served, policy: str, expected: list[str]) -> None:
    await create(served, "orders", 1, **{"cleanup.policy": policy})
    for number in range(3):
        await served.post("/topics/orders", json={"records": [{"key": "k", "value": number, "timestamp": number}]})
    state = (await served.gateway.broker.topics.get("orders")).state
    state.txns[f"{CLEANER_APP}0"] = 1
    segment_ms = state.config.segment_ms
    # At this time the first two have rolled and the last one has not.
    columns = segment_columns(state, 0, segment_ms + 1)
    assert list(dict.fromkeys(columns["state"])) == expected
    assert columns["cleaned_up_to"] == (1 if policy == "compact" else None)


async def test_groups_in_figures_and_their_lag_over_time(served: Served) -> None:
    await create(served, "orders", 2)
    await send(served, "orders", "a", "b", "c")
    reset = {"to": "earliest", "topics": {"orders": None}}
    assert (await served.post("/admin/groups/billing/reset-offsets", json=reset)).status_code == 200
    (group,) = (await served.get("/ui/api/groups")).json()["groups"]
    assert group == {
        "group_id": "billing",
        "state": "Empty",
        "members": 0,
        "topics": ["orders"],
        "lag": 3,
        "partitions": 2,
    }
    history = LagHistory(served.gateway.groups, served.gateway.broker.clock)
    assert history.of("billing") == ([], {})
    await history.sample()
    await send(served, "orders", "d")
    await history.sample()
    times_ms, lags = history.of("billing")
    assert len(times_ms) == 2
    assert [sum(each or 0 for each in at) for at in zip(*lags.values(), strict=True)] == [3, 4]
    body = (await served.get("/ui/api/groups/billing/lag-history")).json()
    assert set(body) == {"times_ms", "lags"}
    assert (await served.get("/ui/api/groups/none/lag-history")).json()["lags"] == []


async def test_jobs(served: Served) -> None:
    none = (await served.get("/ui/api/jobs")).json()
    assert none == {"due": [], "waiting": [], "partitions": 0, "runs": []}
    await create(served, "old", 1, **{"retention.ms": "1", "segment.ms": "1"})
    await served.post("/topics/old", json={"records": [{"value": 1, "timestamp": 1}, {"value": 2, "timestamp": 2}]})
    broker = served.gateway.broker
    outcome = Outcome(
        job="merge", topic="old", partition=0, reason="small", before=Amount(9, 90, 5), after=Amount(1, 50, 5)
    )
    for run, started_ms in (("first", 1000), ("second", 2000)):
        await Journal(broker.store, broker.clock).write(run, started_ms, [outcome])
    body = (await served.get("/ui/api/jobs")).json()
    assert [(each["topic"], each["partition"], each["job"]) for each in body["due"]] == [("old", 0, "retention")]
    assert [(each["run"], each["started_at_ms"]) for each in body["runs"]] == [("second", 2000), ("first", 1000)]
    assert (body["runs"][0]["bytes_before"], body["runs"][0]["bytes_after"], body["partitions"]) == (90, 50, 1)


async def test_runs_are_read_again_only_when_there_are_others(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = served.gateway.broker
    outcome = Outcome(job="merge", topic="old", partition=0, reason="small", before=Amount(), after=Amount())
    journal = Journal(broker.store, broker.clock)
    read: list[str] = []
    get = broker.store.get

    async def noted(path: str) -> bytes | None:
        read.append(path)
        return await get(path)

    async def look() -> list[str]:
        read.clear()
        runs = (await served.get("/ui/api/jobs")).json()["runs"]
        return [each["run"] for each in runs]

    monkeypatch.setattr(broker.store, "get", noted)
    for run in ("first", "second"):
        await journal.write(run, broker.clock.now_ms(), [outcome])
        assert run in await look()
        assert any(path.endswith(".parquet") for path in read)
        assert run in await look()
        assert not any(path.endswith(".parquet") for path in read)
