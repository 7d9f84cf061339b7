"""Kafka's newer group protocol on the wire: topics by id, versions, errors, and what tools see of such a group."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
import pytest_asyncio

from consumer_groups.assignors import TopicPartition
from consumer_groups.requests import Heartbeat, JoinGroup
from consumer_groups.state import Subscription
from lakelog.errors import ErrorCode
from tests.kafka.conftest import Listening, OpenListener
from tests.kafka.plain_client import PlainClient

GROUP, TOPIC = "g", "orders"
CONSUMER = 1


@pytest_asyncio.fixture
async def topic_id(listening: Listening) -> uuid.UUID:
    return uuid.UUID((await listening.gateway.broker.admin.create_topic(TOPIC, 4)).topic_id)


async def say(client: PlainClient, member: str, epoch: int, version: int = 1, **fields: Any) -> dict[str, Any]:
    given = {"group_id": GROUP, "member_id": member, "member_epoch": epoch, "topic_partitions": None, **fields}
    return await client.ask("consumer_group_heartbeat", version, **given)


async def join(client: PlainClient, member: str, version: int = 1, **fields: Any) -> dict[str, Any]:
    everything = {"rebalance_timeout": 30_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    return await say(client, member, 0, version, **{**everything, **fields})


def owned(topic_id: uuid.UUID, numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": list(numbers)}]


def given(reply: dict[str, Any]) -> dict[uuid.UUID, list[int]]:
    return {each["topic_id"]: each["partitions"] for each in reply["assignment"]["topic_partitions"]}


async def commit(client: PlainClient, member: str, epoch: int, partition: int, offset: int) -> int:
    wanted = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    reply = await client.ask(
        "offset_commit",
        9,
        group_id=GROUP,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[{"name": TOPIC, "partitions": [wanted]}],
    )
    return int(reply["topics"][0]["partitions"][0]["error_code"])


async def committed(client: PlainClient, member: str | None, epoch: int, group: str = GROUP) -> dict[str, Any]:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    asked = {"group_id": group, "member_id": member, "member_epoch": epoch, "topics": topics}
    reply = await client.ask("offset_fetch", 9, groups=[asked])
    return dict(reply["groups"][0])


async def described(client: PlainClient, group: str = GROUP, version: int = 1) -> dict[str, Any]:
    reply = await client.ask("consumer_group_describe", version, group_ids=[group])
    return dict(reply["groups"][0])


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_is_told_its_partitions_by_the_ids_of_metadata(
    client: PlainClient, topic_id: uuid.UUID, version: int
):
    reply = await join(client, "one", version)
    assert (reply["error_code"], reply["member_id"], reply["member_epoch"]) == (0, "one", 1)
    assert reply["heartbeat_interval"] == 5_000
    assert given(reply) == {topic_id: [0, 1, 2, 3]}
    metadata = await client.ask("metadata", 12, topics=[{"name": TOPIC}])
    assert metadata["topics"][0]["topic_id"] == topic_id
    assert (await say(client, "one", 1, version))["assignment"] is None


async def test_the_server_draws_the_member_id_in_version_0_alone(client: PlainClient, topic_id: uuid.UUID):
    assert uuid.UUID((await join(client, "", version=0))["member_id"])
    assert (await join(client, ""))["error_code"] == ErrorCode.INVALID_REQUEST.number


async def test_partitions_change_hands_and_old_epochs_are_refused(client: PlainClient, topic_id: uuid.UUID):
    await join(client, "one")
    assert given(await join(client, "two")) == {}
    assert await commit(client, "one", 1, 3, 7) == 0
    kept = await say(client, "one", 1)
    assert (kept["member_epoch"], given(kept)) == (1, {topic_id: [0, 1]})
    assert (await say(client, "one", 1, topic_partitions=owned(topic_id, [0, 1])))["member_epoch"] == 2
    assert given(await say(client, "two", 2)) == {topic_id: [2, 3]}
    assert await commit(client, "one", 1, 3, 8) == ErrorCode.STALE_MEMBER_EPOCH.number
    assert await commit(client, "nobody", 1, 3, 8) == ErrorCode.UNKNOWN_MEMBER_ID.number
    assert await commit(client, "two", 2, 3, 8) == 0
    assert (await say(client, "one", 9))["error_code"] == ErrorCode.FENCED_MEMBER_EPOCH.number
    assert (await say(client, "three", 1))["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID.number


async def test_offsets_are_told_to_members_in_their_epoch_and_to_tools(client: PlainClient, topic_id: uuid.UUID):
    await join(client, "one")
    await commit(client, "one", 1, 0, 5)
    for member, epoch in (("one", 1), (None, -1)):
        reply = await committed(client, member, epoch)
        assert (reply["error_code"], reply["topics"][0]["partitions"][0]["committed_offset"]) == (0, 5)
    assert (await committed(client, "one", 2))["error_code"] == ErrorCode.STALE_MEMBER_EPOCH.number
    assert (await committed(client, "two", 1))["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID.number
    unknown = await committed(client, "one", 1, group="nobody's")
    assert (unknown["error_code"], unknown["topics"][0]["partitions"][0]["committed_offset"]) == (0, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout": -1}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
async def test_what_is_refused_says_why(
    client: PlainClient, topic_id: uuid.UUID, fields: dict[str, Any], error: ErrorCode
):
    reply = await join(client, "one", **fields)
    assert reply["error_code"] == error.number
    assert reply["error_message"]
    assert (await client.ask("list_groups", 5))["groups"] == []


async def test_a_pattern_fits_topics_that_come_later(listening: Listening, client: PlainClient, topic_id: uuid.UUID):
    reply = await join(client, "one", subscribed_topic_names=None, subscribed_topic_regex="ord.*|new")
    assert given(reply) == {topic_id: [0, 1, 2, 3]}
    created = await listening.gateway.broker.admin.create_topic("new", 1)
    assert given(await say(client, "one", 1)) == {topic_id: [0, 1, 2, 3], uuid.UUID(created.topic_id): [0]}
    await listening.gateway.broker.admin.delete_topic(TOPIC)
    reply = await say(client, "one", 2)
    assert given(reply) == {uuid.UUID(created.topic_id): [0]}
    # What it still says to have of a topic that is gone is in nobody's way.
    assert (await say(client, "one", 2, topic_partitions=owned(topic_id, [0, 1, 2, 3])))["member_epoch"] == 3


async def test_static_members_go_away_and_come_back(client: PlainClient, topic_id: uuid.UUID):
    await join(client, "one", instance_id="i")
    assert (await join(client, "two", instance_id="i"))["error_code"] == ErrorCode.UNRELEASED_INSTANCE_ID.number
    assert (await say(client, "one", -2, instance_id="i"))["member_epoch"] == -2
    assert given(await join(client, "two", instance_id="i")) == {topic_id: [0, 1, 2, 3]}
    fenced = await say(client, "one", 1, instance_id="i")
    assert fenced["error_code"] == ErrorCode.FENCED_INSTANCE_ID.number
    assert (await say(client, "two", -1, instance_id="i"))["member_epoch"] == -1


async def test_a_full_group_is_full(open_listener: OpenListener):
    async with open_listener(group_max_size="1") as listening, listening.client() as client:
        await listening.gateway.broker.admin.create_topic(TOPIC, 1)
        await join(client, "one")
        assert (await join(client, "two"))["error_code"] == ErrorCode.GROUP_MAX_SIZE_REACHED.number


async def test_tools_see_the_group_by_its_type(client: PlainClient, topic_id: uuid.UUID):
    await join(client, "one", rack_id="r", server_assignor="range")
    await join(client, "two")
    group = await described(client)
    assert (group["group_state"], group["group_epoch"], group["assignor_name"]) == ("Reconciling", 2, "range")
    one, two = group["members"]
    assert (one["member_id"], one["member_epoch"], one["rack_id"], one["member_type"]) == ("one", 1, "r", CONSUMER)
    assert one["subscribed_topic_names"] == [TOPIC]
    assert one["client_host"] == "/127.0.0.1"
    target = {"topic_id": topic_id, "topic_name": TOPIC, "partitions": [0, 1]}
    assert one["target_assignment"]["topic_partitions"] == [target]
    assert one["assignment"]["topic_partitions"] == [{**target, "partitions": [0, 1, 2, 3]}]
    assert two["assignment"]["topic_partitions"] == []
    listed = {"group_id": GROUP, "protocol_type": "consumer", "group_state": "Reconciling", "group_type": "consumer"}
    for filters in ({}, {"types_filter": ["Consumer"]}, {"states_filter": ["reconciling"]}):
        assert (await client.ask("list_groups", 5, **filters))["groups"] == [listed]
    assert (await client.ask("list_groups", 5, types_filter=["classic"]))["groups"] == []
    # The older request does not know it, and says so as far as its version can.
    for version, error in ((5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND.number)):
        older = (await client.ask("describe_groups", version, groups=[GROUP]))["groups"][0]
        assert (older["group_state"], older["error_code"]) == ("Dead", error)
    for name in ("nobody's", ""):
        assert (await described(client, name))["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND.number


async def test_a_group_of_kafkas_older_members_is_of_the_other_type(client: PlainClient, topic_id: uuid.UUID):
    fields = {"session_timeout": 10_000, "rebalance_timeout": 10_000, "protocol_type": "consumer"}
    protocols = [{"name": "by-moonlight", "metadata": b""}]
    await client.ask("join_group", 3, group_id=GROUP, member_id="", protocols=protocols, **fields)
    assert (await described(client))["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND.number
    assert (await join(client, "one", server_assignor="range"))["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND.number
    assert [each["group_type"] for each in (await client.ask("list_groups", 5))["groups"]] == ["classic"]


async def test_an_http_consumer_and_a_newer_member_share_a_group(
    listening: Listening, client: PlainClient, topic_id: uuid.UUID
):
    groups = listening.gateway.groups
    http = await groups.join(JoinGroup(group_id=GROUP, subscription=Subscription((TOPIC,))))
    assert given(await join(client, "newer")) == {}
    beat = await groups.heartbeat(Heartbeat(group_id=GROUP, member_id=http.member_id, generation=http.generation))
    assert beat.assignment == (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
    await groups.heartbeat(Heartbeat(group_id=GROUP, member_id=http.member_id, generation=beat.generation))
    assert given(await say(client, "newer", 2)) == {topic_id: [2, 3]}
    assert {each["member_type"] for each in (await described(client))["members"]} == {CONSUMER}
    await say(client, "newer", -1)
    beat = await groups.heartbeat(Heartbeat(group_id=GROUP, member_id=http.member_id, generation=beat.generation))
    assert len(beat.assignment) == 4


async def test_members_go_on_in_the_next_process(open_listener: OpenListener):
    async with open_listener() as listening, listening.client() as client:
        await listening.gateway.broker.admin.create_topic(TOPIC, 2)
        first = given(await join(client, "one"))
        assert await commit(client, "one", 1, 0, 3) == 0
    async with open_listener() as listening, listening.client() as client:
        (topic_id,) = first
        reply = await say(client, "one", 1, topic_partitions=owned(topic_id, [0, 1]))
        assert (reply["member_epoch"], given(reply)) == (1, first)
        assert await commit(client, "one", 1, 0, 4) == 0
        assert await commit(client, "one", 2, 0, 5) == ErrorCode.STALE_MEMBER_EPOCH.number


@pytest.mark.parametrize("version", range(1, 10))
async def test_offsets_are_told_in_every_version(client: PlainClient, topic_id: uuid.UUID, version: int):
    await join(client, "one")
    await commit(client, "one", 1, 0, 5)
    asked = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    reply = await client.ask("offset_fetch", version, **(asked if version < 8 else {"groups": [asked]}))
    found = reply if version < 8 else reply["groups"][0]
    assert found["topics"][0]["partitions"][0]["committed_offset"] == 5
