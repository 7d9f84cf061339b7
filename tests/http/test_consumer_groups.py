"""Several consumers: how they share, how a group changes, and what a consumer that lost its place may not do."""

from __future__ import annotations

import asyncio
import json
from itertools import chain
from typing import Any

import pytest

from consumer_groups.assignors import TopicPartition
from lakelog.errors import LakelogError
from tests.contract.group_members import commit_simply
from tests.http.conftest import OpenGateway, Served
from tests.http.consumers import ConsumerOf, consumer, place
from tests.http.requests import create, error_of, produce, send

# Long enough that only what happens ends it.
LONG = "timeout=60000"


async def _fill(client: Served, topic: str, partitions: int, records: int) -> None:
    """Records in every partition, each with its own value."""
    for partition in range(partitions):
        body = {"records": [{"value": f"{partition}-{number}"} for number in range(records)]}
        reply = await produce(client, f"/topics/{topic}/partitions/{partition}", json.dumps(body).encode())
        assert reply.status_code == 200, reply.text


def _all(partitions: int, records: int) -> list[str]:
    return sorted(f"{partition}-{number}" for partition in range(partitions) for number in range(records))


async def _members(client: Served, count: int, **options: Any) -> list[ConsumerOf]:
    members = [await consumer(client, **options) for _ in range(count)]
    for member in members:
        await member.subscribe("orders")
    return members


async def _settled(members: list[ConsumerOf]) -> list[list[tuple[str, int]]]:
    """What each one has when all have heard of each other; nobody has to wait for that, but everyone to ask."""
    for _ in members:
        for member in members:
            await member.poll("timeout=0&max_records=1&max_bytes=1")
    return [await member.assigned() for member in members]


async def test_a_gateway_that_lost_the_groups_stops_without_taking_them_back(
    open_gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer_groups.service.TAKE_BACK_AFTER_MS", 0)
    async with open_gateway() as staying:
        await create(staying, "orders")
        async with open_gateway() as leaving:
            (gone,) = await _members(leaving, 1, auto_commit_enable="true")
            await gone.poll()
            (member,) = await _members(staying, 1)
            with pytest.raises(LakelogError):
                await commit_simply(leaving.gateway.groups, {TopicPartition("orders", 0): 1}, group_id="other")
            assert not leaving.gateway.groups.coordinates
        assert staying.gateway.groups.coordinates
        await send(staying, "orders", "a")
        assert await member.values() == ["a"]
        await member.done("POST", "/offsets")


async def test_one_group_shares_and_every_group_has_all(served: Served) -> None:
    await create(served, "orders", 6)
    members = await _members(served, 3)
    shares = await _settled(members)
    assert [len(share) for share in shares] == [2, 2, 2]
    assert sorted(chain(*shares)) == [("orders", partition) for partition in range(6)]
    await _fill(served, "orders", 6, 2)
    assert sorted(chain(*[await member.values() for member in members])) == _all(6, 2)
    for group in ("audit", "billing"):
        (alone,) = await _members(served, 1, group=group)
        assert sorted(await alone.values()) == _all(6, 2)


async def test_a_poll_that_waits_gets_what_another_one_gives_up(served: Served) -> None:
    await create(served, "orders", 2)
    await _fill(served, "orders", 2, 1)
    (first,) = await _members(served, 1)
    (second,) = await _members(served, 1)
    waiting = asyncio.create_task(second.values(LONG))
    await second.done("GET", "/subscription")
    had = await first.values()  # and by this the first one hears of the second
    (moved,) = await asyncio.wait_for(waiting, 30)
    assert sorted([*had, moved]) == _all(2, 1)
    waiting = asyncio.create_task(second.values(LONG))
    await second.done("GET", "/subscription")
    await first.delete()
    assert sorted(await asyncio.wait_for(waiting, 30)) == sorted(had), "it had committed nothing"


async def test_nobody_has_a_partition_before_its_owner_gave_it_up(served: Served) -> None:
    await create(served, "orders", 2)
    (first,) = await _members(served, 1)
    await first.poll()
    (second,) = await _members(served, 1)
    assert await second.assigned() == []
    await _fill(served, "orders", 2, 1)
    assert await second.values() == []
    reply = await first.done("POST", "/offsets", {"offsets": [place("orders", each, offset=0) for each in (0, 1)]})
    assert reply.json() == [], "until it polls it may commit for all it has"
    assert await first.assigned() == [("orders", 0)]
    assert await second.assigned() == [("orders", 1)]


async def test_what_is_given_up_is_committed_first(served: Served) -> None:
    await create(served, "orders", 2)
    await _fill(served, "orders", 2, 2)
    (first,) = await _members(served, 1, auto_commit_enable="true")
    assert sorted(await first.values()) == _all(2, 2)
    (second,) = await _members(served, 1)
    assert await first.values() == []
    assert await second.values() == [], "the first one came back from it"


async def test_a_commit_for_what_went_to_another_is_refused(served: Served) -> None:
    await create(served, "orders", 2)
    await _fill(served, "orders", 2, 1)
    first, second = await _members(served, 2)
    shares = await _settled([first, second])
    (lost,) = shares[1]
    reply = await first.request("POST", "/offsets", {"offsets": [place(*lost, offset=0)]})
    assert (error_of(reply)[:2], reply.headers["lakelog-error"]) == ((409, 40903), "ILLEGAL_GENERATION")
    assert await first.committed(lost) == {}


async def test_a_consumer_that_was_silent_for_too_long_is_back_with_its_next_poll(open_gateway: OpenGateway) -> None:
    async with open_gateway(group_min_session_timeout_ms="1") as client:
        await create(client, "orders")
        await send(client, "orders", 1, 2)
        (silent,) = await _members(client, 1, session_timeout_ms=300)
        assert await silent.values() == [1, 2]
        (other,) = await _members(client, 1)
        assert await other.values(LONG) == [1, 2], "when the session is over"
        await other.done("POST", "/offsets")
        reply = await silent.request("POST", "/offsets")
        assert (error_of(reply)[:2], reply.headers["lakelog-error"]) == ((409, 40903), "UNKNOWN_MEMBER_ID")
        assert await silent.poll() == []
        await other.delete()
        await send(client, "orders", 3)
        assert await silent.values(LONG) == [3]


async def test_a_consumer_whose_poll_waits_keeps_its_place(open_gateway: OpenGateway) -> None:
    async with open_gateway(group_min_session_timeout_ms="1") as client:
        await create(client, "orders")
        (one,) = await _members(client, 1, session_timeout_ms=100)
        waiting = asyncio.create_task(one.values(LONG))
        await send(client, "ticks", "over")
        silent, after = await consumer(client, group="clock", session_timeout_ms=100), await consumer(client, "clock")
        await silent.subscribe("ticks")
        await after.subscribe("ticks")
        assert await after.values(LONG) == ["over"], "as is by now the session of one who began later"
        await send(client, "orders", 1)
        assert await waiting == [1]
        assert (await client.gateway.groups.describe("readers")).generation == 1


async def test_a_static_member_takes_its_place_again(served: Served) -> None:
    await create(served, "orders", 2)
    first, second = await _members(served, 1, group_instance_id="a") + await _members(served, 1, group_instance_id="b")
    shares = await _settled([first, second])
    (back,) = await _members(served, 1, group_instance_id="a")
    assert await back.assigned() == shares[0]
    assert error_of(await first.request("GET", "/records"))[:2] == (409, 40903)
    assert await second.assigned() == shares[1]


async def test_a_static_member_keeps_its_place_while_it_is_away(open_gateway: OpenGateway) -> None:
    async def back(gateway: Served, instance_id: str) -> list[tuple[str, int]]:
        (member,) = await _members(gateway, 1, group_instance_id=instance_id)
        return await member.assigned()

    async with open_gateway() as client:
        await create(client, "orders", 3)
        members = [*await _members(client, 1, group_instance_id="a"), *await _members(client, 1, group_instance_id="b")]
        first, second = await _settled(members)
        await members[0].delete()
        assert await members[1].assigned() == second
        assert await back(client, "a") == first
        async with open_gateway() as another:
            assert await back(another, "b") == second
    async with open_gateway() as restarted:
        assert await back(restarted, "a") == first
        assert await back(restarted, "b") == second


async def test_a_group_has_so_many_members(open_gateway: OpenGateway) -> None:
    async with open_gateway(group_max_size="1") as client:
        await create(client, "orders")
        (one,) = await _members(client, 1)
        late = await consumer(client)
        refusal = await late.request("POST", "/subscription", {"topics": ["orders"]})
        assert (error_of(refusal)[:2], refusal.headers["lakelog-error"]) == ((429, 429), "GROUP_MAX_SIZE_REACHED")
        await one.delete()
        await late.subscribe("orders")
        assert await late.assigned() == [("orders", 0)]


async def test_fifty_members_come_and_each_reads_at_once(served: Served) -> None:
    await create(served, "orders", 50)
    await _fill(served, "orders", 50, 1)
    members = await _members(served, 50)
    polls = [asyncio.create_task(member.values(LONG)) for member in members]
    found = chain(*await asyncio.wait_for(asyncio.gather(*polls), 60))
    assert sorted(set(found)) == _all(50, 1)


async def test_who_reads_what_is_seen_from_outside(served: Served) -> None:
    await send(served, "orders", 1, 2, 3)
    (one,) = await _members(served, 1)
    await one.poll("timeout=0&max_records=2")
    await one.done("POST", "/offsets", {"offsets": [place("orders", 0, offset=0)]})
    (lag,) = await served.gateway.groups.lag("readers")
    assert (lag.committed, lag.current, lag.high_watermark, lag.lag) == (1, 2, 3, 2)
    assert lag.client_id == one.path.rsplit("/", 1)[1]
