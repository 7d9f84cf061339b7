"""Consumer groups: how long a group of fifty takes to divide itself anew, and how many commits a second are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from consumer_groups.assignors import Subscriber, TopicPartition, assign_range
from consumer_groups.offsets import CommitOffsets
from consumer_groups.requests import Heartbeat, JoinGroup, JoinReply, LeaveGroup, Leaver, SyncGroup
from consumer_groups.service import GroupService
from consumer_groups.state import Phase, Protocol
from consumer_groups.subscription_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from lakelog.broker import Broker
from lakelog.errors import ErrorCode
from tests.bench.report import Stopwatch, figure, headline, milliseconds, rate, scratch_folder
from tests.contract.group_members import ServedMember, joined

TOPIC = "orders"
PARTITIONS = 100
MEMBERS = 50
CHANGES = 10
COMMIT_SECONDS = 5.0
PARTITIONS_PER_COMMIT = 4


async def _settled(service: GroupService, members: Sequence[ServedMember]) -> None:
    """Every member polls as an HTTP consumer does, by a heartbeat whenever there is news, until the group is stable."""
    stable = asyncio.Event()

    async def follow(member: ServedMember) -> None:
        while True:
            news = service.next_news(member.group_id, member.member_id)
            assert await member.heartbeat() is ErrorCode.NONE
            if (await service.describe(member.group_id)).phase is Phase.STABLE:
                stable.set()
            await news

    followers = [asyncio.ensure_future(follow(member)) for member in members]
    await asyncio.wait([asyncio.ensure_future(stable.wait()), *followers], return_when=asyncio.FIRST_COMPLETED)
    for follower in followers:
        follower.cancel()
    for outcome in await asyncio.gather(*followers, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def _served(service: GroupService) -> None:
    whole = Stopwatch()
    members = [await joined(service, TOPIC, group_id="served")]
    first_seconds = whole.seconds
    members += await asyncio.gather(*(joined(service, TOPIC, group_id="served") for _ in range(MEMBERS - 1)))
    await _settled(service, members)
    figure("a served group's first member reads after", f"{first_seconds * 1000:.1f} ms")
    figure(f"{MEMBERS} served members at once, all partitions owned", f"{whole.seconds * 1000:.0f} ms")
    seconds: list[float] = []
    for _ in range(CHANGES):
        watch = Stopwatch()
        await service.leave(LeaveGroup("served", (Leaver(members.pop().member_id),)))
        await _settled(service, members)
        seconds.append(watch.seconds)
        watch = Stopwatch()
        members.append(await joined(service, TOPIC, group_id="served"))
        await _settled(service, members)
        seconds.append(watch.seconds)
    figure(f"one of {MEMBERS} leaves or joins, until stable", milliseconds(seconds))


async def _kafka_member(service: GroupService, member_id: str) -> str:
    """Join and sync, and assign if it leads."""
    metadata = encode_subscription(ConsumerSubscription(topics=(TOPIC,)), 1)
    request = JoinGroup(group_id="kafka", member_id=member_id, protocols=(Protocol("range", metadata),))
    while True:
        reply: JoinReply = await service.join(request)
        assert reply.error is ErrorCode.NONE, reply
        subscribers = [
            Subscriber(each.member_id, frozenset(decode_subscription(each.metadata).topics)) for each in reply.members
        ]
        assigned = assign_range(subscribers, {TOPIC: PARTITIONS})
        forms = {each: encode_assignment(ConsumerAssignment(partitions=keys), 1) for each, keys in assigned.items()}
        synced = await service.sync(
            SyncGroup(
                group_id="kafka",
                member_id=reply.member_id,
                generation=reply.generation,
                assignments=tuple(forms.items()),
            )
        )
        if synced.error is ErrorCode.NONE:
            return reply.member_id
        request = JoinGroup(group_id="kafka", member_id=reply.member_id, protocols=request.protocols)


async def _of_kafkas_protocol(service: GroupService) -> None:
    ids = await asyncio.gather(*(_kafka_member(service, "") for _ in range(MEMBERS)))
    seconds = []
    for _ in range(CHANGES):
        watch = Stopwatch()
        ids = await asyncio.gather(*(_kafka_member(service, member_id) for member_id in ids))
        seconds.append(watch.seconds)
    generation = (await service.describe("kafka")).generation
    for member_id in ids:
        beat = await service.heartbeat(Heartbeat(group_id="kafka", member_id=member_id, generation=generation))
        assert beat.error is ErrorCode.NONE
    figure(f"{MEMBERS} members of Kafka's protocol join and sync", milliseconds(seconds))


async def _commits(service: GroupService, at_once: int) -> None:
    done, latencies = 0, []
    watch = Stopwatch()

    async def commit(number: int) -> None:
        nonlocal done
        offset = 0
        while watch.seconds < COMMIT_SECONDS:
            offset += 1
            rows = {TopicPartition(TOPIC, each): (offset, -1, "") for each in range(PARTITIONS_PER_COMMIT)}
            each = Stopwatch()
            await service.commit_offsets(CommitOffsets(group_id=f"group-{number}", offsets=rows))
            latencies.append(each.seconds)
            done += 1

    await asyncio.gather(*(commit(number) for number in range(at_once)))
    name = f"commits of {PARTITIONS_PER_COMMIT} partitions by {at_once} groups"
    figure(name, rate(done, watch.seconds, "commits/s"), against=milliseconds(latencies))


async def _measure() -> None:
    with scratch_folder() as folder:
        async with Broker.open(str(folder)) as broker, GroupService(broker) as service:
            await broker.admin.create_topic(TOPIC, PARTITIONS)
            await _served(service)
            await _of_kafkas_protocol(service)
            for at_once in (1, 64, 512):
                await _commits(service, at_once)
        async with Broker.open(str(folder)) as broker, GroupService(broker) as service:
            watch = Stopwatch()
            groups = await service.list_groups()
            figure(f"a restart loads {len(groups)} groups in", f"{watch.seconds * 1000:.0f} ms")


def run() -> None:
    headline("Consumer groups: rebalances and commits, on a disk")
    asyncio.run(_measure())
