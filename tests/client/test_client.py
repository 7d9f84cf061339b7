"""The blocking client: what a program hands in is what comes out."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakelog.client import LakelogClient, OffsetRange, Produced, Record, requests
from lakelog.client.identity import new_identity
from lakelog.client.records import to_ipc, to_table
from lakelog.config import PARTITIONS_MAX
from lakelog.errors import ErrorCode, LakelogError

TIME_MS = 1_700_000_000_000


def values_of(records: object) -> list[bytes | None]:
    return [record.value for record in records]  # type: ignore[attr-defined]


def test_topics_are_created_described_altered_and_deleted(client: LakelogClient) -> None:
    made = client.create_topic("life", 2, {"retention.ms": 1000})
    assert (made.name, len(made.partitions)) == ("life", 2)
    assert "life" in client.list_topics()
    configs = {
        entry.name: entry.value for entry in client.alter_config("life", {"segment.ms": "7000"}, ["retention.ms"])
    }
    assert (configs["segment.ms"], configs["retention.ms"]) == ("7000", "604800000")
    assert {entry.name: entry.value for entry in client.topic_configs("life")} == configs
    assert len(client.add_partitions("life", 3).partitions) == 3
    assert len(client.describe_topic("life").partitions) == 3
    (summary,) = [each for each in client.summarize_topics() if each.name == "life"]
    assert (summary.partitions, summary.records, summary.bytes, summary.internal) == (3, 0, 0, False)
    client.delete_topic("life")
    assert "life" not in client.list_topics()


def test_every_kind_of_value_comes_back_as_it_was_stored(client: LakelogClient, topic: str) -> None:
    record = Record({"id": 2}, key="k", headers=[("trace", "abc"), ("none", None)], timestamp=TIME_MS)
    produced = client.produce(topic, [{"id": 1}, "text", b"\x00\xff", None, 5, record], partition=1)
    assert produced == Produced(6, (OffsetRange(1, 0, 6),))
    found = list(client.fetch(topic, partition=1))
    assert values_of(found) == [b'{"id":1}', b"text", b"\x00\xff", None, b"5", b'{"id":2}']
    assert (found[5].key, found[5].json(), found[5].timestamp_ms) == (b"k", {"id": 2}, TIME_MS)
    assert found[5].timestamp == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert found[5].headers == (("trace", b"abc"), ("none", None))
    assert found[1].text() == "text"


def test_as_many_partitions_as_a_topic_may_have_are_read_at_once(client: LakelogClient) -> None:
    client.create_topic("wide", PARTITIONS_MAX)
    client.produce("wide", "far", partition=PARTITIONS_MAX - 1)
    first = client.fetch("wide")
    assert values_of(first) == [b"far"]
    client.produce("wide", ["near"], partition=0)
    assert values_of(client.fetch("wide", positions=first.next_positions)) == [b"near"]
    with pytest.raises(LakelogError, match=str(PARTITIONS_MAX)) as caught:
        client.create_topic("wider", PARTITIONS_MAX + 1)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("one", ["text", b"bytes", {"id": 1}, Record("value")])
def test_one_record_needs_no_list(client: LakelogClient, topic: str, one: object) -> None:
    assert client.produce(topic, one).records == 1


def test_a_record_goes_to_the_partition_that_it_names(client: LakelogClient, topic: str) -> None:
    client.produce(topic, [Record("a", partition=1), Record("b", partition=0), Record("c", partition=1)])
    assert values_of(client.fetch(topic, partition=0)) == [b"b"]
    assert values_of(client.fetch(topic, partition=1)) == [b"a", b"c"]


COLUMNS = {"key": ["a", "b"] * 500, "value": [f"v{n}" for n in range(1000)]}


@pytest.mark.parametrize("table", [pa.table(COLUMNS), pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS)], ids=type)
def test_a_table_is_sent_and_fetched_as_columns(client: LakelogClient, topic: str, table: object) -> None:
    assert client.produce(topic, table).records == 1000
    fetched = client.fetch(topic)
    expected = sorted(value.encode() for value in COLUMNS["value"])
    assert sorted(fetched.to_arrow()["value"].to_pylist()) == expected
    assert sorted(fetched.to_pandas()["value"]) == expected
    assert sorted(fetched.to_polars()["value"]) == expected
    assert {record.key for record in fetched} == {b"a", b"b"}


def test_many_records_go_in_several_requests_and_are_one_range(client: LakelogClient, topic: str) -> None:
    produced = client.produce(topic, pa.table({"value": [b"x" * 1_000_000] * 20}), partition=0)
    assert produced == Produced(20, (OffsetRange(0, 0, 20),))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_records_travel_compressed_where_asked(client: LakelogClient, topic: str, compression: str) -> None:
    with LakelogClient(client.url, compression=compression) as compressing:
        compressing.produce(topic, ["a", "b"], partition=0)
    assert values_of(client.fetch(topic, partition=0)) == [b"a", b"b"]


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_acks_say_what_the_reply_knows(client: LakelogClient, topic: str, acks: requests.Acks) -> None:
    produced = client.produce(topic, ["a"], partition=0, acks=acks)
    assert produced == Produced(1, () if acks == 0 else (OffsetRange(0, 0, 1),))


def test_a_request_that_is_sent_again_is_stored_once(client: LakelogClient, topic: str) -> None:
    body = to_ipc(to_table(["a", "b"]))
    call = requests.produce(topic, body, 2, identity=new_identity(), partition=0, expected_offsets={0: 0})
    assert client.send(call) == client.send(call) == Produced(2, (OffsetRange(0, 0, 2),))
    assert values_of(client.fetch(topic)) == [b"a", b"b"]


def test_an_append_that_expects_another_end_is_refused(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["a"], partition=0, expected_offsets={0: 0})
    with pytest.raises(LakelogError) as caught:
        client.produce(topic, ["b"], partition=0, expected_offsets={0: 0})
    assert caught.value.code is ErrorCode.EXPECTED_OFFSET_MISMATCH
    assert client.produce(topic, ["c"], expected_offsets={0: 1, 1: 0}).records == 1
    assert values_of(client.fetch(topic)) == [b"a", b"c"]


def test_a_reader_goes_on_from_where_it_was(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["a", "b"], partition=0)
    first = client.fetch(topic)
    assert first.at_end
    client.produce(topic, ["c"], partition=0)
    assert values_of(client.fetch(topic, positions=first.next_positions)) == [b"c"]
    assert values_of(client.fetch(topic, partition=0, positions=first.next_positions)) == [b"c"]
    assert client.offsets_at(topic, "latest") == {0: 3, 1: 0}


def test_a_reply_that_is_cut_short_says_where_to_go_on(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["x" * 100] * 10, partition=0)
    part = client.fetch(topic, partition=0, max_bytes=500)
    assert 0 < len(part) < 10
    assert not part.at_end
    rest = client.fetch(topic, partition=0, positions=part.next_positions)
    assert len(part) + len(rest) == 10
    head = client.fetch(topic).head(4)
    assert (len(head), head.next_positions) == (4, {0: 4, 1: 0})


def test_a_time_finds_its_first_record(client: LakelogClient, topic: str) -> None:
    records = [Record(str(hour), timestamp=TIME_MS + hour * 3_600_000, partition=0) for hour in range(5)]
    client.produce(topic, records)
    at = datetime.fromtimestamp(TIME_MS / 1000 + 2 * 3600 - 1, UTC)
    assert values_of(client.fetch(topic, timestamp=at)) == [b"2", b"3", b"4"]
    assert client.offsets_at(topic, at) == {0: 2, 1: 0}
    assert client.offsets_at(topic, TIME_MS + 10**9) == {0: 5, 1: 0}


def test_a_fetch_waits_for_a_record(client: LakelogClient, topic: str) -> None:
    sender = threading.Thread(target=lambda: client.produce(topic, ["late"], partition=0))
    sender.start()
    assert values_of(client.fetch(topic, timeout_ms=60_000)) == [b"late"]
    sender.join()


def test_records_below_an_offset_are_let_go(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["a", "b", "c"], partition=0)
    assert client.delete_records(topic, {0: 2}) == {0: 2}
    fetched = client.fetch(topic, partition=0)
    assert values_of(fetched) == [b"c"]
    assert (fetched.log_start_offsets, fetched.high_watermarks) == ({0: 2}, {0: 3})


def test_a_stream_follows_what_is_produced_later(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["old"], partition=0)
    stream = client.stream(topic, offset="earliest", max_records=3)
    records = iter(stream)
    assert next(records).value == b"old"
    sender = threading.Thread(target=lambda: client.produce(topic, ["new 1", "new 2"], partition=0))
    sender.start()
    assert values_of(records) == [b"new 1", b"new 2"]
    sender.join()
    assert stream.positions[0] == 3


def test_a_stream_that_is_left_can_be_taken_up_at_its_positions(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["a", "b", "c"], partition=0)
    stream = client.stream(topic, offset="earliest")
    assert next(iter(stream)).value == b"a"
    assert stream.positions == {0: 1, 1: 0}
    rest = client.stream(topic, positions=stream.positions, follow=False)
    assert values_of(rest) == [b"b", b"c"]


def test_a_stream_reads_a_partition_that_is_added_later(client: LakelogClient, topic: str) -> None:
    client.produce(topic, ["old"], partition=0)
    records = iter(client.stream(topic, offset="earliest", max_records=3))
    assert next(records).value == b"old"
    client.add_partitions(topic, 3)
    client.produce(topic, ["first", "second"], partition=2)
    assert values_of(records) == [b"first", b"second"]


def test_a_stream_that_does_not_follow_ends_where_the_topic_ended(client: LakelogClient, topic: str) -> None:
    client.produce(topic, [str(n) for n in range(50)])
    values = values_of(client.stream(topic, offset="earliest", follow=False, max_bytes=100))
    assert len(values) == 50
    assert set(values) == {str(n).encode() for n in range(50)}
