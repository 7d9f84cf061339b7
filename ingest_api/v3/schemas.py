"""What the API's description says of v3's bodies."""

from __future__ import annotations

from ingest_api.media import JSON
from ingest_api.routes.schemas import (
    ANYTHING,
    NUMBER,
    TEXT,
    Responses,
    Schema,
    a_list,
    an_object,
    answered,
    or_null,
)

BOOLEAN: Schema = {"type": "boolean"}
RELATED = an_object(related=TEXT)


def resource(optional: tuple[str, ...] = (), /, **fields: Schema) -> Schema:
    metadata = an_object(self=TEXT, resource_name=or_null(TEXT))
    return an_object(optional, kind=TEXT, metadata=metadata, cluster_id=TEXT, **fields)


def listed(item: Schema) -> Responses:
    metadata = an_object(self=TEXT, next=or_null(TEXT))
    return answered(an_object(kind=TEXT, metadata=metadata, data=a_list(item)), JSON)


def one(item: Schema, status: int = 200) -> Responses:
    return answered(item, JSON, status=status)


CLUSTER = resource(
    controller=RELATED,
    acls=RELATED,
    brokers=RELATED,
    broker_configs=RELATED,
    consumer_groups=RELATED,
    topics=RELATED,
    partition_reassignments=RELATED,
)
BROKER = resource(
    broker_id=NUMBER,
    host=or_null(TEXT),
    port=or_null(NUMBER),
    rack=or_null(TEXT),
    configs=RELATED,
    partition_replicas=RELATED,
)
_CONFIG = {
    "name": TEXT,
    "value": or_null(TEXT),
    "is_default": BOOLEAN,
    "is_read_only": BOOLEAN,
    "is_sensitive": BOOLEAN,
    "source": TEXT,
    "synonyms": a_list(an_object(name=TEXT, value=or_null(TEXT), source=TEXT)),
}
BROKER_CONFIG = resource(broker_id=NUMBER, **_CONFIG)
TOPIC_CONFIG = resource(topic_name=TEXT, **_CONFIG)
TOPIC = resource(
    topic_name=TEXT,
    is_internal=BOOLEAN,
    replication_factor=NUMBER,
    partitions_count=NUMBER,
    partitions=RELATED,
    configs=RELATED,
    partition_reassignments=RELATED,
)
PARTITION = resource(topic_name=TEXT, partition_id=NUMBER, leader=RELATED, replicas=RELATED, reassignment=RELATED)
REPLICA = resource(
    topic_name=TEXT,
    partition_id=NUMBER,
    broker_id=NUMBER,
    is_leader=BOOLEAN,
    is_in_sync=BOOLEAN,
    broker=RELATED,
)

GROUP = resource(
    consumer_group_id=TEXT,
    is_simple=BOOLEAN,
    partition_assignor=TEXT,
    state=TEXT,
    coordinator=RELATED,
    consumers=RELATED,
    lag_summary=RELATED,
)
CONSUMER = resource(
    consumer_group_id=TEXT, consumer_id=TEXT, instance_id=or_null(TEXT), client_id=TEXT, assignments=RELATED
)
ASSIGNMENT = resource(
    consumer_group_id=TEXT, consumer_id=TEXT, topic_name=TEXT, partition_id=NUMBER, partition=RELATED, lag=RELATED
)
LAG = resource(
    consumer_group_id=TEXT,
    topic_name=TEXT,
    partition_id=NUMBER,
    current_offset=NUMBER,
    log_end_offset=NUMBER,
    lag=NUMBER,
    consumer_id=TEXT,
    instance_id=or_null(TEXT),
    client_id=TEXT,
)
LAG_SUMMARY = resource(
    consumer_group_id=TEXT,
    max_lag_consumer_id=TEXT,
    max_lag_instance_id=or_null(TEXT),
    max_lag_client_id=TEXT,
    max_lag_topic_name=TEXT,
    max_lag_partition_id=NUMBER,
    max_lag=NUMBER,
    total_lag=NUMBER,
    max_lag_consumer=RELATED,
    max_lag_partition=RELATED,
)

_WRITTEN = {**an_object(type=TEXT, size=NUMBER), "type": ["object", "null"]}
_PLACE = {
    "cluster_id": TEXT,
    "topic_name": TEXT,
    "partition_id": NUMBER,
    "offset": NUMBER,
    "timestamp": TEXT,
    "key": _WRITTEN,
    "value": _WRITTEN,
}
_REFUSED = {"error_code": NUMBER, "message": TEXT}
REPORTED: Responses = answered(
    {"anyOf": [an_object(error_code=NUMBER, **_PLACE), an_object(**_REFUSED)]},
    JSON,
    doc="A report for each record, in order, one after the other",
)
BATCH_REPORTED: Responses = answered(
    an_object(
        successes=a_list(an_object(id=TEXT, error_code=NUMBER, **_PLACE)),
        failures=a_list(an_object(id=TEXT, **_REFUSED)),
    ),
    JSON,
    status=207,
    doc="What became of each entry",
)

_DATA = {
    **an_object(("data",), type={"type": "string", "enum": ["BINARY", "JSON", "STRING"]}, data=ANYTHING),
    "type": ["object", "null"],
}
_RECORD = {
    "partition_id": {"type": ["integer", "null"], "minimum": 0},
    "headers": a_list(an_object(("value",), name=TEXT, value={"type": ["string", "null"], "format": "byte"})),
    "key": _DATA,
    "value": _DATA,
    "timestamp": {"type": ["string", "null"], "format": "date-time"},
}
RECORD = an_object(tuple(_RECORD), **_RECORD)
BATCH = an_object(entries=a_list(an_object(tuple(_RECORD), id={"type": "string", "maxLength": 80}, **_RECORD)))
