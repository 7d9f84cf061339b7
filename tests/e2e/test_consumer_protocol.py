"""Kafka's newer group protocol (KIP-848) by the clients that speak it: librdkafka, and Kafka's own tools in Java."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway as gateway_process
from tests.kafka.java_tools import missing, run_tool, start_tool

pytestmark = pytest.mark.e2e

PATIENCE_S = 60
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PARTITIONS = 6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalGateway]:
    settings = {
        "access_log": "off",
        "group_consumer_heartbeat_interval_ms": "200",
        "group_consumer_session_timeout_ms": "6000",
    }
    with gateway_process(tmp_path, settings) as running:
        yield running


def create(server: LocalGateway, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    for each in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        each.result(PATIENCE_S)


def send(server: LocalGateway, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": server.kafka})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


class Reader:
    """A member in a thread of its own, which commits what it has read, and notes it once that is committed."""

    def __init__(self, server: LocalGateway, group: str, topic: str, protocol: str = "consumer") -> None:
        self.seen: list[int] = []
        self.partitions: set[int] = set()
        self.failure: Exception | None = None
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": server.kafka,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **({"heartbeat.interval.ms": 200} if protocol == "classic" else {}),
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                for each in self._consumer.consume(100, 0.05):
                    if each.error() is None:
                        self.seen.append(int(each.value() or b"-1"))
                        self._commit(each)
                self.partitions = {each.partition for each in self._consumer.assignment()}
            self._consumer.close()
        except Exception as error:
            self.failure = error

    def _commit(self, message: object) -> None:
        try:
            self._consumer.commit(message, asynchronous=False)  # type: ignore[call-overload]
        except KafkaException as error:
            # A commit that comes too late is refused, and the record comes again to whoever has it now.
            fenced = (KafkaError.STALE_MEMBER_EPOCH, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
            if error.args[0].code() not in fenced and not error.args[0].retriable():
                raise

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self.failure is None, self.failure


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def are_divided(readers: list[Reader]) -> bool:
    owned = [each.partitions for each in readers]
    return all(owned) and sorted(number for each in owned for number in each) == list(range(PARTITIONS))


def test_members_of_librdkafka_come_and_go_and_survive_a_restart(server: LocalGateway):
    create(server, "orders")
    readers = [Reader(server, "g", "orders")]
    try:
        eventually(lambda: are_divided(readers), "the first one never had it all")
        send(server, "orders", range(300))
        readers += [Reader(server, "g", "orders"), Reader(server, "g", "orders")]
        eventually(lambda: are_divided(readers), "three never shared")
        send(server, "orders", range(300, 600))
        before = [set(each.partitions) for each in readers]
        server.kill()
        server.start()
        send(server, "orders", range(600, 900))
        eventually(lambda: {*range(900)} <= {n for each in readers for n in each.seen}, "some records never came")
        assert [each.partitions for each in readers] == before, "nobody's partitions moved by the restart"
        readers.pop(0).stop()
        eventually(lambda: are_divided(readers), "two never shared")
        again = sum(len(each.seen) for each in readers)
        send(server, "orders", range(900, 1200))
        eventually(lambda: {*range(900, 1200)} <= {n for each in readers for n in each.seen}, "some never came")
        assert sum(len(each.seen) for each in readers) == again + 300, "what was committed did not come again"
    finally:
        for each in readers:
            each.stop()
    committed = Consumer({"bootstrap.servers": server.kafka, "group.id": "g"})
    offsets = committed.committed([TopicPartition("orders", number) for number in range(PARTITIONS)], PATIENCE_S)
    committed.close()
    assert [each.offset for each in offsets] == [1200 // PARTITIONS] * PARTITIONS


def test_kafkas_console_consumer_reads_and_the_tools_describe(server: LocalGateway):
    if reason := missing():
        pytest.skip(reason)
    create(server, "events")
    send(server, "events", range(600))
    options = ["--topic", "events", "--group", "readers", "--from-beginning"]
    newer = ["--command-property", "group.protocol=consumer"]
    read = run_tool(server.kafka, CONSOLE_CONSUMER, *options, *newer, "--max-messages", "600")
    assert sorted(map(int, read.split())) == list(range(600))
    described = run_tool(server.kafka, GROUPS, "--describe", "--group", "readers")
    assert [row.split()[5] for row in described.splitlines() if row.startswith("readers")] == ["0"] * PARTITIONS

    send(server, "events", range(600, 700))
    reader = Reader(server, "readers", "events")
    console = start_tool(server.kafka, CONSOLE_CONSUMER, *options, *newer)
    try:
        eventually(lambda: len(reader.partitions) == PARTITIONS // 2, "the two never shared")
        others = sorted({*range(PARTITIONS)} - reader.partitions)
        send(server, "events", range(700, 800))
        eventually(lambda: len(reader.seen) >= 50, "records never came")
        state = run_tool(server.kafka, GROUPS, "--describe", "--group", "readers", "--state").split()
        assert state[-3:] == ["uniform", "Stable", "2"], state
        members = run_tool(server.kafka, GROUPS, "--describe", "--group", "readers", "--members", "--verbose")
        shares = [row for row in members.splitlines() if row.startswith("readers")]
        assert sorted(numbers for row in shares for numbers in re.findall(r"events:([\d,]+)", row)[:1]) == [
            ",".join(map(str, each)) for each in sorted([sorted(reader.partitions), others])
        ], members
        listed = run_tool(server.kafka, GROUPS, "--list", "--type", "consumer")
        assert "readers" in listed.split(), listed
        assert "readers" not in run_tool(server.kafka, GROUPS, "--list", "--type", "classic").split()
    finally:
        console.terminate()
        out, _ = console.communicate(timeout=PATIENCE_S)
        reader.stop()
    counted = Counter([*map(int, out.split()), *reader.seen])
    assert set(counted) >= set(range(600, 800))


def test_a_group_changes_over_to_the_newer_protocol_while_it_reads_and_back(server: LocalGateway):
    create(server, "orders")
    readers = [Reader(server, "g", "orders", "classic"), Reader(server, "g", "orders", "classic")]
    seen: list[int] = []
    sent = 0
    try:
        for protocol in ("consumer", "consumer", "classic", "classic"):
            eventually(lambda: are_divided(readers), "two never shared")
            send(server, "orders", range(sent, sent + 120))
            sent += 120
            leaver = readers.pop(0)
            leaver.stop()
            seen += leaver.seen
            readers.append(Reader(server, "g", "orders", protocol))
        eventually(lambda: are_divided(readers), "two never shared")
        eventually(
            lambda: {*range(sent)} <= {*seen, *(n for each in readers for n in each.seen)}, "some records never came"
        )
    finally:
        for each in readers:
            each.stop()


def test_a_pattern_of_librdkafka_is_matched_by_the_gateway(server: LocalGateway):
    create(server, "orders-eu", "payments")
    reader = Reader(server, "g", "^orders-.*")
    try:
        send(server, "payments", range(1_000, 1_010))
        send(server, "orders-eu", range(60))
        eventually(lambda: sorted(reader.seen) == list(range(60)), "what fits never came")
        create(server, "orders-us")
        send(server, "orders-us", range(60, 120))
        eventually(lambda: sorted(reader.seen) == list(range(120)), "a topic that came later was not read")
    finally:
        reader.stop()
