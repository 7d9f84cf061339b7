"""Kafka's own command-line tools (Java), unchanged. A JVM takes a second or two to start: few runs, each for much."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway as gateway_process
from tests.kafka.cutting_proxy import cutting_proxy
from tests.kafka.java_tools import CONSUMER_TEST, PATIENCE_S, PRODUCER_TEST, missing, run_tool, start_tool

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


def create(server: LocalGateway, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    for created in admin.create_topics([*topics]).values():
        created.result(PATIENCE_S)


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
    create(server, *(NewTopic(f"in-{codec}", 1, config={"compression.type": codec}) for codec in codecs))
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


def test_a_java_consumer_shares_a_group_with_librdkafka(server: LocalGateway, tool: Tool):
    """Each has half of the partitions, and each record comes to one of them."""
    count = 400
    name = "shared"
    create(server, NewTopic(name, 4))
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": "mixed",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 200,
        }
    )
    consumer.subscribe([name])
    options = ["--topic", name, "--group", "mixed", "--from-beginning", "--max-messages", str(count // 2)]
    java = start_tool(server.kafka, CONSOLE_CONSUMER, *options)
    try:
        seen: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(consumer.assignment()) != 2:
            assert time.monotonic() < deadline, "they never had two partitions each"
            consumer.poll(0.05)
        producer = Producer({"bootstrap.servers": server.kafka})
        for number in range(count):
            producer.produce(name, b"%d" % number, partition=number % 4)
        assert producer.flush(PATIENCE_S) == 0
        while len(seen) < count // 2:
            some = consumer.consume(count // 2 - len(seen), PATIENCE_S)
            assert some, f"only {len(seen)} came"
            seen += [(each.value() or b"").decode() for each in some if each.error() is None]
        printed, complaints = java.communicate(timeout=PATIENCE_S)
        assert java.returncode == 0, complaints
    finally:
        java.kill()
        consumer.close()
    assert sorted(map(int, [*seen, *printed.split()])) == list(range(count))


def test_an_idempotent_java_producer_whose_connections_are_cut_loses_and_doubles_nothing(
    server: LocalGateway, tool: Tool
):
    count, name = 20_000, "cut-at-random"
    create(server, NewTopic(name, 1))
    impatient = ["reconnect.backoff.ms=1", "reconnect.backoff.max.ms=20", "retry.backoff.ms=5"]
    with cutting_proxy(server.kafka, every_bytes=20_000, seed=6) as proxy:
        sent = run_tool(
            proxy.address,
            PRODUCER_TEST,
            *["--topic", name, "--num-records", str(count), "--payload-monotonic", "--throughput", "-1"],
            *["--producer-props", "enable.idempotence=true", "batch.size=2000", *impatient],
        )
        assert f"{count} records sent" in sent
        assert proxy.cuts > 5
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[int] = []
    while (each := consumer.poll(PATIENCE_S)) is not None and each.error() is None:
        found.append(int(each.value() or b"-1"))
    consumer.close()
    assert found == list(range(count))
