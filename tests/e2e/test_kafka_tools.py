"""Kafka's own command-line tools (Java), unchanged. A JVM takes a second or two to start: few runs, each for much."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway as gateway_process
from tests.kafka.java_tools import CONSUMER_TEST, PATIENCE_S, PRODUCER_TEST, missing, run_tool

pytestmark = pytest.mark.e2e

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    with gateway_process(tmp_path_factory.mktemp("tools"), {"access_log": "off"}) as running:
        yield running


@pytest.fixture(scope="module")
def tool(server: LocalGateway) -> Tool:
    if reason := missing():
        pytest.skip(reason)
    return partial(run_tool, server.kafka)


def test_a_topic_is_created_configured_filled_and_read(tool: Tool):
    tool(TOPICS, "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=86400000")
    tool(CONFIGS, "--alter", "--topic", "orders", "--add-config", "cleanup.policy=[compact,delete],segment.ms=60000")
    described = tool(CONFIGS, "--describe", "--topic", "orders")
    assert "segment.ms=60000" in described
    assert "cleanup.policy=compact,delete" in described or "cleanup.policy=delete,compact" in described
    described = tool(TOPICS, "--describe", "--topic", "orders")
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    assert "Leader: 0" in described

    lines = [f"key{number}:value {number}" for number in range(500)]
    options = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tool(CONSOLE_PRODUCER, "--topic", "orders", *options, "--compression-codec", "snappy", stdin="\n".join(lines))
    options = ["--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"]
    read = tool(
        CONSOLE_CONSUMER,
        "--topic",
        "orders",
        "--group",
        "readers",
        "--from-beginning",
        "--max-messages",
        "500",
        *options,
    )
    assert sorted(read.splitlines()) == sorted(lines)
    groups = tool(GROUPS, "--describe", "--group", "readers")
    lags = [row.split()[5] for row in groups.splitlines() if row.startswith("readers")]
    assert lags == ["0", "0", "0"]
    reset = ["--reset-offsets", "--to-earliest", "--topic", "orders", "--execute"]
    moved = tool(GROUPS, "--group", "readers", *reset)
    assert [row.split()[3] for row in moved.splitlines() if row.startswith("readers")] == ["0", "0", "0"]


def test_what_is_compressed_for_them_is_read_by_librdkafka_and_java(server: LocalGateway, tool: Tool):
    """More than a block of every codec, of values that get smaller and of values that do not."""
    codecs, luck = ("gzip", "snappy", "lz4", "zstd"), random.Random(7)
    values = [luck.randbytes(40).hex() if number % 2 else f"value {number}" * 20 for number in range(3_000)]
    admin = AdminClient({"bootstrap.servers": server.kafka})
    topics = [NewTopic(f"in-{codec}", 1, config={"compression.type": codec}) for codec in codecs]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": server.kafka})
    for codec in codecs:
        for value in values:
            producer.produce(f"in-{codec}", value)
    assert producer.flush(PATIENCE_S) == 0
    for codec in codecs:
        consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "none", "check.crcs": True})
        consumer.assign([TopicPartition(f"in-{codec}", 0, 0)])
        found: list[str] = []
        while len(found) < len(values):
            some = consumer.consume(len(values) - len(found), PATIENCE_S)
            assert some, f"{codec}: only {len(found)} came"
            found += [(each.value() or b"").decode() for each in some if each.error() is None]
        consumer.close()
        assert found == values
    count = len(codecs) * len(values)
    out = tool(CONSOLE_CONSUMER, "--include", "in-.*", "--from-beginning", "--max-messages", str(count))
    assert sorted(out.splitlines()) == sorted(values * len(codecs))


def test_the_performance_tests_run(tool: Tool):
    size = ["--record-size", "100", "--num-records", "20000", "--throughput", "-1"]
    out = tool(PRODUCER_TEST, "--topic", "load", *size, "--producer-props", "acks=all", "compression.type=zstd")
    assert "20000 records sent" in out
    out = tool(CONSUMER_TEST, "--topic", "load", "--num-records", "20000", "--timeout", "60000")
    assert int(out.strip().splitlines()[-1].split(",")[4]) >= 20_000
