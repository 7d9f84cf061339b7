"""Kafka's clients against the gateway, and against a Kafka broker in the same run if there is one to compare with.

Records of 100 bytes, one partition, acks=all. The clients are the same on both sides: Kafka's performance tests,
confluent-kafka and kafka-python, each used as its users would. A client waits for the acknowledgements of the few
requests that it has under way, so small batches measure the time of a commit and large ones the bytes.

Both servers are up all the time and take turns, after a round that nobody counts: what else the machine does meanwhile
meets both of them, and a broker's first round is that of code which is not compiled yet.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition

from lakelog_cli.local_gateway import LocalGateway
from tests.bench import peers
from tests.bench.report import figure, headline, rate, scratch_folder, spread
from tests.kafka.java_tools import CONSUMER_TEST, PRODUCER_TEST, missing, run_tool

RECORDS = int(os.environ.get("LAKELOG_BENCH_KAFKA_RECORDS", "2000000"))
PYTHON_RECORDS = RECORDS // 20
ROUNDS = 3
VALUE = b"x" * 100
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseG1GC")

# Records a second, of a bootstrap address and a topic. Each topic is written and then read, so the order matters.
Measure = Callable[[str, str], float]


def run() -> None:
    headline(f"Kafka's clients: {RECORDS:,} records of 100 bytes, acks=all, one partition, {ROUNDS} rounds")
    if reason := missing():
        figure(f"left out: {reason}", "")
        return
    with (
        scratch_folder() as folder,
        LocalGateway(folder / "warehouse", folder / "gateway.log", None) as gateway,
        peers.kafka() as broker,
    ):
        sides = [gateway.kafka] if broker is None else [gateway.kafka, peers.BOOTSTRAP]
        for number in range(ROUNDS + 1):
            for bootstrap in sides:
                _create_topics(bootstrap, number)
        for kind, name, measure in STEPS:
            rounds = [[measure(bootstrap, f"{kind}-{number}") for bootstrap in sides] for number in range(ROUNDS + 1)][
                1:
            ]
            _print(name, rounds)


def _print(name: str, rounds: list[list[float]]) -> None:
    ours = statistics.median(each[0] for each in rounds)
    against = ""
    if len(rounds[0]) > 1:
        theirs = statistics.median(each[1] for each in rounds)
        against = f"Kafka {theirs:,.0f}, ratio {spread([each[0] / each[1] for each in rounds], '{:.2f}')}"
    figure(name, rate(ours, 1), against=against, aim="ratio of 0.5")


def _create_topics(bootstrap: str, number: int) -> None:
    topics = [NewTopic(f"{kind}-{number}", 1) for kind in {kind for kind, _, _ in STEPS}]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(30)


def _java_produce(bootstrap: str, topic: str, batch_kib: int) -> float:
    size = ["--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
    properties = ["--command-property", "acks=all", f"batch.size={batch_kib * 1024}"]
    out = run_tool(bootstrap, PRODUCER_TEST, "--topic", topic, *size, *properties, jvm_options=JVM_OPTIONS)
    found = re.search(r"records sent, ([\d.]+) records/sec", out.strip().splitlines()[-1])
    assert found is not None, out
    return float(found[1])


def _java_consume(bootstrap: str, topic: str) -> float:
    """Without the time until the group is divided, which the tool counts apart."""
    options = ["--topic", topic, "--num-records", str(RECORDS), "--hide-header", "--timeout", "60000"]
    out = run_tool(bootstrap, CONSUMER_TEST, *options, jvm_options=JVM_OPTIONS)
    return float(out.strip().splitlines()[-1].split(",")[9])


def _confluent_produce(bootstrap: str, topic: str) -> float:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    started = time.perf_counter()
    for _ in range(RECORDS):
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    return RECORDS / (time.perf_counter() - started)


def _confluent_consume(bootstrap: str, topic: str) -> float:
    options: dict[str, Any] = {"group.id": "none", "queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 5}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **options})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = len(consumer.consume(1, 60))
    started = time.perf_counter()
    while count < RECORDS:
        count += len(consumer.consume(10_000, 10))
    seconds = time.perf_counter() - started
    consumer.close()
    return RECORDS / seconds


def _kafka_python_produce(bootstrap: str, topic: str) -> float:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
    started = time.perf_counter()
    for _ in range(PYTHON_RECORDS):
        producer.send(topic, VALUE)
    producer.flush(120)
    seconds = time.perf_counter() - started
    producer.close()
    return PYTHON_RECORDS / seconds


def _kafka_python_consume(bootstrap: str, topic: str) -> float:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([Partition(topic, 0)])
    count, started = 0, 0.0
    while count < PYTHON_RECORDS:
        some = sum(map(len, consumer.poll(10_000, max_records=10_000).values()))
        started = started or time.perf_counter()
        count += some
    seconds = time.perf_counter() - started
    consumer.close()
    return PYTHON_RECORDS / seconds


STEPS: tuple[tuple[str, str, Measure], ...] = (
    ("16", "producer-perf-test, batches of 16 KiB", lambda address, topic: _java_produce(address, topic, 16)),
    ("128", "producer-perf-test, batches of 128 KiB", lambda address, topic: _java_produce(address, topic, 128)),
    ("128", "consumer-perf-test", _java_consume),
    ("confluent", "confluent-kafka, produce", _confluent_produce),
    ("confluent", "confluent-kafka, consume", _confluent_consume),
    ("python", "kafka-python, produce", _kafka_python_produce),
    ("python", "kafka-python, consume", _kafka_python_consume),
)
