"""A Python client of the gateway, over HTTP: one that blocks and one for event loops, alike in everything else.

    with LakelogClient("http://localhost:8082") as client:
        client.create_topic("orders", partitions=4)
        client.produce("orders", [{"id": 1}, Record({"id": 2}, key="customer-7")])
        frame = client.fetch("orders").to_pandas()
        for record in client.stream("orders", offset="earliest"):
            print(record.partition, record.offset, record.json())
        with client.consumer("billing", "orders", offset_reset="earliest") as consumer:
            for record in consumer:
                print(record.topic, record.offset, record.json())

Requests, replies and every decision are pure modules; `sync` and `aio` are the two that send. Of the rest of the core
it knows the errors and the nouns of the model: it runs where there is no warehouse.
"""

from lakelog.client.aio import AsyncLakelogClient, AsyncStream
from lakelog.client.batching import BatchingOptions
from lakelog.client.consumer import AsyncConsumer, Consumer
from lakelog.client.core import DEFAULT_URL
from lakelog.client.errors import RequestFailed
from lakelog.client.fetched import ConsumedRecord, Fetched, FetchedRecord, Polled
from lakelog.client.producer import AsyncProducer, Producer
from lakelog.client.records import Record, rows_as_records
from lakelog.client.replies import (
    GroupInfo,
    GroupLag,
    ListedGroup,
    OffsetRange,
    OffsetReset,
    Produced,
    TopicConfigEntry,
    TopicInfo,
    TopicSummary,
)
from lakelog.client.sync import LakelogClient, Stream

__all__ = [
    "DEFAULT_URL",
    "AsyncConsumer",
    "AsyncLakelogClient",
    "AsyncProducer",
    "AsyncStream",
    "BatchingOptions",
    "ConsumedRecord",
    "Consumer",
    "Fetched",
    "FetchedRecord",
    "GroupInfo",
    "GroupLag",
    "LakelogClient",
    "ListedGroup",
    "OffsetRange",
    "OffsetReset",
    "Polled",
    "Produced",
    "Producer",
    "Record",
    "RequestFailed",
    "Stream",
    "TopicConfigEntry",
    "TopicInfo",
    "TopicSummary",
    "rows_as_records",
]
