"""When a group goes: as soon as those who come back together are there, and the budget of small files allows for it.

A topic that has used up its budget waits, and for less if the files it is to write are larger.
"""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from lakelog.broker import Broker
from lakelog.clock import SystemClock
from lakelog.log import budget
from lakelog.log.budget import FULL_PRICE_BYTES, SMALL_FILE_BYTES
from lakelog.log.stamp import Appended
from lakelog.model.batch import Records, from_arrow
from lakelog.produce import Acks
from tests.conftest import OpenBroker
from tests.contract.records import PATIENCE_S

# A commit to an object store may take longer than one can wait to see that there is none.
pytestmark = pytest.mark.parametrize("warehouse", ["memory", "local"], indirect=True)


class StoppedClock(SystemClock):
    """It goes on only as it is told."""

    def __init__(self) -> None:
        self.at_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.at_ms


@pytest.fixture(params=[False, True], ids=["a disk", "an object store"])
async def broker(open_broker: OpenBroker, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Broker:
    """Its time stands still, so a budget that is used up stays so."""
    monkeypatch.setattr(budget, "BURST_FILES", 2)
    broker = open_broker(clock=StoppedClock())
    monkeypatch.setattr(broker.store, "on_object_store", request.param)
    await broker.admin.create_topic("busy", 1)
    return broker


def records(size: int) -> Records:
    return from_arrow(pa.table({"value": [b"x" * size]}))


def begin(broker: Broker, size: int) -> asyncio.Task[Appended | None]:
    return asyncio.create_task(broker.append("busy", records(size)))


async def waits(append: asyncio.Task[Appended | None]) -> bool:
    return append in (await asyncio.wait([append], timeout=0.1))[1]


async def test_small_files_wait_once_the_burst_is_over_until_they_are_not_small(broker: Broker) -> None:
    for _ in range(budget.BURST_FILES):
        await broker.append("busy", records(1))
    small = begin(broker, 1)
    assert await waits(small)
    await broker.append("busy", records(SMALL_FILE_BYTES))
    await small


MEDIUM_FILE_BYTES = 8 * FULL_PRICE_BYTES


async def test_files_of_medium_size_count_in_part_where_a_file_is_not_a_paid_request(broker: Broker) -> None:
    for _ in range(budget.BURST_FILES):
        await broker.append("busy", records(MEDIUM_FILE_BYTES))
    small, medium = begin(broker, 1), begin(broker, MEDIUM_FILE_BYTES)
    assert await waits(medium) == broker.store.on_object_store
    await broker.append("busy", records(SMALL_FILE_BYTES))
    await small
    await medium


async def test_clients_that_come_back_together_share_their_commits(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic("busy", 1)
    topic = await broker.topics.get("busy")

    async def client(appends: int, turns_until_back: int = 0) -> None:
        for _ in range(appends):
            await broker.append("busy", records(1))
            for _ in range(turns_until_back):
                await asyncio.sleep(0)

    before = topic.state.version
    await asyncio.gather(*(client(8, 2 * number) for number in range(5)))
    # If the first to come back did not wait, it would go alone and the other four after it: twice as many.
    assert topic.state.version - before <= 12
    before = topic.state.version
    await client(3)
    assert topic.state.version - before == 3


async def test_who_was_answered_before_the_commit_is_not_waited_for(
    open_broker: OpenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next request is in line by then, and would be counted twice."""
    monkeypatch.setattr("lakelog.produce.GATHER_MOST_MS", 3_600_000)
    clock = StoppedClock()
    broker = open_broker(clock=clock)
    await broker.admin.create_topic("busy", 1)
    put = broker.store.put

    async def takes_long(path: str, data: bytes | pa.Buffer) -> None:
        for _ in range(20):  # the sender is answered and comes back
            await asyncio.sleep(0)
        await put(path, data)
        clock.at_ms += 3_600_000

    monkeypatch.setattr(broker.store, "put", takes_long)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(5):
            await broker.append("busy", records(1), acks=Acks.LEADER)
        await broker.append("busy", records(1))
