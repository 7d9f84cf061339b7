"""A request that breaks a rule is refused whole, with the rule; nothing of it is written and nobody else suffers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.batch import AnyRecords, ListRecords, from_arrow
from lakelog.produce import Acks
from tests.conftest import OpenBroker
from tests.contract.records import append, high_watermarks, outcomes, records, values_of


async def data_files(broker: Broker, topic: str) -> list[str]:
    return [file.path for file in await broker.store.files(topic) if "_delta_log" not in file.path]


async def test_an_empty_batch_is_refused(broker: Broker) -> None:
    made = await broker.admin.create_topic("orders", 1)
    for empty in (records([]), ListRecords(values=[], size_bytes=0)):
        with pytest.raises(LakelogError, match="no records") as caught:
            await broker.append("orders", empty)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert await broker.admin.describe_topic("orders") == made
    with pytest.raises(LakelogError):  # not even the topic is made for it
        await broker.append("fresh", records([]))
    assert await broker.store.folders() == ["orders"]


WRONG_SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "value of numbers": ({"value": pa.array([1, 2])}, "'value' is int64"),
    "key of numbers": ({"value": [b"x"], "key": pa.array([1.5])}, "'key' is double"),
    "time of text": ({"value": [b"x"], "timestamp": ["noon"]}, "'timestamp' is string"),
    "time without an end": ({"value": [b"x"], "timestamp": pa.array([2**62])}, "'timestamp'"),
    "headers of text": ({"value": [b"x"], "headers": ["a=b"]}, "'headers' is string"),
    "partition of text": ({"value": [b"x"], "partition": ["0"]}, "'partition' is string"),
    "unknown column": ({"value": [b"x"], "offset": [7]}, "unknown column 'offset'"),
    "no value and no key": ({"partition": [0]}, "neither a column 'key' nor a column 'value'"),
}


@pytest.mark.parametrize(("columns", "reason"), WRONG_SHAPES.values(), ids=list(WRONG_SHAPES))
def test_a_batch_of_the_wrong_shape_is_refused_with_the_column(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(LakelogError, match=reason) as caught:
        from_arrow(pa.table(columns))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(LakelogError, match="header has no key") as caught:
        records(["x"], headers=[[{"key": None, "value": b"1"}]])
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("partition", [3, 99, 2**31 - 1])
async def test_a_partition_that_is_not_there_refuses_the_whole_request(broker: Broker, partition: int) -> None:
    await broker.admin.create_topic("orders", 3)
    batch = from_arrow(pa.table({"value": ["a", "b", "c"], "partition": [0, partition, 1]}))
    with pytest.raises(LakelogError, match=r"record 1 .* 0 to 2") as caught:
        await append(broker, "orders", batch)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await high_watermarks(broker, "orders") == [0, 0, 0]
    assert await data_files(broker, "orders") == []


@pytest.mark.parametrize("partition", [-1, -5, 2**31, 2**63 - 1])
def test_a_partition_that_cannot_be_is_refused_at_the_door(partition: int) -> None:
    with pytest.raises(LakelogError) as caught:
        from_arrow(pa.table({"value": ["a"], "partition": pa.array([partition], type=pa.int64())}))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_up_to_max_message_bytes_are_taken_and_no_larger_ones(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2, {"max.message.bytes": "100"})

    def batch(value_bytes: int) -> Any:
        header = [{"key": "12345", "value": b"12345"}]
        return records(["x", "y" * value_bytes], keys=[b"k", b"k" * 10], headers=[None, header], partition=1)

    await append(broker, "orders", batch(80))
    with pytest.raises(LakelogError, match=r"record 1 .* max.message.bytes, which is 100") as caught:
        await append(broker, "orders", batch(81))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert await high_watermarks(broker, "orders") == [0, 2]


async def test_the_default_takes_a_mebibyte_and_refuses_more(broker: Broker) -> None:
    await append(broker, "orders", records(["x" * 1_048_588]))
    with pytest.raises(LakelogError) as caught:
        await append(broker, "orders", records(["x" * 1_048_589]))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_request_larger_than_the_server_takes_is_refused(open_broker: OpenBroker) -> None:
    broker = open_broker(ServerSettings(request_bytes_max=1000))
    await append(broker, "orders", records(["x" * 100] * 10))
    with pytest.raises(LakelogError, match=r"1001 bytes .* request_bytes_max is 1000") as caught:
        await append(broker, "orders", records(["x" * 100] * 9 + ["y" * 101]))
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert await high_watermarks(broker, "orders") == [10]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_a_compacted_topic_takes_no_record_without_a_key(broker: Broker, policy: str) -> None:
    await broker.admin.create_topic("orders", 1, {"cleanup.policy": policy})
    await append(broker, "orders", records(["a", None], keys=[b"", b"tombstone"]))
    for keyless in (records(["x"]), records(["x", "y", "z"], keys=[b"k", None, b"k"])):
        with pytest.raises(LakelogError, match="has no key") as caught:
            await append(broker, "orders", keyless)
        assert caught.value.code is ErrorCode.INVALID_RECORD
    assert await high_watermarks(broker, "orders") == [2]


async def test_a_refused_request_does_not_take_its_neighbours_with_it(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2, {"max.message.bytes": "50"})
    bad: list[AnyRecords] = [
        records(["x" * 51]),
        records(["x"], partition=2),
        records(["x"], timestamps_ms=[2**43]),
        ListRecords(values=[b"x"], timestamps_ms=[-1], size_bytes=1),
        ListRecords(values=[b"x"], timestamps_ms=[2**62], size_bytes=1),
        ListRecords(values=[b"x"], timestamps_ms=[-(2**70)], size_bytes=1),
        ListRecords(values=[b"x"], partitions=[2], size_bytes=1),
        ListRecords(values=[b"x"], partitions=[-7], size_bytes=1),
        ListRecords(values=[b"x"], partitions=[2**31], size_bytes=1),
    ]
    good = [records([f"good {n}"], partition=0) for n in range(len(bad) + 1)]
    # All in the commit after the one that the first starts: bad and good ones side by side.
    mixed: list[AnyRecords] = [good[0], *(each for pair in zip(bad, good[1:], strict=True) for each in pair)]
    done, refused = await outcomes(*(broker.append("orders", batch) for batch in mixed))
    assert sorted(error.code.name for error in refused) == [
        *["INVALID_TIMESTAMP"] * 4,
        "MESSAGE_TOO_LARGE",
        *["UNKNOWN_TOPIC_OR_PARTITION"] * 4,
    ]
    assert len(done) == len(good)
    assert await values_of(broker, "orders") == [f"good {n}" for n in range(len(good))]
    assert await high_watermarks(broker, "orders") == [len(good), 0]


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
async def test_a_refusal_reaches_whoever_waits_for_an_answer(broker: Broker, acks: Acks) -> None:
    await broker.admin.create_topic("orders", 1, {"max.message.bytes": "5"})
    with pytest.raises(LakelogError) as caught:
        await append(broker, "orders", records(["too long"]), acks=acks)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_refusal_that_nobody_waits_for_is_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    await broker.admin.create_topic("orders", 1, {"max.message.bytes": "5"})
    assert await broker.append("orders", records(["too long"]), acks=Acks.NONE) is None
    await append(broker, "orders", records(["next"]))
    assert "max.message.bytes" in caplog.text
    assert await values_of(broker, "orders") == ["next"]
