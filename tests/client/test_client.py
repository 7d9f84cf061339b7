"""The blocking client: what a program hands in is what comes out, and what goes wrong is said in words."""

from __future__ import annotations

import socket
import threading

import pyarrow as pa
import pytest

from lakelog.client import LakelogClient, Record, RequestFailed
from lakelog.errors import ErrorCode, LakelogError


def test_topics_are_created_described_altered_and_deleted(client: LakelogClient) -> None:
    made = client.create_topic("life", 2, {"retention.ms": 1000})
    assert (made.name, len(made.partitions)) == ("life", 2)
    assert "life" in client.list_topics()
    configs = {
        entry.name: entry.value for entry in client.alter_config("life", {"segment.ms": "7000"}, ["retention.ms"])
    }
    assert (configs["segment.ms"], configs["retention.ms"]) == ("7000", "604800000")
    assert len(client.add_partitions("life", 3).partitions) == 3
    client.delete_topic("life")
    assert "life" not in client.list_topics()
    with pytest.raises(RequestFailed, match="life") as caught:
        client.describe_topic("life")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_every_kind_of_value_comes_back_as_it_was_stored(client: LakelogClient, topic: str) -> None:
    values = [{"id": 1}, "text", b"\x00\xff", None, Record({"id": 2}, key="k", headers=[("trace", "abc")], partition=1)]
    produced = client.produce(topic, values, partition=None)
    assert produced.records == 5
    found = sorted(client.fetch(topic), key=lambda record: (record.partition, record.offset))
    assert {record.value for record in found} == {b'{"id":1}', b"text", b"\x00\xff", None, b'{"id":2}'}
    keyed = next(record for record in found if record.key is not None)
    assert (keyed.key, keyed.partition, keyed.json()) == (b"k", 1, {"id": 2})
    assert keyed.headers == (("trace", b"abc"),)


def test_a_table_is_sent_and_fetched_as_columns(client: LakelogClient, topic: str) -> None:
    table = pa.table({"key": ["a", "b"] * 500, "value": [f"v{n}" for n in range(1000)]})
    assert client.produce(topic, table).records == 1000
    fetched = client.fetch(topic)
    assert len(fetched) == 1000
    assert sorted(fetched.to_arrow()["value"].to_pylist()) == sorted(f"v{n}".encode() for n in range(1000))
    assert len(fetched.to_pandas()) == 1000


def test_a_reader_goes_on_from_where_it_was(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["a", "b"], partition=0)
    first = client.fetch(topic)
    client.produce(topic, ["c"], partition=0)
    second = client.fetch(topic, positions=first.next_positions)
    assert [record.value for record in second] == [b"c"]
    assert client.offsets_at(topic, "latest") == {0: 3, 1: 0}


def test_an_append_that_expects_another_end_is_refused(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["a"], partition=0, expected_offsets={0: 0})
    with pytest.raises(LakelogError):
        client.produce(topic, ["b"], partition=0, expected_offsets={0: 0})
    assert client.offsets_at(topic, "latest")[0] == 1


def test_records_below_an_offset_are_let_go(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["a", "b", "c"], partition=0)
    assert client.delete_records(topic, {0: 2}) == {0: 2}
    assert [record.value for record in client.fetch(topic, partition=0)] == [b"c"]


def test_a_stream_follows_what_is_produced_later(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["old"], partition=0)
    stream = client.stream(topic, offset="earliest", max_records=3)
    records = iter(stream)
    assert next(records).value == b"old"
    sender = threading.Thread(target=lambda: client.produce(topic, ["new 1", "new 2"], partition=0))
    sender.start()
    assert [record.value for record in records] == [b"new 1", b"new 2"]
    sender.join()
    assert stream.positions[0] == 3


def test_a_stream_that_does_not_follow_ends_where_the_topic_ended(client: LakelogClient, topic: str) -> None:
    client.produce(topic, [str(n) for n in range(50)])
    values = [record.value for record in client.stream(topic, offset="earliest", follow=False)]
    assert set(values) == {str(n).encode() for n in range(50)}
    assert len(values) == 50


def test_a_producer_gathers_records_and_delivers_each_once_in_order(client: LakelogClient, topic: str) -> None:
    with client.producer(topic, partition=1, linger_ms=1) as producer:
        for number in range(2000):
            producer.send(str(number))
        producer.flush()
        assert [record.value for record in client.fetch(topic, partition=1)] == [b"%d" % n for n in range(2000)]


def test_a_producer_says_what_it_could_not_deliver(client: LakelogClient, topic: str) -> None:
    producer = client.producer(topic, partition=9)
    producer.send("lost")
    with pytest.raises(LakelogError, match="partition"):
        producer.flush()
    producer.close()


@pytest.mark.parametrize(
    ("url", "said"), [("ftp://there", "not an address"), ("http://[::", "not an address"), ("http://", "address")]
)
def test_what_is_no_address_is_refused(url: str, said: str) -> None:
    with pytest.raises(LakelogError, match=said):
        LakelogClient(url)


def test_an_address_without_a_gateway_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with LakelogClient(url, retry_timeout_s=0) as client, pytest.raises(LakelogError, match=f"no gateway .* {url}"):
            client.ping()


def test_records_that_are_none_are_refused_before_anything_is_sent(client: LakelogClient, topic: str) -> None:
    with pytest.raises(LakelogError, match="value"):
        client.produce(topic, pa.table({"value": [[1, 2]]}))
    assert len(client.fetch(topic)) == 0
