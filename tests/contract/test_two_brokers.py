"""Two brokers on one warehouse are one log: whoever is asked, what the other did holds."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.tiers import FAN
from tests.conftest import OpenBroker
from tests.contract.records import COLD, append, append_each, batch_of, high_watermarks, read_all, records, values_of

TOPIC = "orders"


async def test_appends_to_different_partitions_do_not_get_in_each_others_way(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker()]
    await brokers[0].admin.create_topic(TOPIC, 2)
    sent = [[f"{partition}-{number}" for number in range(20)] for partition in (0, 1)]
    await asyncio.gather(*(append_each(brokers[p], TOPIC, sent[p], partition=p) for p in (0, 1)))
    for reader in (*brokers, open_broker(COLD)):
        for partition in (0, 1):
            rows = await read_all(reader, TOPIC, partition)
            assert [(row["offset"], row["value"].decode()) for row in rows] == list(enumerate(sent[partition]))


async def test_a_producer_may_change_its_broker_with_every_batch_and_send_each_twice(open_broker: OpenBroker) -> None:
    brokers = [open_broker(), open_broker()]
    await brokers[0].admin.create_topic(TOPIC, 1)
    for number in range(FAN + 2):  # so many that files are merged meanwhile, and notes move with them
        batch, producer = records([str(number)]), batch_of(1, number)
        first = await append(brokers[number % 2], TOPIC, batch, producer=producer)
        again = await append(brokers[1 - number % 2], TOPIC, batch, producer=producer)
        assert (first.duplicate, again.duplicate) == (False, True)
        assert first.offsets.tolist() == again.offsets.tolist() == [number]
    assert await values_of(open_broker(COLD), TOPIC) == [str(number) for number in range(FAN + 2)]


async def test_a_producer_that_moves_is_known_where_its_records_were_deleted(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await append(ours, TOPIC, records(["a"]), producer=batch_of(1, 0))
    await theirs.admin.delete_records(TOPIC, {0: 1})
    assert (await append(theirs, TOPIC, records(["a"]), producer=batch_of(1, 0))).duplicate
    assert (await append(ours, TOPIC, records(["b"]), producer=batch_of(1, 1))).offsets.tolist() == [1]
    with pytest.raises(LakelogError) as caught:
        await append(theirs, TOPIC, records(["d"]), producer=batch_of(1, 3))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await values_of(theirs, TOPIC) == ["b"]


async def test_terms_that_change_under_appends_lose_none_of_them(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await ours.admin.create_topic(TOPIC, 1)
    values = [str(number) for number in range(20)]

    async def change() -> None:
        for number in range(1, 11):
            await theirs.admin.alter_config(TOPIC, {"retention.ms": str(number * 1000)})
            await theirs.admin.delete_records(TOPIC, {0: 0})

    await asyncio.gather(append_each(ours, TOPIC, values), change())
    assert await high_watermarks(theirs, TOPIC) == [20]
    assert await values_of(open_broker(COLD), TOPIC) == values
    assert (await ours.admin.describe_topic(TOPIC)).config.retention_ms == 10_000
