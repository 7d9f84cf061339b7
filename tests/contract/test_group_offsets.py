"""Committed offsets on each kind of store: kept, replaced, deleted, expired and refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

import pytest
import pytest_asyncio

from consumer_groups import offset_table
from consumer_groups.assignors import TopicPartition
from consumer_groups.group_settings import GroupSettings
from consumer_groups.offset_compaction import GRACE_MS, OffsetsCompacted, compact_offsets
from consumer_groups.offsets import CommitOffsets
from consumer_groups.resets import (
    ByDuration,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
)
from consumer_groups.service import TAKE_BACK_AFTER_MS, GroupService
from consumer_groups.state import Phase
from consumer_groups.tenure import FILES_MAX, fact_ledger, offset_ledger
from lakelog.clock import Clock
from lakelog.errors import ErrorCode, LakelogError
from lakelog.topics import Topic
from tests.conftest import OpenBroker
from tests.contract.group_members import GROUP, commit_simply, joined, offsets_of, settle
from tests.contract.records import MovedClock, append, records

TOPIC = "orders"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
MINUTE_MS = 60_000

OpenGroups: TypeAlias = Callable[..., Awaitable[GroupService]]


@pytest_asyncio.fixture
async def open_groups(open_broker: OpenBroker) -> AsyncIterator[OpenGroups]:
    """Services on brokers of their own, over one warehouse with a topic of two partitions."""
    await open_broker().admin.create_topic(TOPIC, 2)
    async with AsyncExitStack() as opened:

        async def open_one(settings: GroupSettings | None = None, *, clock: Clock | None = None) -> GroupService:
            return await opened.enter_async_context(GroupService(open_broker(clock=clock), settings))

        yield open_one


async def test_what_was_committed_is_there_after_a_restart(open_groups: OpenGroups) -> None:
    before = await open_groups()
    rows = {FIRST: (7, 3, "seven"), SECOND: (0, -1, "")}
    assert (await before.commit_offsets(CommitOffsets(group_id=GROUP, offsets=rows))).error is ErrorCode.NONE
    after = await open_groups()
    for service in (after, await open_groups()):
        found = await service.committed(GROUP)
        assert {key: each[:3] for key, each in found.items()} == rows
        assert await service.committed(GROUP, [SECOND, TopicPartition(TOPIC, 9)]) == {SECOND: found[SECOND]}
        assert await service.committed("nobody") == {}


async def test_the_latest_commit_counts_however_often_the_table_is_folded(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await commit_simply(service, {SECOND: 1}, group_id="deleted")
    await service.delete_group("deleted")
    for offset in range(2 * FILES_MAX + 3):
        await commit_simply(service, {FIRST: offset, SECOND: 2 * offset})
    await (await service._coordinating()).settle()
    ledger = offset_ledger(service._broker)
    assert await ledger.exists()
    assert len(ledger.files) < FILES_MAX
    last = 2 * FILES_MAX + 2
    again = await open_groups()
    assert await offsets_of(again) == {FIRST: last, SECOND: 2 * last}
    assert [each.group_id for each in await again.list_groups()] == [GROUP]


async def test_many_commits_at_once_share_one_version_of_the_table(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await commit_simply(service, {FIRST: 0})
    groups = [f"group-{number}" for number in range(300)]
    await asyncio.gather(*(commit_simply(service, {FIRST: 5}, group_id=group) for group in groups))
    ledger = offset_ledger(service._broker)
    rows = offset_table.rows_of(await ledger.read())
    assert {row.group for row in rows} == {GROUP, *groups}
    assert len(ledger.files) <= 4
    assert len({row.committed_us for row in rows}) == len(rows)


@pytest.mark.parametrize("generation", [-1, 0, 7])
async def test_a_generation_that_is_not_the_groups_is_refused(open_groups: OpenGroups, generation: int) -> None:
    service = await open_groups()
    member = await joined(service, TOPIC)
    assert await member.commit({FIRST: 1}) is ErrorCode.NONE
    assert await member.commit({FIRST: 9}, generation=generation) is ErrorCode.ILLEGAL_GENERATION
    assert await offsets_of(service) == {FIRST: 1}


async def test_who_is_no_member_commits_nothing(open_groups: OpenGroups) -> None:
    service = await open_groups()
    member = await joined(service, TOPIC)
    stranger = CommitOffsets(group_id=GROUP, member_id="stranger", generation=1, offsets={FIRST: (9, -1, "")})
    simple = CommitOffsets(group_id=GROUP, offsets={FIRST: (9, -1, "")})
    for request in (stranger, simple):
        assert (await service.commit_offsets(request)).error is ErrorCode.UNKNOWN_MEMBER_ID
    await member.leave()
    assert await member.commit({FIRST: 9}) is not ErrorCode.NONE
    assert await offsets_of(service) == {}


async def test_a_member_commits_for_what_it_holds_and_no_more(open_groups: OpenGroups) -> None:
    service = await open_groups()
    first, second = await joined(service, TOPIC), await joined(service, TOPIC)
    await settle(first, second)
    (ours,), (theirs,) = first.assignment, second.assignment
    assert await first.commit({theirs: 5}) is ErrorCode.ILLEGAL_GENERATION
    assert await first.commit({ours: 5}) is ErrorCode.NONE
    assert await offsets_of(service) == {ours: 5}


async def test_what_can_not_be_stored_is_refused_by_partition(open_groups: OpenGroups) -> None:
    service = await open_groups(GroupSettings(offset_metadata_bytes_max=4))
    nowhere, beyond = TopicPartition("nowhere", 0), TopicPartition(TOPIC, 2)
    rows = {FIRST: (1, -1, "four"), SECOND: (1, -1, "größe"), nowhere: (1, -1, ""), beyond: (1, -1, "")}
    reply = await service.commit_offsets(CommitOffsets(group_id=GROUP, offsets=rows))
    assert reply.error is ErrorCode.NONE
    assert reply.refused == {
        SECOND: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    negative = await service.commit_offsets(CommitOffsets(group_id=GROUP, offsets={SECOND: (-1, -1, "")}))
    assert negative.refused == {SECOND: ErrorCode.OFFSET_OUT_OF_RANGE}
    nameless = await service.commit_offsets(CommitOffsets(group_id="", offsets={SECOND: (1, -1, "")}))
    assert nameless.error is ErrorCode.INVALID_GROUP_ID
    assert await offsets_of(service) == {FIRST: 1}


async def test_a_deleted_topic_takes_its_offsets_with_it(open_groups: OpenGroups) -> None:
    service = await open_groups()
    admin = service._broker.admin
    await admin.create_topic("other")
    kept = TopicPartition("other", 0)
    await commit_simply(service, {FIRST: 1, kept: 2})
    await commit_simply(service, {SECOND: 1}, group_id="second")
    await admin.delete_topic(TOPIC)
    await admin.create_topic(TOPIC, 2)
    for each in (service, await open_groups()):
        assert await offsets_of(each) == {kept: 2}
        assert await offsets_of(each, "second") == {}


async def test_a_topic_that_another_process_deleted_takes_its_offsets_too(
    open_groups: OpenGroups, open_broker: OpenBroker
) -> None:
    service = await open_groups()
    await commit_simply(service, {FIRST: 1})
    stranger = open_broker()  # a process without a coordinator
    await stranger.admin.delete_topic(TOPIC)
    await service.sweep()
    assert await offsets_of(service) == {}


@pytest.mark.parametrize("committed_since", [{}, {SECOND: 2}], ids=["nothing since", "a commit since"])
async def test_a_topic_that_another_process_made_anew_has_no_offsets_of_its_former_self(
    open_groups: OpenGroups, open_broker: OpenBroker, committed_since: dict[TopicPartition, int]
) -> None:
    service = await open_groups()
    await commit_simply(service, {FIRST: 1})
    stranger = open_broker()
    await stranger.admin.delete_topic(TOPIC)
    await stranger.admin.create_topic(TOPIC, 2)
    if committed_since:
        await service._broker.topics.get(TOPIC, max_age_ms=0)
        await commit_simply(service, committed_since)
        assert await offsets_of(service) == committed_since
    for _ in range(2):
        await service.sweep()
        assert await offsets_of(service) == committed_since


async def test_what_is_said_of_a_topic_that_was_made_anew_stands(
    open_groups: OpenGroups, open_broker: OpenBroker
) -> None:
    service = await open_groups()
    groups = [f"readers-{number}" for number in range(5)]
    for group in groups:
        await commit_simply(service, {FIRST: 1}, group_id=group)
    stranger = open_broker()
    await stranger.admin.delete_topic(TOPIC)
    await stranger.admin.create_topic(TOPIC, 2)
    (reset,) = await service.reset_offsets(groups[0], ToEarliest(), {TOPIC: [0]})
    assert (reset.before, reset.after) == (None, 0)
    await asyncio.gather(service.sweep(), commit_simply(service, {FIRST: 2}, group_id=groups[-1]))
    await service.sweep()
    assert [await offsets_of(service, group) for group in groups] == [{FIRST: 0}, {}, {}, {}, {FIRST: 2}]


async def test_a_topic_that_is_made_anew_while_others_are_looked_at_keeps_its_offsets(
    open_groups: OpenGroups, open_broker: OpenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, stranger = await open_groups(), open_broker()
    topics, get = service._broker.topics, service._broker.topics.get
    await service._broker.admin.create_topic("zebras", 1)
    await commit_simply(service, {FIRST: 1, TopicPartition("zebras", 0): 1})
    await stranger.admin.delete_topic(TOPIC)

    async def meanwhile(name: str, *, max_age_ms: float | None = None) -> Topic:
        if name == "zebras" and max_age_ms == 0:
            monkeypatch.setattr(topics, "get", get)
            await service._broker.admin.create_topic(TOPIC, 2)
            await commit_simply(service, {FIRST: 3})
        return await get(name, max_age_ms=max_age_ms)

    monkeypatch.setattr(topics, "get", meanwhile)
    await service.sweep()
    assert (await offsets_of(service))[FIRST] == 3


async def test_who_takes_groups_back_believes_what_was_committed_meanwhile(
    open_groups: OpenGroups, open_broker: OpenBroker
) -> None:
    clock = MovedClock()
    first, second = await open_groups(clock=clock), await open_groups()
    await commit_simply(first, {FIRST: 1})
    await commit_simply(second, {SECOND: 1})
    stranger = open_broker()
    await stranger.admin.delete_topic(TOPIC)
    await stranger.admin.create_topic(TOPIC, 2)
    await second.sweep()  # it hears of the new topic, of which the first will not have heard
    await commit_simply(second, {FIRST: 0})
    with pytest.raises(LakelogError):
        await commit_simply(first, {FIRST: 5})
    clock.ahead_ms += TAKE_BACK_AFTER_MS
    await first.sweep()
    assert await offsets_of(first) == {FIRST: 0}


async def test_a_topic_is_deleted_before_anybody_asked_for_groups(open_groups: OpenGroups) -> None:
    await commit_simply(await open_groups(), {FIRST: 1})
    restarted = await open_groups()
    await restarted._broker.admin.delete_topic(TOPIC)
    await restarted.sweep()
    assert await restarted.list_groups() == []


async def test_a_warehouse_without_groups_gets_no_tables_of_them(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await service._broker.admin.create_topic("other")
    await service._broker.admin.delete_topic("other")
    assert not await offset_ledger(service._broker).exists()
    assert not await fact_ledger(service._broker).exists()


async def test_a_group_and_single_offsets_are_deleted_for_good(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await commit_simply(service, {FIRST: 1, SECOND: 2})
    await commit_simply(service, {FIRST: 3}, group_id="doomed")
    assert await service.delete_offsets(GROUP, [FIRST]) == {FIRST: ErrorCode.NONE}
    await service.delete_group("doomed")
    for each in (service, await open_groups()):
        assert await offsets_of(each) == {SECOND: 2}
        assert [listed.group_id for listed in await each.list_groups()] == [GROUP]
        with pytest.raises(LakelogError) as caught:
            await each.delete_group("doomed")
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_in_use_is_not_deleted_and_keeps_what_it_reads(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await service._broker.admin.create_topic("other")
    unread = TopicPartition("other", 0)
    await commit_simply(service, {FIRST: 1, unread: 2})
    member = await joined(service, TOPIC)
    with pytest.raises(LakelogError) as caught:
        await service.delete_group(GROUP)
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(LakelogError) as caught:
        await service.reset_offsets(GROUP, ToEarliest())
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    outcome = await service.delete_offsets(GROUP, [FIRST, unread])
    assert outcome == {FIRST: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, unread: ErrorCode.NONE}
    assert await offsets_of(service) == {FIRST: 1}
    await member.leave()
    await service.delete_group(GROUP)
    assert (await service.describe(GROUP)).phase is Phase.DEAD
    assert await offsets_of(await open_groups()) == {}


async def test_offsets_expire_when_their_group_has_been_away_for_long_enough(open_groups: OpenGroups) -> None:
    clock = MovedClock()
    settings = GroupSettings(offsets_retention_minutes=60, offsets_retention_check_interval_ms=1)
    service = await open_groups(settings, clock=clock)
    await commit_simply(service, {FIRST: 1})
    member = await joined(service, TOPIC, group_id="members")
    assert await member.commit({SECOND: 2}) is ErrorCode.NONE
    clock.ahead_ms += 59 * MINUTE_MS
    await commit_simply(service, {SECOND: 1})
    await service.sweep()
    assert await offsets_of(service) == {FIRST: 1, SECOND: 1}
    clock.ahead_ms += 2 * MINUTE_MS
    await service.sweep()
    assert await offsets_of(service) == {SECOND: 1}
    # Its session ran out, and so its group has been empty only since then.
    assert await offsets_of(service, "members") == {SECOND: 2}
    clock.ahead_ms += 61 * MINUTE_MS
    await service.sweep()
    assert await service.list_groups() == []
    assert await (await open_groups()).list_groups() == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ToEarliest(), 2),
        (ToLatest(), 10),
        (ToCurrent(), 6),
        (ToOffset(4), 4),
        (ToOffset(99), 10),
        (ToOffset(0), 2),
        (ShiftBy(3), 9),
        (ShiftBy(-99), 2),
        (ToTimestamp(7_000), 7),
        (ToTimestamp(99_000), 10),
    ],
    ids=str,
)
async def test_a_reset_moves_the_group_and_a_dry_run_does_not(
    open_groups: OpenGroups, target: ResetTarget, expected: int
) -> None:
    service = await open_groups()
    broker = service._broker
    times = [number * 1000 for number in range(10)]
    await append(broker, TOPIC, records(["x"] * 10, partition=0, timestamps_ms=times))
    await broker.admin.delete_records(TOPIC, {0: 2})
    await commit_simply(service, {FIRST: 6}, metadata="kept")
    for topics in (None, {TOPIC: [0]}):
        (dry,) = await service.reset_offsets(GROUP, target, topics, dry_run=True)
        assert (dry.topic, dry.partition, dry.before, dry.after) == (TOPIC, 0, 6, expected)
        assert await offsets_of(service) == {FIRST: 6}
    assert await service.reset_offsets(GROUP, target) == [dry]
    assert await offsets_of(await open_groups()) == {FIRST: expected}


async def test_a_reset_by_duration_and_of_topics_that_were_never_read(open_groups: OpenGroups) -> None:
    service = await open_groups()
    now_ms = service._clock.now_ms()
    await append(
        service._broker, TOPIC, records(["old", "new"], partition=1, timestamps_ms=[now_ms - 90_000, now_ms - 10_000])
    )
    changes = await service.reset_offsets("newcomers", ByDuration(60_000), {TOPIC: None})
    assert [(each.partition, each.before, each.after) for each in changes] == [(0, None, 0), (1, None, 1)]
    assert await offsets_of(service, "newcomers") == {FIRST: 0, SECOND: 1}


async def test_a_reset_that_makes_no_sense_changes_nothing(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await commit_simply(service, {FIRST: 0})
    asked: list[tuple[str, ResetTarget, dict[str, list[int]] | None, ErrorCode]] = [
        ("nobody", ToEarliest(), None, ErrorCode.GROUP_ID_NOT_FOUND),
        (GROUP, ShiftBy(1), {TOPIC: [1]}, ErrorCode.INVALID_REQUEST),
        (GROUP, ToLatest(), {"nowhere": [0]}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (GROUP, ToLatest(), {TOPIC: [0, 7]}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ToLatest(), {TOPIC: [0]}, ErrorCode.INVALID_GROUP_ID),
    ]
    for group, target, topics, code in asked:
        with pytest.raises(LakelogError) as caught:
            await service.reset_offsets(group, target, topics)
        assert caught.value.code is code
    assert await offsets_of(service) == {FIRST: 0}


async def test_lag_counts_from_what_is_committed_and_names_the_reader(open_groups: OpenGroups) -> None:
    service = await open_groups()
    await append(service._broker, TOPIC, records(["x"] * 10, partition=0))
    member = await joined(service, TOPIC)
    await member.commit({FIRST: 4})
    service.note_positions(GROUP, member.member_id, {FIRST: 8})
    first, second = await service.lag(GROUP)
    assert (first.committed, first.current, first.lag, first.member_id) == (4, 8, 6, member.member_id)
    assert (first.log_start_offset, first.high_watermark, first.end_offset) == (0, 10, 10)
    assert (second.partition, second.committed, second.current, second.lag) == (1, None, None, None)
    await member.leave()
    (alone,) = await service.lag(GROUP)
    assert (alone.committed, alone.current, alone.lag, alone.member_id) == (4, 4, 6, "")
    with pytest.raises(LakelogError) as caught:
        await service.lag("nobody")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_of_two_gateways_the_later_one_coordinates_and_nothing_is_lost(open_groups: OpenGroups) -> None:
    clock = MovedClock()
    ours, theirs = await open_groups(clock=clock), await open_groups()
    await commit_simply(ours, {FIRST: 1})
    await commit_simply(theirs, {FIRST: 2})
    with pytest.raises(LakelogError) as caught:
        await commit_simply(ours, {FIRST: 3})
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(LakelogError) as caught:
        await ours.list_groups()
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert caught.value.retriable
    assert await offsets_of(theirs) == {FIRST: 2}
    clock.ahead_ms += TAKE_BACK_AFTER_MS
    assert await offsets_of(ours) == {FIRST: 2}
    await commit_simply(ours, {FIRST: 4})
    with pytest.raises(LakelogError):
        await commit_simply(theirs, {FIRST: 5})
    assert await offsets_of(await open_groups()) == {FIRST: 4}


async def test_a_job_makes_the_table_small_beside_a_coordinator_at_work(open_groups: OpenGroups) -> None:
    clock = MovedClock()
    service = await open_groups(clock=clock)
    member = await joined(service, TOPIC, group_id="members")
    await member.commit({FIRST: 1})
    await commit_simply(service, {FIRST: 1, SECOND: 1}, group_id="idle")
    clock.ahead_ms += 10_080 * MINUTE_MS + GRACE_MS + 1
    for offset in range(5):
        await commit_simply(service, {FIRST: offset, SECOND: offset})
    await service.delete_offsets(GROUP, [SECOND])
    done = await compact_offsets(service._broker.store, clock=clock)
    assert (done.files_before, done.files_after, done.rows_after) == (8, 1, 2)
    # It went on meanwhile, and goes on after it.
    await commit_simply(service, {SECOND: 7})
    after = await open_groups(clock=clock)
    assert await offsets_of(after) == {FIRST: 4, SECOND: 7}
    assert await offsets_of(after, "members") == {FIRST: 1}
    assert await offsets_of(after, "idle") == {}
    again = await compact_offsets(service._broker.store, clock=clock)
    assert (again.files_before, again.files_after, again.rows_after) == (2, 1, 3)
    assert (await compact_offsets(service._broker.store, clock=clock)).files_before == 1


async def test_a_job_finds_nothing_to_do_where_there_are_no_groups(open_groups: OpenGroups) -> None:
    assert await compact_offsets((await open_groups())._broker.store) == OffsetsCompacted()
