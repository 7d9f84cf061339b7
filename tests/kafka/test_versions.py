"""Every request in every version that is announced, from those of Kafka 2.x on: asked, and answered with sense.

A version's request has the fields that it knows of those that are given, so each exchange is written once.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Awaitable, Callable
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import pytest
from kio.static.constants import EntityType

from ingest_api.kafka.apis import APIS
from lakelog.errors import ErrorCode
from tests.kafka.asking import produced, topic, values
from tests.kafka.conftest import Listening
from tests.kafka.plain_client import PlainClient, batch, payload, to_fetch, to_produce

TOPIC, GROUP = "t", "g"
NEWEST = {api.name: api.newest for api in APIS.values()}


class World(NamedTuple):
    """A topic of two partitions with one record in the first of them, and a group that has read it."""

    listening: Listening
    client: PlainClient
    topic_id: uuid.UUID

    async def ask(self, api: str, version: int | None = None, **fields: Any) -> dict[str, Any]:
        version = NEWEST[api] if version is None else version
        return await self.client.ask(api, version, **_known(payload(api, version, EntityType.request), fields))


Exchange: TypeAlias = Callable[[World, int], Awaitable[None]]


def _known(cls: Any, fields: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {
        each.name: _known_part(hints[each.name], fields[each.name])
        for each in dataclasses.fields(cls)
        if each.name in fields
    }


def _known_part(hint: Any, value: Any) -> Any:
    kind = next((each for each in get_args(hint) if each is not NoneType), hint) if get_origin(hint) else hint
    if isinstance(value, list):
        inner = get_args(hint)[0] if get_origin(hint) is tuple else get_args(kind)[0]
        return [_known_part(inner, each) for each in value]
    return _known(kind, value) if isinstance(value, dict) else value


async def produce(world: World, version: int) -> None:
    reply = await world.ask("produce", version, **to_produce((TOPIC, 1, batch(b"%d" % version))))
    (found,) = reply["responses"][0]["partition_responses"]
    assert (found["index"], found["error_code"], found["base_offset"]) == (1, 0, version - APIS[0].oldest)


async def fetch(world: World, version: int) -> None:
    wanted = to_fetch((TOPIC, 0, 0))
    wanted["topics"][0]["topic_id"] = world.topic_id
    (found,) = (await world.ask("fetch", version, **wanted))["responses"]
    assert found.get("topic", TOPIC) == TOPIC
    assert found.get("topic_id", world.topic_id) == world.topic_id
    assert (found["partitions"][0]["error_code"], found["partitions"][0]["high_watermark"]) == (0, 1)
    assert values(found["partitions"][0]["records"]) == [b"x"]


async def list_offsets(world: World, version: int) -> None:
    asked = [{"partition_index": 0, "timestamp": each} for each in (-2, -1, 0)]
    reply = await world.ask("list_offsets", version, topics=[{"name": TOPIC, "partitions": asked}])
    found = reply["topics"][0]["partitions"]
    assert [(each["error_code"], each["offset"]) for each in found] == [(0, 0), (0, 1), (0, 0)]


async def metadata(world: World, version: int) -> None:
    for asked in ([{"name": TOPIC, "topic_id": None}], [] if version == 0 else None):
        reply = await world.ask("metadata", version, topics=asked)
        assert [(each["node_id"], each["port"]) for each in reply["brokers"]] == [(0, world.listening.port)]
        (found,) = reply["topics"]
        assert (found["name"], found["error_code"]) == (TOPIC, 0)
        assert found.get("topic_id", world.topic_id) == world.topic_id
        assert found.get("is_internal", False) is False
        assert [(each["partition_index"], each["leader_id"]) for each in found["partitions"]] == [(0, 0), (1, 0)]
        assert reply.get("cluster_id", "lakelog") == "lakelog"
        assert reply.get("controller_id", 0) == 0
    if version < 4:  # from then on it is for the client to say
        reply = await world.ask("metadata", version, topics=[{"name": f"new-{version}"}])
        assert [(each["name"], each["error_code"]) for each in reply["topics"]] == [(f"new-{version}", 0)]
        await world.ask("delete_topics", 5, topic_names=[f"new-{version}"])


async def offset_commit(world: World, version: int) -> None:
    commit = {"partition_index": 1, "committed_offset": version, "committed_metadata": "here"}
    reply = await world.ask(
        "offset_commit",
        version,
        group_id="by version",
        generation_id_or_member_epoch=-1,
        topics=[{"name": TOPIC, "partitions": [commit]}],
    )
    assert reply["topics"] == [{"name": TOPIC, "partitions": [{"partition_index": 1, "error_code": 0}]}]
    assert await _committed(world, "by version", 1) == version


async def _committed(world: World, group: str, partition: int, version: int = 9) -> int:
    asked = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [partition]}]}
    reply = await world.ask("offset_fetch", version, **asked, groups=[asked])
    found = (reply["groups"][0] if version >= 8 else reply)["topics"][0]["partitions"][0]
    assert found["error_code"] == 0
    return int(found["committed_offset"])


async def offset_fetch(world: World, version: int) -> None:
    assert await _committed(world, GROUP, 0, version) == 1
    assert await _committed(world, "nobody's", 0, version) == -1


async def find_coordinator(world: World, version: int) -> None:
    for key_type, error in ((0, 0), (1, ErrorCode.INVALID_REQUEST.number)):
        if key_type == 1 and version == 0:
            continue  # which has groups only
        reply = await world.ask("find_coordinator", version, key=GROUP, coordinator_keys=[GROUP], key_type=key_type)
        (found,) = reply.get("coordinators", [reply])
        assert found["error_code"] == error
        here = (0, world.listening.host, world.listening.port)
        assert (found["node_id"], found["host"], found["port"]) == (here if not error else (-1, "", -1))


async def life_of_a_member(world: World, group: str, **versions: int) -> None:
    """Joins alone, leads, is assigned what it says, goes on, commits and leaves."""
    joining = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"mine"}],
    }
    join = versions.get("join_group", NEWEST["join_group"])
    joined = await world.ask("join_group", join, **joining, member_id="")
    if join >= 4:
        assert joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED.number
        joined = await world.ask("join_group", join, **joining, member_id=joined["member_id"])
    member = {"group_id": group, "member_id": joined["member_id"], "generation_id": joined["generation_id"]}
    assert (joined["error_code"], joined["leader"], joined["protocol_name"]) == (0, joined["member_id"], "range")
    assert joined.get("protocol_type", "consumer") == "consumer"
    assert [(each["member_id"], each["metadata"]) for each in joined["members"]] == [(joined["member_id"], b"mine")]
    assigned = {"member_id": joined["member_id"], "assignment": b"all of it"}
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    synced = await world.ask("sync_group", versions.get("sync_group"), **member, **names, assignments=[assigned])
    assert (synced["error_code"], synced["assignment"]) == (0, b"all of it")
    assert (await world.ask("heartbeat", versions.get("heartbeat"), **member))["error_code"] == 0
    stale = {**member, "generation_id": joined["generation_id"] + 1}
    refused = await world.ask("heartbeat", versions.get("heartbeat"), **stale)
    assert refused["error_code"] == ErrorCode.ILLEGAL_GENERATION.number
    commit = {"partition_index": 0, "committed_offset": 1}
    commits = {"generation_id_or_member_epoch": joined["generation_id"], "topics": [{"name": TOPIC}]}
    commits["topics"][0]["partitions"] = [commit]
    committed = await world.ask("offset_commit", versions.get("offset_commit"), **member, **commits)
    assert committed["topics"][0]["partitions"][0]["error_code"] == 0
    left = await world.ask(
        "leave_group", versions.get("leave_group"), **member, members=[{"member_id": member["member_id"]}]
    )
    assert [each["error_code"] for each in (left, *left.get("members", ()))] in ([0], [0, 0])
    gone = await world.ask("heartbeat", versions.get("heartbeat"), **member)
    assert gone["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID.number


def in_a_life(api: str) -> Exchange:
    async def exchange(world: World, version: int) -> None:
        await life_of_a_member(world, f"{api} {version}", **{api: version})

    return exchange


async def commits_in_and_out_of_a_life(world: World, version: int) -> None:
    await offset_commit(world, version)
    await life_of_a_member(world, f"commits {version}", offset_commit=version)


async def describe_groups(world: World, version: int) -> None:
    reply = await world.ask("describe_groups", version, groups=[GROUP, "nobody's"])
    assert [each["group_state"] for each in reply["groups"]] == ["Empty", "Dead"]
    missing = ErrorCode.GROUP_ID_NOT_FOUND.number if version >= 6 else 0
    assert [each["error_code"] for each in reply["groups"]] == [0, missing]


async def list_groups(world: World, version: int) -> None:
    for since, filters in ((0, {}), (4, {"states_filter": ["Stable"]}), (5, {"types_filter": ["consumer"]})):
        if version >= since:
            reply = await world.ask("list_groups", version, **filters)
            assert reply["error_code"] == 0
            assert [each["group_id"] for each in reply["groups"]] == ([] if filters else [GROUP])


async def api_versions(world: World, version: int) -> None:
    reply = await world.ask("api_versions", version, client_software_name="plain", client_software_version="1")
    assert reply["error_code"] == 0
    assert {each["api_key"] for each in reply["api_keys"]} == APIS.keys()


async def create_topics(world: World, version: int) -> None:
    new = {"name": f"new-{version}", "num_partitions": 2, "replication_factor": 1}
    configs = [{"name": "retention.ms", "value": "1000"}]
    for error in (0, ErrorCode.TOPIC_ALREADY_EXISTS.number):
        (made,) = (await world.ask("create_topics", version, topics=[{**new, "configs": configs}]))["topics"]
        assert (made["name"], made["error_code"]) == (new["name"], error)
        if not error:
            assert made.get("num_partitions", 2) == 2
            assert made.get("topic_id") != uuid.UUID(int=0)


async def delete_topics(world: World, version: int) -> None:
    await topic(world.client, "old")
    asked = {"topics": [{"name": "old", "topic_id": None}], "topic_names": ["old"]}
    for error in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number):
        (gone,) = (await world.ask("delete_topics", version, **asked))["responses"]
        assert (gone["name"], gone["error_code"]) == ("old", error)


async def delete_records(world: World, version: int) -> None:
    places = [{"partition_index": 0, "offset": 1}, {"partition_index": 0, "offset": 9}]
    reply = await world.ask("delete_records", version, topics=[{"name": TOPIC, "partitions": places}])
    found = reply["topics"][0]["partitions"]
    assert [(each["low_watermark"], each["error_code"]) for each in found] == [
        (1, 0),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE.number),
    ]


async def init_producer_id(world: World, version: int) -> None:
    reply = await world.ask("init_producer_id", version, transactional_id=None)
    assert (reply["error_code"], reply["producer_epoch"]) == (0, 0)
    assert reply["producer_id"] > 0


async def offset_for_leader_epoch(world: World, version: int) -> None:
    places = [{"partition": 0, "leader_epoch": 0}, {"partition": 7, "leader_epoch": 0}]
    reply = await world.ask("offset_for_leader_epoch", version, topics=[{"topic": TOPIC, "partitions": places}])
    found = reply["topics"][0]["partitions"]
    assert [(each["end_offset"], each["error_code"]) for each in found] == [(1, 0), (-1, 3)]


async def describe_configs(world: World, version: int) -> None:
    asked = {"resource_type": 2, "configuration_keys": ["retention.ms"]}
    names = (TOPIC, "nowhere")
    reply = await world.ask("describe_configs", version, resources=[{**asked, "resource_name": name} for name in names])
    assert [each["error_code"] for each in reply["results"]] == [0, 3]
    assert [each["name"] for each in reply["results"][0]["configs"]] == ["retention.ms"]


async def _retention(world: World) -> str:
    asked = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": ["retention.ms"]}
    (found,) = (await world.ask("describe_configs", resources=[asked]))["results"]
    return str(found["configs"][0]["value"])


async def alter_configs(world: World, version: int) -> None:
    config = {"name": "retention.ms", "value": str(1_000 + version), "config_operation": 0}
    asked = [{"resource_type": 2, "resource_name": TOPIC, "configs": [config]}]
    (altered,) = (await world.ask("alter_configs", version, resources=asked))["responses"]
    assert (altered["resource_name"], altered["error_code"]) == (TOPIC, 0)
    assert await _retention(world) == str(1_000 + version)


async def incremental_alter_configs(world: World, version: int) -> None:
    config = {"name": "retention.ms", "value": str(2_000 + version), "config_operation": 0}
    asked = [{"resource_type": 2, "resource_name": TOPIC, "configs": [config]}]
    (altered,) = (await world.ask("incremental_alter_configs", version, resources=asked))["responses"]
    assert (altered["resource_name"], altered["error_code"]) == (TOPIC, 0)
    assert await _retention(world) == str(2_000 + version)


async def describe_log_dirs(world: World, version: int) -> None:
    reply = await world.ask("describe_log_dirs", version, topics=None)
    (found,) = reply["results"]
    assert (found["error_code"], [each["name"] for each in found["topics"]]) == (0, [TOPIC])
    assert found["topics"][0]["partitions"][0]["partition_size"] > 0


async def create_partitions(world: World, version: int) -> None:
    for count, error in ((3 + version, 0), (1, ErrorCode.INVALID_PARTITIONS.number)):
        asked = [{"name": TOPIC, "count": count, "assignments": None}]
        (grown,) = (await world.ask("create_partitions", version, topics=asked))["results"]
        assert (grown["name"], grown["error_code"]) == (TOPIC, error)
    described = await world.ask("metadata", topics=[{"name": TOPIC}])
    assert len(described["topics"][0]["partitions"]) == 3 + version


async def join_alone(world: World, group: str) -> None:
    member = str(uuid.uuid4())
    asked: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": 0, "rebalance_timeout": 30_000}
    await world.ask("consumer_group_heartbeat", **asked, topic_partitions=[], subscribed_topic_names=[TOPIC])


async def delete_groups(world: World, version: int) -> None:
    await join_alone(world, "busy")
    reply = await world.ask("delete_groups", version, groups_names=[GROUP, "nobody's", "busy"])
    assert [(each["group_id"], each["error_code"]) for each in reply["results"]] == [
        (GROUP, 0),
        ("nobody's", ErrorCode.GROUP_ID_NOT_FOUND.number),
        ("busy", ErrorCode.NON_EMPTY_GROUP.number),
    ]
    assert await _committed(world, GROUP, 0) == -1
    await read_by_group(world.client)


async def offset_delete(world: World, version: int) -> None:
    async def deleted(group: str) -> dict[str, Any]:
        asked = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
        return await world.ask("offset_delete", version, group_id=group, topics=asked)

    reply = await deleted(GROUP)
    assert reply["error_code"] == 0
    assert reply["topics"] == [{"name": TOPIC, "partitions": [{"partition_index": 0, "error_code": 0}]}]
    assert await _committed(world, GROUP, 0) == -1
    assert (await deleted("nobody's"))["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND.number
    await join_alone(world, "busy")
    reply = await deleted("busy")
    (found,) = reply["topics"][0]["partitions"]
    assert found["error_code"] == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.number


async def describe_cluster(world: World, version: int) -> None:
    reply = await world.ask("describe_cluster", version)
    assert (reply["error_code"], reply["cluster_id"], reply["controller_id"]) == (0, "lakelog", 0)
    assert [(each["broker_id"], each["port"]) for each in reply["brokers"]] == [(0, world.listening.port)]


async def consumer_group_heartbeat(world: World, version: int) -> None:
    group, drawn = f"newer {version}", "" if version == 0 else str(uuid.uuid4())
    asked = {"group_id": group, "member_id": drawn, "rebalance_timeout": 30_000, "topic_partitions": []}
    reply = await world.ask(
        "consumer_group_heartbeat", version, **asked, member_epoch=0, subscribed_topic_names=[TOPIC]
    )
    assert (reply["error_code"], reply["member_epoch"] > 0) == (0, True)
    assert reply["member_id"] == (drawn or reply["member_id"])
    (owned,) = reply["assignment"]["topic_partitions"]
    assert (owned["topic_id"], sorted(owned["partitions"])) == (world.topic_id, [0, 1])
    asked = {**asked, "member_id": reply["member_id"], "member_epoch": -1, "topic_partitions": None}
    assert (await world.ask("consumer_group_heartbeat", version, **asked))["error_code"] == 0


async def consumer_group_describe(world: World, version: int) -> None:
    group = f"described {version}"
    await join_alone(world, group)
    reply = await world.ask("consumer_group_describe", version, group_ids=[group, GROUP])
    assert [each["error_code"] for each in reply["groups"]] == [0, ErrorCode.GROUP_ID_NOT_FOUND.number]
    (member,) = reply["groups"][0]["members"]
    assert member["subscribed_topic_names"] == [TOPIC]


EXCHANGES: dict[str, Exchange] = {
    "produce": produce,
    "fetch": fetch,
    "list_offsets": list_offsets,
    "metadata": metadata,
    "offset_commit": commits_in_and_out_of_a_life,
    "offset_fetch": offset_fetch,
    "find_coordinator": find_coordinator,
    "join_group": in_a_life("join_group"),
    "heartbeat": in_a_life("heartbeat"),
    "leave_group": in_a_life("leave_group"),
    "sync_group": in_a_life("sync_group"),
    "describe_groups": describe_groups,
    "list_groups": list_groups,
    "api_versions": api_versions,
    "create_topics": create_topics,
    "delete_topics": delete_topics,
    "delete_records": delete_records,
    "init_producer_id": init_producer_id,
    "offset_for_leader_epoch": offset_for_leader_epoch,
    "describe_configs": describe_configs,
    "alter_configs": alter_configs,
    "describe_log_dirs": describe_log_dirs,
    "create_partitions": create_partitions,
    "delete_groups": delete_groups,
    "incremental_alter_configs": incremental_alter_configs,
    "offset_delete": offset_delete,
    "describe_cluster": describe_cluster,
    "consumer_group_heartbeat": consumer_group_heartbeat,
    "consumer_group_describe": consumer_group_describe,
}


async def read_by_group(client: PlainClient) -> None:
    commit = {"partition_index": 0, "committed_offset": 1}
    topics = [{"name": TOPIC, "partitions": [commit]}]
    await client.ask("offset_commit", 8, group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
async def test_every_version_is_answered(listening: Listening, client: PlainClient, api: Any):
    await topic(client, TOPIC, 2)
    await produced(client, (TOPIC, 0, batch(b"x")))
    await read_by_group(client)
    described = await listening.gateway.broker.admin.describe_topic(TOPIC)
    world = World(listening, client, uuid.UUID(described.topic_id))
    for version in range(api.oldest, api.newest + 1):
        await EXCHANGES[api.name](world, version)
