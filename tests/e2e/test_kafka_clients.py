"""The clients that people have, unchanged, against a real gateway: what one door takes in, every other gives out."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors import range as aiokafka_range
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors import range as kafka_python_range

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway as gateway_process
from tests.kafka.cutting_proxy import cutting_proxy

pytestmark = pytest.mark.e2e

PATIENCE_S = 60
BINARY = "application/vnd.kafka.binary.v2+json"
# key, value, headers, milliseconds
Headers = list[tuple[str, str | bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers, int]
RECORDS: list[Record] = [
    (b"key", b"value", [], 1_600_000_000_000),
    (None, b"no key", [("one", b"1"), ("one", b"\x00\xff"), ("none", None)], 1_600_000_000_123),
    (b"tombstone", None, [], 1_600_000_000_001),
    (b"", b"", [("", b"")], 1_600_000_000_002),
    (b"\x00\xff", bytes(range(256)) * 100, [("ünïcode", "☃".encode())], 1_600_000_000_003),
    *[(b"k%d" % n, b"v%d" % n, Headers([("n", b"%d" % n)]), 1_600_000_001_000 + n) for n in range(100)],
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    settings = {"access_log": "off"}
    with gateway_process(tmp_path_factory.mktemp("kafka"), settings) as running:
        yield running


@pytest.fixture
def topic(server: LocalGateway, request: pytest.FixtureRequest) -> Callable[[int], str]:
    def made(partitions: int = 1) -> str:
        name = f"t-{abs(hash(request.node.name))}-{partitions}"
        admin = AdminClient({"bootstrap.servers": server.kafka})
        for each in admin.create_topics([NewTopic(name, partitions)]).values():
            each.result(PATIENCE_S)
        return name

    return made


def consumed(server: LocalGateway, topic: str, count: int, partition: int = 0) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        found: list[Message] = []
        while len(found) < count:
            some = consumer.consume(count - len(found), PATIENCE_S)
            assert some, f"only {len(found)} of {count} records came"
            for each in some:
                assert each.error() is None, each.error()
            found += some
        return found
    finally:
        consumer.close()


def as_record(message: Message) -> Record:
    headers = message.headers() or []
    assert isinstance(headers, list)
    return message.key(), message.value(), headers, message.timestamp()[1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_in_every_codec(server: LocalGateway, topic: Callable[[int], str], codec: str):
    name = topic(1)
    producer = Producer({"bootstrap.servers": server.kafka, "compression.type": codec, "linger.ms": 50})
    offsets: list[int | None] = []
    for key, value, headers, time_ms in RECORDS:
        producer.produce(
            name,
            value,
            key,
            headers=headers,
            timestamp=time_ms,
            on_delivery=lambda _, sent: offsets.append(sent.offset()),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert offsets == list(range(len(RECORDS)))
    assert [as_record(each) for each in consumed(server, name, len(RECORDS))] == RECORDS


def test_what_kafka_clients_send_comes_out_over_http_and_the_other_way(
    server: LocalGateway, topic: Callable[[int], str]
):
    name = topic(1)
    producer = Producer({"bootstrap.servers": server.kafka})
    for key, value, headers, time_ms in RECORDS:
        producer.produce(name, value, key, headers=headers, timestamp=time_ms)
    assert producer.flush(PATIENCE_S) == 0
    reply = httpx.get(f"{server.url}/topics/{name}/records", params={"max_bytes": 10**7}, headers={"Accept": BINARY})
    fetched = reply.raise_for_status().json()
    assert [
        (_bytes(each["key"]), _bytes(each["value"]), [(h["key"], _bytes(h["value"])) for h in each.get("headers", [])])
        for each in fetched
    ] == [record[:3] for record in RECORDS]
    assert [each["timestamp"] for each in fetched] == [record[3] for record in RECORDS]

    again = [
        {
            "key": each["key"],
            "value": each["value"],
            "headers": each.get("headers", []),
            "timestamp": each["timestamp"],
        }
        for each in fetched
    ]
    posted = httpx.post(f"{server.url}/topics/{name}", json={"records": again}, headers={"Content-Type": BINARY})
    posted.raise_for_status()
    both = [as_record(each) for each in consumed(server, name, 2 * len(RECORDS))]
    assert both == RECORDS + RECORDS


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def test_kafka_python_and_aiokafka_read_what_each_other_wrote(server: LocalGateway, topic: Callable[[int], str]):
    name = topic(1)
    # kafka-python does not send headers without a value.
    first = [(k, v, [(each, value or b"") for each, value in headers], t) for k, v, headers, t in RECORDS]
    with KafkaProducer(bootstrap_servers=server.kafka, compression_type="gzip") as producer:
        sent = [producer.send(name, value=v, key=k, headers=h, timestamp_ms=t) for k, v, h, t in first]
        assert [each.get(PATIENCE_S).offset for each in sent] == list(range(len(RECORDS)))

    async def with_aiokafka() -> list[Record]:
        async with AIOKafkaProducer(bootstrap_servers=server.kafka, enable_idempotence=True) as producer:
            for key, value, headers, time_ms in RECORDS:
                await producer.send_and_wait(name, value, key, headers=headers, timestamp_ms=time_ms)
        consumer = AIOKafkaConsumer(
            name,
            bootstrap_servers=server.kafka,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            found: list[Record] = []
            while len(found) < 2 * len(RECORDS):
                each = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
                found.append((each.key, each.value, list(each.headers), each.timestamp))
            return found

    assert asyncio.run(with_aiokafka()) == first + RECORDS
    reader = KafkaConsumer(name, bootstrap_servers=server.kafka, auto_offset_reset="earliest")
    found: list[Record] = []
    while len(found) < 2 * len(RECORDS):
        for some in reader.poll(PATIENCE_S * 1000).values():
            found += [(each.key, each.value, list(each.headers), each.timestamp) for each in some]
    reader.close()
    assert found == first + RECORDS


def test_keys_land_where_kafka_clients_would_put_them(server: LocalGateway, topic: Callable[[int], str]):
    name = topic(7)
    keys = [b"key-%d" % number for number in range(200)]
    with KafkaProducer(bootstrap_servers=server.kafka) as producer:
        chosen = [producer.send(name, key=key).get(PATIENCE_S).partition for key in keys]
    records = [{"key": base64.b64encode(key).decode(), "value": None} for key in keys]
    reply = httpx.post(f"{server.url}/topics/{name}", json={"records": records}, headers={"Content-Type": BINARY})
    assert [each["partition"] for each in reply.raise_for_status().json()["offsets"]] == chosen


def test_kcat(server: LocalGateway, topic: Callable[[int], str], tmp_path: Path):
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed: `make kafka-clients` installs it on Debian as root")
    name = topic(1)

    def run(*arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            [kcat, "-b", server.kafka, *arguments], input=stdin, capture_output=True, timeout=PATIENCE_S, check=True
        )
        return done.stdout

    lines = b"".join(b"k%d:value %d\n" % (n, n) for n in range(1_000))
    run("-P", "-t", name, "-K", ":", "-z", "zstd", "-H", "from=kcat", stdin=lines)
    out = run("-C", "-t", name, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert out == lines
    assert run("-C", "-t", name, "-o", "-1", "-e", "-q", "-f", "%o %h\n") == b"999 from=kcat\n"
    assert f'topic "{name}" with 1 partitions'.encode() in run("-L")
    assert run("-Q", "-t", f"{name}:0:-1").strip() == f"{name} [0] offset 1000".encode()


def test_members_of_different_clients_share_a_group(server: LocalGateway, topic: Callable[[int], str]):
    """Three clients divide a topic; when two have gone, the third goes on where they have committed."""
    name = topic(6)
    group = f"group-of-{name}"
    producer = Producer({"bootstrap.servers": server.kafka})

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.produce(name, b"%d" % number, partition=number % 6)
        assert producer.flush(PATIENCE_S) == 0

    seen: list[int] = []
    held = {"librdkafka": 0, "kafka-python": 0, "aiokafka": 0}
    divided, done = threading.Event(), threading.Event()

    def divide(client: str, partitions: int) -> None:
        held[client] = partitions
        if set(held.values()) == {2}:
            divided.set()

    def with_librdkafka() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": server.kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
                "heartbeat.interval.ms": 200,
            }
        )
        consumer.subscribe([name])
        while not done.is_set():
            some = consumer.consume(100, 0.1)
            divide("librdkafka", len(consumer.assignment()))
            seen.extend(int(each.value() or b"") for each in some if each.error() is None)
            if some:
                with_retry(lambda: consumer.commit(asynchronous=False))
        consumer.close()

    def with_kafka_python() -> None:
        consumer = KafkaConsumer(
            name,
            bootstrap_servers=server.kafka,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=[kafka_python_range.RangePartitionAssignor],
        )
        while not done.is_set():
            for some in consumer.poll(100).values():
                seen.extend(int(each.value) for each in some)
                consumer.commit()
            divide("kafka-python", len(consumer.assignment()))
        consumer.close()

    async def with_aiokafka() -> None:
        consumer = AIOKafkaConsumer(
            name,
            bootstrap_servers=server.kafka,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=[aiokafka_range.RangePartitionAssignor],
        )
        async with consumer:
            while not done.is_set():
                for some in (await consumer.getmany(timeout_ms=100)).values():
                    seen.extend(int(each.value) for each in some)
                    await consumer.commit()
                divide("aiokafka", len(consumer.assignment()))

    members = [
        threading.Thread(target=with_librdkafka),
        threading.Thread(target=with_kafka_python),
        threading.Thread(target=lambda: asyncio.run(with_aiokafka())),
    ]
    for member in members:
        member.start()
    try:
        assert divided.wait(PATIENCE_S), f"they never had two partitions each: {held}"
        send(0, 600)
        deadline = time.monotonic() + PATIENCE_S
        while len(set(seen)) < 600 and time.monotonic() < deadline:
            done.wait(0.02)
    finally:
        done.set()
        for member in members:
            member.join(PATIENCE_S)
    assert sorted(seen) == list(range(600)), "each record once: nobody's partitions moved while they came"

    send(600, 60)
    admin = AdminClient({"bootstrap.servers": server.kafka})
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    assert (described.state.name, list(described.members)) == ("EMPTY", [])
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": group, "auto.offset.reset": "error"})
    consumer.subscribe([name])
    rest: list[int] = []
    while len(rest) < 60:
        some = consumer.consume(60, PATIENCE_S)
        assert some
        rest += [int(each.value() or b"") for each in some if each.error() is None]
    consumer.close()
    assert sorted(rest) == list(range(600, 660))


def with_retry(work: Callable[[], Any]) -> None:
    """A commit that a rebalance overtakes is refused, and the records come again to whoever has them then."""
    try:
        work()
    except KafkaException as error:
        if not error.args[0].retriable():
            raise


def test_an_idempotent_producer_whose_connections_are_cut_loses_and_doubles_nothing(server: LocalGateway):
    count, name = 20_000, "cut-at-random"
    with cutting_proxy(server.kafka, every_bytes=20_000, seed=5) as proxy:
        producer = Producer(
            {
                "bootstrap.servers": proxy.address,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 200,
                "retry.backoff.ms": 5,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 20,
                "log_level": 0,
            }
        )
        failures: list[Any] = []
        for number in range(count):
            producer.produce(
                name,
                b"%d" % number,
                b"key",
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        assert failures == []
        assert proxy.cuts > 5
    assert [int(each.value() or b"-1") for each in consumed(server, name, count)] == list(range(count))
    end = KafkaConsumer(bootstrap_servers=server.kafka)
    assert list(end.end_offsets([kafka.TopicPartition(name, 0)]).values()) == [count]
    end.close()
