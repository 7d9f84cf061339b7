"""Members of groups, blocking and for event loops, against a real gateway."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from lakelog.client import AsyncLakelogClient, LakelogClient, Record, RequestFailed
from lakelog.client.consumer import AsyncConsumer, Consumer, Send, SendAsync
from lakelog.client.errors import interrupted
from lakelog.client.membership import Membership
from lakelog.client.requests import Call
from lakelog.errors import ErrorCode, LakelogError
from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway

EARLIEST = {"offset_reset": "earliest"}

T = TypeVar("T")


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


def _values(client: LakelogClient, group: str, topic: str, count: int) -> list[int]:
    """What the next consumer of the group reads; nothing of it is committed."""
    with client.consumer(group, topic, auto_commit=False, **EARLIEST) as consumer:
        return sorted(record.json() for record in islice(consumer, count))


def test_records_come_whole(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, [Record({"id": 1}, key="k", headers=[("unit", "C")], partition=1, timestamp=10**12)])
    with client.consumer(group, topic, **EARLIEST) as consumer:
        record = next(iter(consumer))
    assert (record.topic, record.partition, record.offset, record.timestamp_ms) == (topic, 1, 0, 10**12)
    assert (record.key, record.json(), record.headers) == (b"k", {"id": 1}, (("unit", b"C"),))


def test_a_poll_is_a_table(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(4)))
    with client.consumer(group, [topic], **EARLIEST) as consumer:
        assert len(consumer.poll(0, max_records=1)) == 1
        polled = next(consumer.batches())
        assert sorted(polled.to_polars()["value"]) == [b"1", b"2", b"3"]
        assert len(consumer.poll(0)) == 0


def test_what_was_handed_out_is_committed_and_no_more(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(6)), partition=0)
    with client.consumer(group, topic, **EARLIEST) as consumer:
        # The third one is still being worked on when the consumer is left.
        assert [record.json() for record in islice(consumer, 3)] == [0, 1, 2]
    assert _values(client, group, topic, 4) == [2, 3, 4, 5]


def test_a_commit_by_hand(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(4)), partition=0)
    with client.consumer(group, topic, auto_commit=False, **EARLIEST) as consumer:
        consumer.commit()
        consumer.poll(max_records=2)
        consumer.commit()
        consumer.poll()
    assert _values(client, group, topic, 2) == [2, 3]


def test_commits_that_come_by_themselves(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(4)), partition=0)
    consumer = client.consumer(group, topic, auto_commit_interval_s=0.0, **EARLIEST)
    consumer.poll(max_records=2)
    consumer.poll(max_records=1)
    reply = httpx.get(f"{client.url}/admin/groups/{group}")
    assert reply.status_code == 200, reply.text
    consumer.close()
    assert _values(client, group, topic, 1) == [3]


def test_members_share_and_a_pattern_fits(client: LakelogClient, topic: str, group: str) -> None:
    first = client.consumer(group, pattern=f"{topic}.*", **EARLIEST)
    second = client.consumer(group, pattern=f"{topic}.*", **EARLIEST)
    with first, second:
        while len(second.assignment()) != 1:
            first.poll(0)
        client.produce(topic, ["x"], partition=0)
        client.produce(topic, ["y"], partition=1)
        assert sorted(next(iter(each)).text() or "" for each in (first, second)) == ["x", "y"]


def test_a_seek(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(3)), partition=0)
    with client.consumer(group, topic, **EARLIEST) as consumer:
        consumer.poll()
        consumer.seek({(topic, 0): 1})
        assert [record.json() for record in consumer.poll()] == [1, 2]


def test_a_commit_of_what_went_to_another_is_told(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(2)), partition=0)
    first = client.consumer(group, topic, auto_commit=False, instance_id="me", **EARLIEST)
    first.poll()
    with client.consumer(group, topic, auto_commit=False, instance_id="me", **EARLIEST) as second:
        with pytest.raises(RequestFailed) as refusal:
            first.commit()
        assert refusal.value.code is ErrorCode.FENCED_INSTANCE_ID
        assert [record.json() for record in second.poll()] == [0, 1]


def test_a_topic_that_is_deleted_stops_no_commit(client: LakelogClient, topic: str, group: str) -> None:
    doomed = f"{topic}-doomed"
    client.create_topic(doomed, 1)
    client.produce(doomed, [1])
    client.produce(topic, [2], partition=0)
    consumer = client.consumer(group, [topic, doomed], auto_commit_interval_s=0.0, **EARLIEST)
    assert sorted(record.json() for record in consumer.poll()) == [1, 2]
    client.delete_topic(doomed)
    client.produce(topic, [3], partition=0)
    assert [record.json() for record in consumer.poll()] == [3]
    consumer.commit()
    consumer.close()
    assert [(each.topic, each.committed) for each in client.group_lag(group)] == [(topic, 2)]


def test_a_consumer_whose_last_commit_fails_leaves_all_the_same(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, [1], partition=0)
    outage = Outage("/offsets", done=False)
    consumer = Consumer(outage.sender(client), Membership(group, topic, offset_reset="earliest"))
    assert len(consumer.poll()) == 1
    with pytest.raises(RequestFailed, match="away"):
        consumer.close()
    assert client.describe_group(group).members == ()


def test_under_an_instance_id_a_consumer_keeps_its_place(client: LakelogClient, topic: str, group: str) -> None:
    first = client.consumer(group, topic, instance_id="me", **EARLIEST)
    other = client.consumer(group, topic, **EARLIEST)
    with first, other:
        while len(other.assignment()) != 1:
            first.poll(0)
        place = first.assignment()
        first.close()
        (there,) = other.assignment()
        assert [there] != place
        first = client.consumer(group, topic, instance_id="me", **EARLIEST)
        assert first.assignment() == place
        assert other.assignment() == [there]
        first.close()


def test_what_a_consumer_can_not_be_asked_for(client: LakelogClient, group: str) -> None:
    with pytest.raises(LakelogError, match="either topics or"):
        client.consumer(group)
    with pytest.raises(RequestFailed, match="session timeout"), client.consumer(group, "orders", session_timeout_s=0.1):
        pass


class Outage:
    """The gateway is away for one request, the one whose path ends so; what was asked may have been done."""

    def __init__(self, path_end: str, *, done: bool) -> None:
        self._path_end: str | None = path_end
        self._done = done

    def meets(self, call: Call[Any]) -> bool:
        met = self._path_end is not None and call.path.endswith(self._path_end)
        if met:
            self._path_end = None
        return met

    def sender(self, client: LakelogClient) -> Send:
        def send(call: Call[T]) -> T:
            if not self.meets(call):
                return client.send(call)
            if self._done:
                client.send(call)
            raise interrupted(client.url, "away")

        return send

    def async_sender(self, client: AsyncLakelogClient) -> SendAsync:
        async def send(call: Call[T]) -> T:
            if not self.meets(call):
                return await client.send(call)
            if self._done:
                await client.send(call)
            raise interrupted(client.url, "away")

        return send


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("step", ["create", "subscribe"])
def test_a_gateway_that_is_away_while_a_consumer_joins(
    client: LakelogClient, topic: str, group: str, step: str, done: bool
) -> None:
    client.produce(topic, list(range(3)), partition=0)
    outage = Outage(f"/consumers/{group}" if step == "create" else "/subscription", done=done)
    consumer = Consumer(outage.sender(client), Membership(group, topic, offset_reset="earliest"))
    with pytest.raises(RequestFailed, match="away"):
        consumer.poll()
    assert [record.json() for record in consumer.poll()] == [0, 1, 2]
    assert len(client.describe_group(group).members) == 1, "and none of the attempt that failed"
    consumer.close()
    assert client.describe_group(group).members == ()


async def test_in_an_event_loop_a_gateway_that_is_away_while_a_consumer_joins(
    aio: AsyncLakelogClient, topic: str, group: str
) -> None:
    await aio.produce(topic, list(range(3)), partition=0)
    outage = Outage("/subscription", done=False)
    consumer = AsyncConsumer(outage.async_sender(aio), Membership(group, topic, offset_reset="earliest"))
    with pytest.raises(RequestFailed, match="away"):
        await consumer.poll()
    assert [record.json() for record in await consumer.poll()] == [0, 1, 2]
    await consumer.close()


def test_a_consumer_that_is_closed_does_not_join_again(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, [1])
    with client.consumer(group, topic, **EARLIEST) as consumer:
        assert next(iter(consumer)).json() == 1
    assert not consumer._membership.uncommitted
    for use in (consumer.poll, consumer.assignment, lambda: next(iter(consumer))):
        with pytest.raises(LakelogError, match="closed"):
            use()
    assert client.describe_group(group).members == ()


def test_a_consumer_that_never_joined_is_let_go_of(client: LakelogClient, topic: str, group: str) -> None:
    outage = Outage("/subscription", done=True)
    consumer = Consumer(outage.sender(client), Membership(group, topic))
    with pytest.raises(RequestFailed, match="away"):
        consumer.poll()
    consumer.close()
    assert client.describe_group(group).members == ()


@pytest.mark.parametrize("done", [False, True])
def test_records_whose_reply_was_lost_come_with_the_next_poll(
    client: LakelogClient, topic: str, group: str, done: bool
) -> None:
    client.produce(topic, list(range(6)), partition=0)
    outage = Outage("/records", done=done)
    consumer = Consumer(outage.sender(client), Membership(group, topic, offset_reset="earliest"))
    with pytest.raises(RequestFailed, match="away"):
        consumer.poll(max_records=4)
    assert [record.json() for record in consumer.poll()] == list(range(6))
    consumer.close()


async def test_in_an_event_loop_a_poll_that_was_cancelled_loses_nothing(
    aio: AsyncLakelogClient, topic: str, group: str
) -> None:
    await aio.produce(topic, list(range(200)), partition=0)
    read: list[int] = []
    async with aio.consumer(group, topic, **EARLIEST) as consumer:
        await consumer.assignment()
        for number in range(200):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.0005 * (number % 10)):
                    read += [record.json() for record in await consumer.poll(0, max_records=5)]
        while len(polled := await consumer.poll(0)):
            read += [record.json() for record in polled]
    assert read == list(range(200))


def test_who_stops_in_the_middle_of_a_reply_goes_on_there(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(10)), partition=0)
    read: list[int] = []
    with client.consumer(group, topic, **EARLIEST) as consumer:
        read += [record.json() for record in islice(consumer, 2)]
        client.produce(topic, [10, 11], partition=0)
        read += [record.json() for record in islice(consumer, 2)]
        read += [record.json() for record in consumer.poll(max_records=3)]
        read += [record.json() for record in islice(consumer, 2)]
    assert read == list(range(9))
    assert _values(client, group, topic, 4) == [8, 9, 10, 11]


def test_polls_of_the_rest_of_a_reply_commit_as_others_do(client: LakelogClient, topic: str, group: str) -> None:
    client.produce(topic, list(range(10)), partition=0)
    with client.consumer(group, topic, auto_commit_interval_s=0.0, **EARLIEST) as consumer:
        next(iter(consumer))
        for _ in range(3):
            consumer.poll(max_records=1)
        assert [each.committed for each in client.group_lag(group)] == [3, None]


def test_a_seek_in_the_middle_of_a_reply_moves_its_own_partition(client: LakelogClient, topic: str, group: str) -> None:
    for partition in (0, 1):
        client.produce(topic, [f"{partition}-{number}" for number in range(3)], partition=partition)
    with client.consumer(group, topic, **EARLIEST) as consumer:
        first = next(iter(consumer))
        other = 1 - first.partition
        consumer.seek({(topic, first.partition): 1})
        read = sorted(record.text() or "" for record in islice(consumer, 5))
    assert read == sorted([f"{first.partition}-1", f"{first.partition}-2", *(f"{other}-{n}" for n in range(3))])


async def test_in_an_event_loop(aio: AsyncLakelogClient, topic: str, group: str) -> None:
    await aio.produce(topic, list(range(6)), partition=0)
    async with aio.consumer(group, topic, **EARLIEST) as consumer:
        assert await consumer.assignment() == [(topic, 0), (topic, 1)]
        assert [record.json() for record in await consumer.poll(max_records=2)] == [0, 1]
        await consumer.commit()
        async for record in consumer:
            if record.json() == 4:
                break
        await consumer.seek({(topic, 0): 5})
        async for polled in consumer.batches():
            assert [record.json() for record in polled] == [5]
            break
    async with aio.consumer(group, topic, **EARLIEST) as consumer:
        assert len(await consumer.poll(0)) == 0


def test_a_gateway_that_is_killed_is_not_noticed(tmp_path: Path) -> None:
    with gateway(tmp_path, {"access_log": "off"}) as server, LakelogClient(server.url) as client:
        _restarted(server, client)


def _restarted(server: LocalGateway, client: LakelogClient) -> None:
    client.create_topic("orders", 2)
    client.produce("orders", list(range(10)))
    with client.consumer("readers", "orders", auto_commit=False, **EARLIEST) as consumer:
        consumer.poll(max_records=4)
        consumer.commit()
        consumer.poll(max_records=2)
        server.kill()
        server.start()
        rest: list[int] = []
        while len(rest) < 6:
            rest += [record.json() for record in consumer.poll()]
        assert sorted(rest) == list(range(4, 10)), "from what was committed"
        consumer.commit()
    with client.consumer("readers", "orders", **EARLIEST) as consumer:
        assert len(consumer.poll(0)) == 0
