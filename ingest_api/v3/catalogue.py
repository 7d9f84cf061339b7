"""Resources of a cluster as v3 writes them: what each one says, its own address, and where its relations are.

Pure: descriptions go in, JSON objects come out. Addresses begin as the caller wrote them, so that it can follow them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from consumer_groups.lag import PartitionLag
from consumer_groups.requests import GroupDescription, MemberDescription
from lakelog.config import ConfigEntry
from lakelog.model.topic import TopicDescription

Json: TypeAlias = dict[str, Any]
Step: TypeAlias = str | int

# One broker stands for all: the store keeps the copies.
BROKER = 0
COPIES = 1
ALL = "-"


@dataclass(frozen=True, slots=True)
class Catalogue:
    base_url: str
    cluster_id: str

    def url(self, *steps: Step) -> str:
        return "/".join((f"{self.base_url}/v3/clusters", *(quote(str(step), safe="") for step in steps)))

    def listing(self, kind: str, at: Sequence[Step], data: Iterable[Json]) -> Json:
        return _listing(kind, self.url(self.cluster_id, *at), data)

    def clusters(self) -> Json:
        return _listing("KafkaClusterList", self.url(), [self.cluster()])

    def cluster(self) -> Json:
        related = {
            "controller": ("brokers", BROKER),
            "acls": ("acls",),
            "brokers": ("brokers",),
            "broker_configs": ("broker-configs",),
            "consumer_groups": ("consumer-groups",),
            "topics": ("topics",),
            "partition_reassignments": ("topics", ALL, "partitions", ALL, "reassignment"),
        }
        return self._resource("KafkaCluster", (), {}, related)

    def broker(self, host: str | None, port: int | None) -> Json:
        at = ("brokers", BROKER)
        fields = {"broker_id": BROKER, "host": host, "port": port, "rack": None}
        related = {"configs": (*at, "configs"), "partition_replicas": (*at, "partition-replicas")}
        return self._resource("KafkaBroker", at, fields, related)

    def broker_config(self, entry: ConfigEntry) -> Json:
        fields = {"broker_id": BROKER, **_config(entry, "STATIC_BROKER_CONFIG", read_only=True)}
        return self._resource("KafkaBrokerConfig", ("brokers", BROKER, "configs", entry.name), fields, {})

    def topic(self, topic: TopicDescription) -> Json:
        at = ("topics", topic.name)
        fields = {
            "topic_name": topic.name,
            "is_internal": topic.internal,
            "replication_factor": COPIES,
            "partitions_count": len(topic.partitions),
        }
        related = {
            "partitions": (*at, "partitions"),
            "configs": (*at, "configs"),
            "partition_reassignments": (*at, "partitions", ALL, "reassignment"),
        }
        return self._resource("KafkaTopic", at, fields, related)

    def topic_config(self, topic: str, entry: ConfigEntry) -> Json:
        fields = {"topic_name": topic, **_config(entry, "DYNAMIC_TOPIC_CONFIG", read_only=False)}
        return self._resource("KafkaTopicConfig", ("topics", topic, "configs", entry.name), fields, {})

    def partition(self, topic: str, number: int) -> Json:
        at = ("topics", topic, "partitions", number)
        related = {
            "leader": (*at, "replicas", BROKER),
            "replicas": (*at, "replicas"),
            "reassignment": (*at, "reassignment"),
        }
        return self._resource("KafkaPartition", at, {"topic_name": topic, "partition_id": number}, related)

    def replica(self, topic: str, partition: int) -> Json:
        at = ("topics", topic, "partitions", partition, "replicas", BROKER)
        fields = {
            "topic_name": topic,
            "partition_id": partition,
            "broker_id": BROKER,
            "is_leader": True,
            "is_in_sync": True,
        }
        return self._resource("KafkaReplica", at, fields, {"broker": ("brokers", BROKER)})

    def group(self, group: GroupDescription) -> Json:
        at = ("consumer-groups", group.group_id)
        fields = {
            "consumer_group_id": group.group_id,
            "is_simple": not group.protocol_type,
            "partition_assignor": group.protocol,
            "state": group.phase.name,
        }
        related = {
            "coordinator": ("brokers", BROKER),
            "consumers": (*at, "consumers"),
            "lag_summary": (*at, "lag-summary"),
        }
        return self._resource("KafkaConsumerGroup", at, fields, related)

    def consumer(self, group_id: str, member: MemberDescription) -> Json:
        at = ("consumer-groups", group_id, "consumers", member.member_id)
        fields = {
            "consumer_group_id": group_id,
            "consumer_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
        }
        return self._resource("KafkaConsumer", at, fields, {"assignments": (*at, "assignments")})

    def assignment(self, group_id: str, member: MemberDescription, topic: str, partition: int) -> Json:
        at = ("consumer-groups", group_id)
        place = (topic, "partitions", partition)
        fields = {
            "consumer_group_id": group_id,
            "consumer_id": member.member_id,
            "topic_name": topic,
            "partition_id": partition,
        }
        related = {"partition": ("topics", *place), "lag": (*at, "lags", *place)}
        here = (*at, "consumers", member.member_id, "assignments", *place)
        return self._resource("KafkaConsumerAssignment", here, fields, related)

    def lag(self, group_id: str, lag: PartitionLag) -> Json:
        at = ("consumer-groups", group_id, "lags", lag.topic, "partitions", lag.partition)
        fields = {
            "consumer_group_id": group_id,
            "topic_name": lag.topic,
            "partition_id": lag.partition,
            "current_offset": lag.committed,
            "log_end_offset": lag.end_offset,
            "lag": lag.lag,
            "consumer_id": lag.member_id,
            "instance_id": lag.instance_id,
            "client_id": lag.client_id,
        }
        return self._resource("KafkaConsumerLag", at, fields, {})

    def lag_summary(self, group_id: str, lags: Sequence[PartitionLag]) -> Json:
        """Of the partitions where the group has committed something; there has to be one."""
        most = max(lags, key=lambda each: each.lag or 0)
        at = ("consumer-groups", group_id)
        fields = {
            "consumer_group_id": group_id,
            "max_lag_consumer_id": most.member_id,
            "max_lag_instance_id": most.instance_id,
            "max_lag_client_id": most.client_id,
            "max_lag_topic_name": most.topic,
            "max_lag_partition_id": most.partition,
            "max_lag": most.lag,
            "total_lag": sum(each.lag or 0 for each in lags),
        }
        readers: tuple[Step, ...] = (*at, "consumers")
        related: dict[str, tuple[Step, ...]] = {
            "max_lag_consumer": (*readers, most.member_id) if most.member_id else readers,
            "max_lag_partition": ("topics", most.topic, "partitions", most.partition),
        }
        return self._resource("KafkaConsumerGroupLagSummary", (*at, "lag-summary"), fields, related)

    def _resource(self, kind: str, at: Sequence[Step], fields: Json, related: Mapping[str, tuple[Step, ...]]) -> Json:
        links = {name: {"related": self.url(self.cluster_id, *steps)} for name, steps in related.items()}
        metadata = {"self": self.url(self.cluster_id, *at), "resource_name": self._resource_name(at)}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields, **links}

    def _resource_name(self, at: Sequence[Step]) -> str:
        """Collections and names take turns in an address: topics/orders is topic=orders here."""
        pairs = [f"{str(at[i]).removesuffix('s')}={at[i + 1]}" for i in range(0, len(at) - 1, 2)]
        alone = [str(at[-1])] if len(at) % 2 else []
        return "/".join((f"crn:///kafka={self.cluster_id}", *pairs, *alone))


def _listing(kind: str, address: str, data: Iterable[Json]) -> Json:
    """All there is at once: no list of ours is so long that it needs pages."""
    return {"kind": kind, "metadata": {"self": address, "next": None}, "data": list(data)}


def _config(entry: ConfigEntry, source_when_set: str, *, read_only: bool) -> Json:
    default = {"name": entry.name, "value": entry.default, "source": "DEFAULT_CONFIG"}
    own = {"name": entry.name, "value": entry.value, "source": source_when_set}
    return {
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.is_default,
        "is_read_only": read_only,
        "is_sensitive": False,
        "source": default["source"] if entry.is_default else source_when_set,
        "synonyms": [default] if entry.is_default else [own, default],
    }
