"""Two brokers on one warehouse are one log: whoever is asked, what the other did holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pyarrow as pa
import pytest

from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.tiers import FAN
from lakelog.produce import IN_PLACE_BYTES
from tests.conftest import OpenBroker
from tests.contract.records import (
    COLD,
    PATIENCE_S,
    append,
    append_each,
    batch_of,
    high_watermarks,
    outcomes,
    read_all,
    records,
    values_of,
)

TOPIC = "orders"
T = TypeVar("T")


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


def overtake(ours: Broker, append_first: Callable[[], Awaitable[object]], *, files_of: int = 0) -> None:
    """Before each file of `ours` that is so large, somebody else appends."""
    put = ours.store.put

    async def late_put(path: str, data: bytes | pa.Buffer) -> None:
        if path.endswith(".parquet") and memoryview(data).nbytes >= files_of:
            await append_first()
        await put(path, data)

    ours.store.put = late_put  # type: ignore[method-assign]


async def test_a_group_that_is_overtaken_all_the_time_gets_smaller_until_it_is_through(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await ours.admin.create_topic(TOPIC, 1)
    overtake(ours, lambda: append(theirs, TOPIC, records(["theirs"])), files_of=50_000)
    values = [f"{number:02}" + os.urandom(5_000).hex() for number in range(32)]
    async with asyncio.timeout(PATIENCE_S):
        done = await asyncio.gather(*(append(ours, TOPIC, records([value])) for value in values))
    found = await values_of(open_broker(COLD), TOPIC)
    assert [found[each.offsets[0]] for each in done] == values
    assert [value for value in found if value != "theirs"] == values
    assert "theirs" in found


async def test_a_request_that_is_always_overtaken_is_refused_in_the_end(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(ServerSettings(commit_timeout_ms=200)), open_broker()
    await ours.admin.create_topic(TOPIC, 1)
    put = ours.store.put
    overtake(ours, lambda: append(theirs, TOPIC, records(["theirs"])))
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(LakelogError, match="another writer was faster") as caught:
            await append(ours, TOPIC, records(["ours"]), producer=batch_of(1, 0))
    assert caught.value.retriable
    assert "ours" not in await values_of(theirs, TOPIC)
    ours.store.put = put  # type: ignore[method-assign]
    assert not (await append(ours, TOPIC, records(["ours"]), producer=batch_of(1, 0))).duplicate
    assert (await values_of(theirs, TOPIC)).count("ours") == 1


async def test_a_refusal_does_not_keep_its_group_busy_while_others_append_elsewhere(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await ours.admin.create_topic(TOPIC, 2)
    await append(ours, TOPIC, records(["first"], partition=0))
    table = (await ours.topics.get(TOPIC)).table
    refresh, looks = table.refresh, 0

    async def busy_refresh(*, max_age_ms: float = 0) -> None:
        nonlocal looks
        looks += 1
        await append(theirs, TOPIC, records(["theirs"], partition=1))
        await refresh(max_age_ms=max_age_ms)

    table.refresh = busy_refresh  # type: ignore[method-assign]
    async with asyncio.timeout(PATIENCE_S):
        done, refused = await outcomes(
            append(ours, TOPIC, records(["good"], partition=0)), append(ours, TOPIC, records(["bad"], partition=7))
        )
    assert [each.offsets.tolist() for each in done] == [[1]]
    assert [error.code for error in refused] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert looks == 1


async def test_nobody_is_refused_on_what_the_table_said_before_others_wrote(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    large = "x" * 2 * IN_PLACE_BYTES  # so that it is stamped in a thread, and the state goes on meanwhile
    await append(ours, TOPIC, records(["0"]), producer=batch_of(1, 0))
    await append(theirs, TOPIC, records(["1"]), producer=batch_of(1, 1))
    table = (await ours.topics.get(TOPIC)).table
    run = ours.produce_path.run

    async def run_while_a_reader_looks(work: Callable[[], T]) -> T:
        result = await run(work)
        await table.refresh()
        return result

    ours.produce_path.run = run_while_a_reader_looks  # type: ignore[method-assign]
    appended = await append(ours, TOPIC, records([large]), producer=batch_of(1, 2))
    assert appended.offsets.tolist() == [2]
