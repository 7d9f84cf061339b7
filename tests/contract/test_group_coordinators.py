"""Which process coordinates the groups of a warehouse, what does not change that, and topics that can't be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

import pytest
import pytest_asyncio

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets
from consumer_groups.service import GroupService
from ingest_api.ui.lag_history import LagHistory
from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError
from tests.conftest import OpenBroker
from tests.contract.group_members import GROUP, commit_simply, joined, offsets_of
from tests.contract.test_foreign_tables import FOREIGN_ADD, commit_next

KEPT, SPOILED = "kept", "spoiled"
KEPT_PLACE, SPOILED_PLACE = TopicPartition(KEPT, 0), TopicPartition(SPOILED, 0)

OpenGroups: TypeAlias = Callable[[], Awaitable[GroupService]]


@pytest_asyncio.fixture
async def open_groups(open_broker: OpenBroker) -> AsyncIterator[OpenGroups]:
    """Services on brokers of their own, over one warehouse with two topics."""
    admin = open_broker().admin
    for topic in (KEPT, SPOILED):
        await admin.create_topic(topic)
    async with AsyncExitStack() as opened:

        async def open_one() -> GroupService:
            return await opened.enter_async_context(GroupService(open_broker()))

        yield open_one


async def test_a_service_coordinates_from_the_first_request_for_groups(open_groups: OpenGroups) -> None:
    first, second = await open_groups(), await open_groups()
    assert not first.coordinates
    await commit_simply(first, {KEPT_PLACE: 1})
    assert (first.coordinates, second.coordinates) == (True, False)
    await commit_simply(second, {KEPT_PLACE: 2})
    assert second.coordinates
    with pytest.raises(LakelogError) as caught:
        await commit_simply(first, {KEPT_PLACE: 3})
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert not first.coordinates


async def test_who_only_reads_hears_that_another_has_taken_the_groups_over(open_groups: OpenGroups) -> None:
    first, second = await open_groups(), await open_groups()
    member = await joined(first, KEPT)
    news = first.next_news(GROUP, member.member_id)
    await joined(second, KEPT)
    await asyncio.wait_for(news, 30)
    assert (first.coordinates, second.coordinates) == (False, True)
    with pytest.raises(LakelogError) as caught:
        await member.heartbeat()
    assert caught.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_look_at_lags_does_not_take_the_groups_over(open_groups: OpenGroups) -> None:
    asked, idle = await open_groups(), await open_groups()
    member = await joined(asked, KEPT)
    assert await member.commit({KEPT_PLACE: 0}) is ErrorCode.NONE
    at_idle, at_asked = (LagHistory(each, each._broker.clock) for each in (idle, asked))
    await at_idle.sample()
    await at_asked.sample()
    assert at_idle.of(GROUP) == ([], {})
    assert at_asked.of(GROUP)[1] == {KEPT_PLACE: [0]}
    assert not idle.coordinates
    assert await member.commit({KEPT_PLACE: 0}) is ErrorCode.NONE
    assert await member.heartbeat() is ErrorCode.NONE


async def test_administration_elsewhere_does_not_take_the_groups_over(open_groups: OpenGroups) -> None:
    asked, other = await open_groups(), await open_groups()
    member = await joined(asked, KEPT, SPOILED)
    assert await member.commit({KEPT_PLACE: 1, SPOILED_PLACE: 1}) is ErrorCode.NONE
    admin = other._broker.admin
    await admin.create_topic("new")
    await admin.add_partitions(KEPT, 2)
    await admin.delete_topic(SPOILED)
    assert not other.coordinates
    assert await member.commit({KEPT_PLACE: 2}) is ErrorCode.NONE
    await asked.sweep()
    assert await member.heartbeat() is ErrorCode.NONE
    assert set(member.assignment) == {KEPT_PLACE, TopicPartition(KEPT, 1)}
    assert await offsets_of(asked) == {KEPT_PLACE: 2}


async def test_a_topic_that_can_not_be_read_stops_no_group(open_groups: OpenGroups) -> None:
    before = await open_groups()
    await commit_simply(before, {KEPT_PLACE: 1, SPOILED_PLACE: 1}, group_id="both")
    await joined(before, KEPT, SPOILED)
    await _spoil(before._broker)
    after = await open_groups()
    member = await joined(after, KEPT, SPOILED)
    assert KEPT_PLACE in member.assignment
    assert await member.commit({KEPT_PLACE: 5}) is ErrorCode.NONE
    await after.sweep()
    assert await offsets_of(after, "both") == {KEPT_PLACE: 1, SPOILED_PLACE: 1}, "it may be mended"


async def test_a_topic_that_is_spoiled_stays_with_its_reader(open_groups: OpenGroups) -> None:
    service = await open_groups()
    member, pattern = await joined(service, KEPT, SPOILED), await joined(service, pattern=".*", group_id="all")
    await _spoil(service._broker)
    await service.sweep()
    for each in (member, pattern):
        assert await each.heartbeat() is ErrorCode.NONE
        assert set(each.assignment) == {KEPT_PLACE, SPOILED_PLACE}
        assert await each.commit({KEPT_PLACE: 3, SPOILED_PLACE: 0}) is ErrorCode.NONE, "which it read before"


async def test_a_commit_is_refused_for_the_topic_that_can_not_be_read_and_no_other(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await _spoil(service._broker)
    await service._broker.topics.find(SPOILED)
    rows = {KEPT_PLACE: (1, -1, ""), SPOILED_PLACE: (1, -1, "")}
    reply = await service.commit_offsets(CommitOffsets(group_id=GROUP, offsets=rows))
    assert (reply.error, dict(reply.refused)) == (ErrorCode.NONE, {SPOILED_PLACE: ErrorCode.UNSUPPORTED_TABLE})
    assert await offsets_of(service) == {KEPT_PLACE: 1}


async def _spoil(broker: Broker) -> None:
    await commit_next(broker, SPOILED, [FOREIGN_ADD])
