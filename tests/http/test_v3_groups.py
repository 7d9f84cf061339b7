"""v3's view of consumer groups: members, assignments, lags."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets
from consumer_groups.requests import Heartbeat, JoinGroup
from consumer_groups.state import Protocol, Subscription
from tests.http.conftest import BASE_URL, Served
from tests.http.requests import create, error_of, send

GROUPS = "/v3/clusters/lakelog/consumer-groups"
BILLING = f"{GROUPS}/billing"


async def join(served: Served, topic: str, client_id: str, group_id: str = "billing") -> str:
    """A member that the coordinator serves, with all that it is to read."""
    groups = served.gateway.groups
    reply = await groups.join(
        JoinGroup(
            group_id=group_id,
            client_id=client_id,
            protocols=(Protocol("range"),),
            subscription=Subscription((topic,)),
        )
    )
    generation = reply.generation
    while True:
        beat = await groups.heartbeat(Heartbeat(group_id=group_id, member_id=reply.member_id, generation=generation))
        if beat.generation == generation and beat.assignment:
            return reply.member_id
        generation = beat.generation


async def commit(served: Served, offsets: dict[int, int]) -> None:
    places = {TopicPartition("orders", partition): (offset, -1, "") for partition, offset in offsets.items()}
    await served.gateway.groups.commit_offsets(CommitOffsets(group_id="billing", offsets=places))


async def got(served: Served, path: str) -> Any:
    reply = await served.get(path)
    assert reply.status_code == 200, reply.text
    assert reply.json()["metadata"]["self"] == f"{BASE_URL}{path}"
    return reply.json()


async def test_a_group_with_a_member(served: Served) -> None:
    await create(served, "orders", 2)
    member = await join(served, "orders", "worker")
    (group,) = (await got(served, GROUPS))["data"]
    assert group == await got(served, BILLING)
    assert (group["kind"], group["consumer_group_id"], group["state"]) == ("KafkaConsumerGroup", "billing", "STABLE")
    assert (group["is_simple"], group["partition_assignor"]) == (False, "range")
    assert group["coordinator"]["related"].endswith("/brokers/0")

    (consumer,) = (await got(served, f"{BILLING}/consumers"))["data"]
    assert consumer == await got(served, f"{BILLING}/consumers/{member}")
    assert (consumer["consumer_id"], consumer["client_id"], consumer["instance_id"]) == (member, "worker", None)

    assignments = (await got(served, f"{BILLING}/consumers/{member}/assignments"))["data"]
    assert [(each["topic_name"], each["partition_id"]) for each in assignments] == [("orders", 0), ("orders", 1)]
    one = f"{BILLING}/consumers/{member}/assignments/orders/partitions/1"
    assert assignments[1] == await got(served, one)
    assert (await served.get(assignments[1]["partition"]["related"])).status_code == 200
    # Nothing is committed yet.
    assert (await got(served, f"{BILLING}/lags"))["data"] == []
    assert error_of(await served.get(f"{BILLING}/lag-summary"))[:2] == (404, 404)


async def test_lags(served: Served) -> None:
    await create(served, "orders", 2)
    for number in range(10):
        body = {"records": [{"value": number, "partition": number % 2}]}
        assert (await served.post("/topics/orders", json=body)).status_code == 200
    await commit(served, {0: 4, 1: 1})
    lags = (await got(served, f"{BILLING}/lags"))["data"]
    assert [(each["current_offset"], each["log_end_offset"], each["lag"]) for each in lags] == [(4, 5, 1), (1, 5, 4)]
    assert lags[1] == await got(served, f"{BILLING}/lags/orders/partitions/1")
    summary = await got(served, f"{BILLING}/lag-summary")
    assert (summary["max_lag"], summary["max_lag_partition_id"], summary["total_lag"]) == (4, 1, 5)
    assert summary["max_lag_topic_name"] == "orders"
    group = await got(served, BILLING)
    assert (group["state"], group["is_simple"]) == ("EMPTY", True)


async def test_a_group_id_with_slashes(served: Served) -> None:
    await create(served, "orders")
    await send(served, "orders", 1)
    name = "team/eu/billing"
    member = await join(served, "orders", "worker", name)
    offsets = {TopicPartition("orders", 0): (0, -1, "")}
    generation = (await served.gateway.groups.describe(name)).generation
    commit = CommitOffsets(group_id=name, member_id=member, generation=generation, offsets=offsets)
    await served.gateway.groups.commit_offsets(commit)
    at = f"{GROUPS}/team%2Feu%2Fbilling"
    assert (await got(served, at))["consumer_group_id"] == name
    assert (await got(served, f"{at}/consumers"))["data"][0]["consumer_id"] == member
    of_member = f"{at}/consumers/{member}"
    (assignment,) = (await got(served, f"{of_member}/assignments"))["data"]
    assert assignment == await got(served, f"{of_member}/assignments/orders/partitions/0")
    (lag,) = (await got(served, f"{at}/lags"))["data"]
    assert lag == await got(served, f"{at}/lags/orders/partitions/0")
    assert (await got(served, f"{at}/lag-summary"))["total_lag"] == 1


@pytest.mark.parametrize(
    "path",
    [
        f"{GROUPS}/none",
        f"{GROUPS}/none/consumers",
        f"{GROUPS}/none/lags",
        f"{GROUPS}/none/lag-summary",
        f"{BILLING}/consumers/none",
        f"{BILLING}/consumers/none/assignments",
        f"{BILLING}/lags/orders/partitions/1",
        f"{BILLING}/lags/none/partitions/0",
        "/v3/clusters/other/consumer-groups",
    ],
)
async def test_what_is_not_there(served: Served, path: str) -> None:
    await create(served, "orders")
    await send(served, "orders", "v")
    await commit(served, {0: 1})
    assert error_of(await served.get(path))[:2] == (404, 404)
