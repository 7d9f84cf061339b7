"""Which requests are served: one row for each, with its versions and its handler.

What is not in the table is not announced, so clients do not ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingest_api.kafka.calls import Call, Handler
from ingest_api.kafka.handlers import cluster, configs, consumer_protocol, fetch, groups, offsets, produce, topics
from ingest_api.kafka.schemas import Reply
from lakelog.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    name: str
    oldest: int
    newest: int
    handler: Handler
    # Whether the next request may be taken up while this one's reply is still to come.
    overlaps: bool = False


async def api_versions(call: Call) -> Reply:
    return {"api_keys": _announced()}


def unsupported_version_reply() -> Reply:
    """To a client that asks in a version from the future, in the oldest: it looks and asks again."""
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION.number, "api_keys": _announced()}


API_VERSIONS = Api(18, "api_versions", 0, 4, api_versions)

_ROWS: Sequence[Api] = (
    Api(0, "produce", 3, 12, produce.produce, overlaps=True),
    Api(1, "fetch", 4, 13, fetch.fetch),
    Api(2, "list_offsets", 1, 9, offsets.list_offsets),
    Api(3, "metadata", 0, 12, cluster.metadata),
    Api(8, "offset_commit", 2, 9, groups.offset_commit),
    Api(9, "offset_fetch", 1, 9, groups.offset_fetch),
    Api(10, "find_coordinator", 0, 4, groups.find_coordinator),
    Api(11, "join_group", 0, 9, groups.join_group),
    Api(12, "heartbeat", 0, 4, groups.heartbeat),
    Api(13, "leave_group", 0, 5, groups.leave_group),
    Api(14, "sync_group", 0, 5, groups.sync_group),
    Api(15, "describe_groups", 0, 6, groups.describe_groups),
    Api(16, "list_groups", 0, 5, groups.list_groups),
    API_VERSIONS,
    Api(19, "create_topics", 2, 7, topics.create_topics),
    Api(20, "delete_topics", 1, 6, topics.delete_topics),
    Api(21, "delete_records", 0, 2, topics.delete_records),
    Api(22, "init_producer_id", 0, 4, produce.init_producer_id),
    Api(23, "offset_for_leader_epoch", 2, 4, offsets.offset_for_leader_epoch),
    Api(32, "describe_configs", 1, 4, configs.describe_configs),
    Api(33, "alter_configs", 0, 2, configs.alter_configs),
    Api(35, "describe_log_dirs", 1, 4, cluster.describe_log_dirs),
    Api(37, "create_partitions", 0, 3, topics.create_partitions),
    Api(42, "delete_groups", 0, 2, groups.delete_groups),
    Api(44, "incremental_alter_configs", 0, 1, configs.incremental_alter_configs),
    Api(47, "offset_delete", 0, 0, groups.offset_delete),
    Api(60, "describe_cluster", 0, 1, cluster.describe_cluster),
    Api(68, "consumer_group_heartbeat", 0, 1, consumer_protocol.consumer_group_heartbeat),
    Api(69, "consumer_group_describe", 0, 1, consumer_protocol.consumer_group_describe),
)
APIS = {api.key: api for api in _ROWS}

# librdkafka takes a broker without version 0 of produce for one that can't take compressed batches. As Kafka itself
# does since 4.0, it is announced, and never asked for.
_ANNOUNCED_OLDEST = {0: 0}


def _announced() -> list[Reply]:
    return [
        {
            "api_key": api.key,
            "min_version": _ANNOUNCED_OLDEST.get(api.key, api.oldest),
            "max_version": api.newest,
        }
        for api in _ROWS
    ]
