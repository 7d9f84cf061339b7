"""Group administration over HTTP: list, describe, lag, reset, delete."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets
from tests.contract.group_members import GROUP, commit_simply, joined
from tests.http.conftest import Served
from tests.http.requests import create, error_of, send


async def test_a_group_is_listed_described_and_measured(served: Served) -> None:
    assert (await served.get("/admin/groups")).json() == []
    await create(served, "orders")
    await send(served, "orders", 1, 2, 3)
    member = await joined(served.gateway.groups, "orders")
    await member.commit({TopicPartition("orders", 0): 1})
    assert (await served.get("/admin/groups")).json() == [
        {"group_id": GROUP, "state": "Stable", "protocol_type": "consumer"}
    ]
    described = (await served.get(f"/admin/groups/{GROUP}")).json()
    (seen,) = described.pop("members")
    assert described == {
        "group_id": GROUP,
        "state": "Stable",
        "generation": 1,
        "protocol_type": "consumer",
        "protocol": "sticky",
        "leader": member.member_id,
    }
    assert (seen["topics"], seen["assignment"]) == (["orders"], [{"topic": "orders", "partition": 0}])
    (lag,) = (await served.get(f"/admin/groups/{GROUP}/lag")).json()
    assert (lag["committed"], lag["high_watermark"], lag["lag"], lag["member_id"]) == (1, 3, 2, member.member_id)


@pytest.mark.parametrize(
    ("target", "after"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 3),
        ({"offset": 2}, 2),
        ({"shift": 1}, 2),
        ({"duration_ms": 60000}, 0),
    ],
)
async def test_a_group_is_reset(served: Served, target: dict[str, Any], after: int) -> None:
    await create(served, "orders")
    await send(served, "orders", 1, 2, 3)
    key = TopicPartition("orders", 0)
    await commit_simply(served.gateway.groups, {key: 1})
    expected = [{"topic": "orders", "partition": 0, "before": 1, "after": after}]
    path = f"/admin/groups/{GROUP}/reset-offsets"
    assert (await served.post(path, json={**target, "dry_run": True})).json() == expected
    assert (await served.gateway.groups.committed(GROUP))[key].offset == 1
    assert (await served.post(path, json={**target, "topics": {"orders": [0]}})).json() == expected
    assert (await served.gateway.groups.committed(GROUP))[key].offset == after


async def test_offsets_and_groups_are_deleted(served: Served) -> None:
    await create(served, "orders", 2)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    await commit_simply(served.gateway.groups, {first: 1, second: 2})
    reply = await served.post(
        f"/admin/groups/{GROUP}/delete-offsets", json={"partitions": [{"topic": "orders", "partition": 0}]}
    )
    assert reply.json() == [{"topic": "orders", "partition": 0, "error": None}]
    assert set(await served.gateway.groups.committed(GROUP)) == {second}
    assert (await served.delete(f"/admin/groups/{GROUP}")).status_code == 204
    assert (await served.get("/admin/groups")).json() == []


async def test_a_group_id_with_slashes(served: Served) -> None:
    await create(served, "orders", 2)
    await send(served, "orders", 1)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    places = {key: (0, -1, "") for key in (first, second)}
    await served.gateway.groups.commit_offsets(CommitOffsets(group_id="team/eu/billing", offsets=places))
    at = "/admin/groups/team%2Feu%2Fbilling"
    assert (await served.get(at)).json()["group_id"] == "team/eu/billing"
    assert [each["committed"] for each in (await served.get(f"{at}/lag")).json()] == [0, 0]
    moved = await served.post(f"{at}/reset-offsets", json={"to": "latest", "topics": {"orders": [0]}})
    assert [each["topic"] for each in moved.json()] == ["orders"]
    gone = await served.post(f"{at}/delete-offsets", json={"partitions": [{"topic": "orders", "partition": 1}]})
    assert gone.json() == [{"topic": "orders", "partition": 1, "error": None}]
    assert set(await served.gateway.groups.committed("team/eu/billing")) == {first}
    assert (await served.delete(at)).status_code == 204
    assert (await served.get("/admin/groups")).json() == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/admin/groups/", None, 404, "there is no group ''"),
        ("GET", "/admin/groups/nobody", None, 404, "there is no group 'nobody'"),
        ("GET", "/admin/groups/nobody/lag", None, 404, "there is no group 'nobody'"),
        ("DELETE", "/admin/groups/nobody", None, 404, "there is no group 'nobody'"),
        ("DELETE", f"/admin/groups/{GROUP}", None, 409, "stop them, then delete it"),
        ("POST", f"/admin/groups/{GROUP}/reset-offsets", {"to": "latest"}, 409, "stop them, then reset"),
        ("POST", "/admin/groups/nobody/reset-offsets", {"to": "latest"}, 404, "there is no group 'nobody'"),
        ("POST", f"/admin/groups/{GROUP}/reset-offsets", {"to": "latest", "shift": 1}, 422, "say one of to, offset"),
        ("POST", f"/admin/groups/{GROUP}/reset-offsets", {}, 422, "say one of to, offset"),
        ("POST", "/admin/groups/g/reset-offsets", {"to": "latest", "topics": {"no": None}}, 404, "no topic 'no'"),
        ("POST", f"/admin/groups/{GROUP}/delete-offsets", {"partitions": []}, 422, "partitions"),
    ],
)
async def test_administration_that_is_refused(
    served: Served, method: str, path: str, body: Any, status: int, said: str
) -> None:
    await create(served, "orders")
    await joined(served.gateway.groups, "orders")
    refused = error_of(await served.request(method, path, json=body))
    assert refused[0] == status
    assert said in refused[2]
    assert [each.group_id for each in await served.gateway.groups.list_groups()] == [GROUP]
