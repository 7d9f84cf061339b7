"""A batch of an idempotent producer is stored once, whoever it is sent to and however often, also after a restart."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.producers import BATCHES_REMEMBERED
from lakelog.log.tiers import FAN
from lakelog.produce import Acks
from tests.conftest import OpenBroker
from tests.contract.records import append, append_each, batch_of, high_watermarks, outcomes, records, values_of

KEYS = [b"a", b"b", b"c", b"d", b"e"]


async def test_a_batch_sent_again_answers_with_its_first_offsets(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 3)
    batch = records([key.decode() for key in KEYS], keys=KEYS)
    first = await append(broker, "orders", batch, producer=batch_of(1, 0))
    await append(broker, "orders", records(["other"] * 3, keys=KEYS[:3]))
    again = await append(broker, "orders", batch, producer=batch_of(1, 0))
    assert again.duplicate
    assert not first.duplicate
    assert again.partitions.tolist() == first.partitions.tolist()
    assert again.offsets.tolist() == first.offsets.tolist()
    assert sum(await high_watermarks(broker, "orders")) == 8


async def test_a_repetition_is_known_by_a_broker_that_was_opened_since(open_broker: OpenBroker) -> None:
    first_broker = open_broker()
    await first_broker.admin.create_topic("orders", 2)
    batch = records(["x"] * 5, keys=KEYS)
    first = await append(first_broker, "orders", batch, producer=batch_of(1, 0))
    await first_broker.close()
    for _ in range(2):
        again = await append(open_broker(), "orders", batch, producer=batch_of(1, 0))
        assert again.duplicate
        assert again.offsets.tolist() == first.offsets.tolist()
    assert sum(await high_watermarks(open_broker(), "orders")) == 5


async def test_a_repetition_is_known_by_a_broker_that_did_not_see_the_first(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await append(theirs, "orders", records(["theirs"]))
    first = await append(ours, "orders", records(["once"]), producer=batch_of(1, 0))
    again = await append(theirs, "orders", records(["once"]), producer=batch_of(1, 0))
    assert (again.duplicate, again.offsets.tolist()) == (True, first.offsets.tolist())
    assert await values_of(ours, "orders") == ["theirs", "once"]


async def test_a_batch_sent_to_two_brokers_at_once_is_stored_once(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker()]
    await append(brokers[0], "orders", records(["first"]))
    sent = await asyncio.gather(
        *(append(brokers[n % 2], "orders", records(["once"] * 2), producer=batch_of(1, 0)) for n in range(8))
    )
    assert [each.duplicate for each in sent].count(False) == 1
    assert {tuple(each.offsets.tolist()) for each in sent} == {(1, 2)}
    assert await values_of(brokers[0], "orders") == ["first", "once", "once"]


async def test_batches_of_one_size_without_keys_reach_every_partition(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 4)
    for number in range(40):
        await append(broker, "orders", records(["x"] * 4), producer=batch_of(1, number * 4))
    assert min(await high_watermarks(broker, "orders")) > 0


async def test_a_repetition_after_partitions_were_added_answers_with_the_old_places(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic("orders", 2)
    keyed, keyless = records(["x"] * 5, keys=KEYS), records(["y"] * 2)
    first = [
        await append(broker, "orders", keyed, producer=batch_of(1, 0)),
        await append(broker, "orders", keyless, producer=batch_of(1, 5)),
    ]
    await broker.admin.add_partitions("orders", 7)
    for each in (broker, open_broker()):
        again = [
            await append(each, "orders", keyed, producer=batch_of(1, 0)),
            await append(each, "orders", keyless, producer=batch_of(1, 5)),
        ]
        for before, after in zip(first, again, strict=True):
            assert after.partitions.tolist() == before.partitions.tolist()
            assert after.offsets.tolist() == before.offsets.tolist()
    assert sum(await high_watermarks(broker, "orders")) == 7


async def test_the_last_five_batches_are_remembered_and_older_ones_refused(open_broker: OpenBroker) -> None:
    broker = open_broker()
    for number in range(BATCHES_REMEMBERED + 3):
        await append(broker, "orders", records([str(number)] * 2), producer=batch_of(1, 2 * number))
    for each in (broker, open_broker()):
        for number in range(3, BATCHES_REMEMBERED + 3):
            again = await append(each, "orders", records([str(number)] * 2), producer=batch_of(1, 2 * number))
            assert again.offsets.tolist() == [2 * number, 2 * number + 1]
        for number in range(3):
            with pytest.raises(LakelogError) as caught:
                await append(each, "orders", records([str(number)] * 2), producer=batch_of(1, 2 * number))
            assert caught.value.code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert await high_watermarks(broker, "orders") == [2 * (BATCHES_REMEMBERED + 3)]


async def test_a_gap_in_the_count_is_refused_with_the_number_that_is_due(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["a", "b", "c"]), producer=batch_of(1, 0))
    for each in (broker, open_broker()):
        for sequence in (2, 4, 100):
            with pytest.raises(LakelogError, match=f"sequence {sequence}, the next one is 3") as caught:
                await append(each, "orders", records(["x"]), producer=batch_of(1, sequence))
            assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    appended = await append(broker, "orders", records(["d"]), producer=batch_of(1, 3))
    assert appended.offsets.tolist() == [3]


async def test_a_repetition_with_another_number_of_records_is_out_of_order(broker: Broker) -> None:
    await append(broker, "orders", records(["a", "b"]), producer=batch_of(1, 0))
    with pytest.raises(LakelogError) as caught:
        await append(broker, "orders", records(["a"]), producer=batch_of(1, 0))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await values_of(broker, "orders") == ["a", "b"]


async def test_an_old_epoch_is_fenced_and_a_new_one_counts_from_zero(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["old"]), producer=batch_of(1, 0, epoch=3))
    with pytest.raises(LakelogError) as caught:
        await append(broker, "orders", records(["x"]), producer=batch_of(1, 1, epoch=4))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    await append(broker, "orders", records(["new"]), producer=batch_of(1, 0, epoch=4))
    for each in (broker, open_broker()):
        for sequence in (0, 1):
            with pytest.raises(LakelogError, match="epoch 4 has taken over") as caught:
                await append(each, "orders", records(["zombie"]), producer=batch_of(1, sequence, epoch=3))
            assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await values_of(broker, "orders") == ["old", "new"]


async def test_a_fence_set_by_one_broker_holds_at_the_other(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await append(theirs, "orders", records(["old"]), producer=batch_of(1, 0))
    await append(ours, "orders", records(["new"]), producer=batch_of(1, 0, epoch=1))
    with pytest.raises(LakelogError) as caught:
        await append(theirs, "orders", records(["zombie"]), producer=batch_of(1, 1))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await values_of(theirs, "orders") == ["old", "new"]


async def test_the_count_goes_round_after_the_largest_number(open_broker: OpenBroker) -> None:
    broker = open_broker()
    last = 2**31 - 2
    await append(broker, "orders", records(["a", "b"]), producer=batch_of(1, last))
    await append(broker, "orders", records(["c"]), producer=batch_of(1, 0))
    for each in (broker, open_broker()):
        again = await append(each, "orders", records(["a", "b"]), producer=batch_of(1, last))
        assert (again.duplicate, again.offsets.tolist()) == (True, [0, 1])
    await append(open_broker(), "orders", records(["d"]), producer=batch_of(1, 1))
    assert await values_of(broker, "orders") == ["a", "b", "c", "d"]


async def test_streams_of_partitions_are_counted_apart(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic("orders", 2)
    for partition in (0, 1):
        for sequence in (0, 1):
            await append(
                broker,
                "orders",
                records([f"{partition}{sequence}"], partition=partition),
                producer=batch_of(1, sequence, stream=partition),
            )
    for each in (broker, open_broker()):
        again = await append(each, "orders", records(["11"], partition=1), producer=batch_of(1, 1, stream=1))
        assert (again.duplicate, again.offsets.tolist()) == (True, [1])
    with pytest.raises(LakelogError, match="counts partition 0") as caught:
        await append(broker, "orders", records(["x"], partition=1), producer=batch_of(1, 2, stream=0))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert await high_watermarks(broker, "orders") == [2, 2]


async def test_producers_do_not_get_in_each_others_way(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 2)

    async def produce(producer_id: int) -> None:
        for sequence in range(6):
            for _ in range(2):
                batch = records([f"{producer_id}/{sequence}"], keys=[str(producer_id).encode()])
                await append(broker, "orders", batch, producer=batch_of(producer_id, sequence))

    await asyncio.gather(*(produce(producer_id) for producer_id in range(10)))
    stored = await values_of(broker, "orders", 0) + await values_of(broker, "orders", 1)
    assert sorted(stored) == sorted(f"{p}/{s}" for p in range(10) for s in range(6))
    for producer_id in range(10):
        assert [each for each in stored if each.startswith(f"{producer_id}/")] == [
            f"{producer_id}/{s}" for s in range(6)
        ]


async def test_batches_sent_without_waiting_are_taken_in_the_order_of_their_count(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 1)
    await asyncio.gather(*(append(broker, "orders", records([str(n)]), producer=batch_of(1, n)) for n in range(20)))
    assert await values_of(broker, "orders") == [str(n) for n in range(20)]


async def test_a_gap_refuses_what_comes_after_it_too(broker: Broker) -> None:
    await append(broker, "orders", records(["0"]), producer=batch_of(1, 0))
    sent = (append(broker, "orders", records([str(n)]), producer=batch_of(1, n)) for n in (1, 2, 4, 5, 6))
    done, refused = await outcomes(*sent)
    assert (len(done), len(refused)) == (2, 3)
    assert {error.code for error in refused} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert await values_of(broker, "orders") == ["0", "1", "2"]


async def test_a_refused_batch_does_not_move_the_count(broker: Broker) -> None:
    await broker.admin.create_topic("orders", 1, {"max.message.bytes": "5"})
    with pytest.raises(LakelogError):
        await append(broker, "orders", records(["too long"]), producer=batch_of(1, 0))
    with pytest.raises(LakelogError):
        await append(broker, "orders", records(["a"]), producer=batch_of(1, 0), expected_offsets={0: 9})
    assert not (await append(broker, "orders", records(["a"]), producer=batch_of(1, 0))).duplicate
    assert not (await append(broker, "orders", records(["b"]), producer=batch_of(1, 1))).duplicate
    assert await values_of(broker, "orders") == ["a", "b"]


async def test_a_repetition_is_answered_although_its_expected_offset_is_long_passed(broker: Broker) -> None:
    first = await append(broker, "orders", records(["a"]), producer=batch_of(1, 0), expected_offsets={0: 0})
    await append_each(broker, "orders", ["b", "c"])
    again = await append(broker, "orders", records(["a"]), producer=batch_of(1, 0), expected_offsets={0: 0})
    assert (again.duplicate, again.offsets.tolist()) == (True, first.offsets.tolist())


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
async def test_a_repetition_is_answered_the_same_whatever_the_acks(broker: Broker, acks: Acks) -> None:
    first = await append(broker, "orders", records(["a"]), producer=batch_of(1, 0), acks=acks)
    await append(broker, "orders", records(["b"]))
    again = await append(broker, "orders", records(["a"]), producer=batch_of(1, 0), acks=acks)
    assert again.offsets.tolist() == first.offsets.tolist() == [0]
    assert await values_of(broker, "orders") == ["a", "b"]


async def test_producers_are_remembered_over_merges_checkpoints_and_a_cleaned_log(open_broker: OpenBroker) -> None:
    broker = open_broker()
    batches = [records([f"p{n}"], partition=0) for n in range(3)]
    for n, batch in enumerate(batches):
        await append(broker, "orders", batch, producer=batch_of(1, n))
    await append_each(broker, "orders", [str(n) for n in range(FAN)])
    await broker.upkeep.settle()
    table = (await broker.topics.get("orders")).table
    await table.checkpoint()
    await table.clean_log(before_ms=1 << 62)
    assert len((await broker.topics.get("orders")).state.partitions[0].segments) < FAN
    for each in (broker, open_broker()):
        for n, batch in enumerate(batches):
            again = await append(each, "orders", batch, producer=batch_of(1, n))
            assert (again.duplicate, again.offsets.tolist()) == (True, [n])
        with pytest.raises(LakelogError):
            await append(each, "orders", batches[0], producer=batch_of(1, 9))
    assert (await append(open_broker(), "orders", batches[0], producer=batch_of(1, 3))).offsets.tolist() == [3 + FAN]


async def test_a_producer_is_remembered_although_its_records_were_deleted(open_broker: OpenBroker) -> None:
    broker = open_broker()
    first = await append(broker, "orders", records(["a", "b"]), producer=batch_of(1, 0))
    await append_each(broker, "orders", ["c"])
    await broker.admin.delete_records("orders", {0: 3})
    topic = await broker.topics.get("orders")
    assert topic.state.live == {}  # nothing is kept in the table only to remember a producer by
    # Neither the commits nor other terms of the topic take the notes away.
    await broker.admin.alter_config("orders", {"retention.ms": "1"})
    await topic.table.checkpoint()
    await topic.table.clean_log(before_ms=1 << 62)
    for each in (broker, open_broker()):
        again = await append(each, "orders", records(["a", "b"]), producer=batch_of(1, 0))
        assert (again.duplicate, again.offsets.tolist()) == (True, first.offsets.tolist())
    assert await values_of(open_broker(), "orders") == []
    later = await append(open_broker(), "orders", records(["d"]), producer=batch_of(1, 2))
    assert (later.duplicate, later.offsets.tolist()) == (False, [3])


async def test_producers_of_two_partitions_are_remembered_when_both_are_emptied_at_once(
    open_broker: OpenBroker,
) -> None:
    brokers = [open_broker(), open_broker()]
    await brokers[0].admin.create_topic("orders", 2)
    for partition in (0, 1):
        batch = records(["x"], partition=partition)
        await append(brokers[0], "orders", batch, producer=batch_of(1, 0, stream=partition))
    await asyncio.gather(
        brokers[0].admin.delete_records("orders", {0: 1}),
        brokers[1].admin.delete_records("orders", {1: 1}),
        brokers[0].admin.alter_config("orders", {"retention.ms": "1"}),
    )
    topic = await brokers[0].topics.get("orders", max_age_ms=0)
    assert topic.state.config.retention_ms == 1
    await topic.table.checkpoint()
    fresh = open_broker()
    for partition in (0, 1):
        batch = records(["x"], partition=partition)
        assert (await append(fresh, "orders", batch, producer=batch_of(1, 0, stream=partition))).duplicate


async def test_a_new_topic_remembers_no_producer_of_one_that_was_deleted(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["a"]), producer=batch_of(1, 0))
    await broker.admin.delete_records("orders", {0: 1})
    await broker.admin.delete_topic("orders")
    await broker.admin.create_topic("orders", 1)
    for each, sequence in ((broker, 0), (open_broker(), 1)):
        appended = await append(each, "orders", records(["b"]), producer=batch_of(1, sequence))
        assert (appended.duplicate, appended.offsets.tolist()) == (False, [sequence])
