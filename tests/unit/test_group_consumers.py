"""HTTP consumers of a group that poll, fall silent, come back and go, in any order and in the middle of each other.

Time is moved by hand, and between any two requests of one consumer to its group another one may have done something.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets, CommitReply, CommittedOffset
from consumer_groups.requests import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
)
from consumer_groups.service import GroupService
from consumer_groups.state import Subscription
from ingest_api.consumers.consumer import Consumer, Poll
from ingest_api.consumers.member import Identity, Member
from ingest_api.consumers.options import ConsumerOptions
from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Fetched, FetchFrom, OffsetAt, Position
from tests.unit.group_players import GROUP, SESSION_MS, World

R = TypeVar("R")
Meanwhile = Callable[[], Awaitable[None]]

TOPICS = {"a": 2, "b": 1}


class Groups:
    """The door to a group, as its consumers know it. Each request waits until what happens `meanwhile` has happened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.committed_offsets: dict[TopicPartition, int] = {}
        self.delivered: set[tuple[TopicPartition, int]] = set()
        self.meanwhile: list[Meanwhile | None] = []
        self.waiting: set[asyncio.Future[None]] = set()

    async def _ask(self, request: Any, kind: type[R]) -> R:
        await self._wait()
        reply = self.world.ask(request)
        assert isinstance(reply, kind)
        return reply

    async def _wait(self) -> None:
        if self.meanwhile and (happens := self.meanwhile.pop(0)) is not None:
            await happens()

    async def join(self, request: JoinGroup) -> JoinReply:
        return await self._ask(replace(request, new_member_id=self.world.new_id()), JoinReply)

    async def heartbeat(self, request: Heartbeat) -> HeartbeatReply:
        return await self._ask(request, HeartbeatReply)

    async def leave(self, request: LeaveGroup) -> LeaveReply:
        return await self._ask(request, LeaveReply)

    async def commit_offsets(self, request: CommitOffsets) -> CommitReply:
        await self._wait()
        error = self.world.coordinator.check_commit(
            GROUP, request.member_id, request.generation, request.instance_id, self.world.now_ms, request.offsets
        )
        if error is ErrorCode.NONE:
            for key, (offset, _, _) in request.offsets.items():
                before = self.committed_offsets.get(key, 0)
                assert offset >= before, f"{key} went back from {before} to {offset}"
                assert self.delivered >= {(key, each) for each in range(before, offset)}, (
                    f"{key} skips some at {offset}"
                )
                self.committed_offsets[key] = offset
        return CommitReply(error)

    async def committed(self, _: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        await self._wait()
        known = self.committed_offsets
        return {key: CommittedOffset(known[key]) for key in partitions if key in known}

    def next_news(self, *_: str) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.add(waiter)
        waiter.add_done_callback(self.waiting.discard)
        return waiter

    def note_positions(self, *_: Any) -> None:
        pass


class Log:
    """Partitions without an end; of each that is asked for come three records."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clock = self

    def monotonic_ms(self) -> float:
        return self._world.now_ms

    async def offset_at(self, *_: Any) -> OffsetAt:
        return OffsetAt(0)

    async def fetch(self, requests: Sequence[FetchFrom], **_: int) -> list[Fetched]:
        return [
            Fetched(each.topic, each.partition, pa.table({"offset": range(each.offset, end)}), end)
            for each in requests
            for end in (each.offset + 3,)
        ]


class Client:
    """One that polls a consumer, and sends a poll again under its number when the reply was lost."""

    def __init__(self, groups: Groups, topics: tuple[str, ...], interval_ms: int) -> None:
        self.groups = groups
        self.topics = topics
        identity = Identity(group_id=GROUP, client_id="", client_host="", session_timeout_ms=SESSION_MS)
        self.member = Member(cast(GroupService, groups), identity)
        options = ConsumerOptions(reset=Position.EARLIEST, auto_commit_interval_ms=interval_ms)
        broker = cast(Broker, Log(groups.world))
        self.consumer = Consumer(broker, self.member, options, SESSION_MS)
        self.number = 0
        self.reply_is_missing = False

    @property
    def is_member(self) -> bool:
        group = self.groups.world.coordinator.groups.get(GROUP)
        return group is not None and self.member._member_id in group.members

    async def subscribe(self) -> None:
        await self.consumer.subscribe(Subscription(self.topics))

    async def poll(self, *, lost: bool = False) -> None:
        self.number += not self.reply_is_missing
        poll = Poll(timeout_ms=0, max_bytes=1, max_records=4, number=self.number)
        found: Sequence[Fetched] = ()
        with _unless_its_place_is_lost():
            found = await self.consumer.poll(poll, _as_they_are, _never_waits)
        self.reply_is_missing = lost and bool(found)
        if not lost:
            self.groups.delivered.update(
                (TopicPartition(each.topic, each.partition), offset)
                for each in found
                for offset in each.rows.column("offset").to_pylist()
            )

    async def commit(self) -> None:
        if not self.reply_is_missing:
            with _unless_its_place_is_lost():
                await self.consumer.commit()

    async def delete(self) -> None:
        await self.consumer.close(taken=not self.reply_is_missing)


@contextmanager
def _unless_its_place_is_lost() -> Iterator[None]:
    """A commit is refused where the session ended in the middle of the request."""
    try:
        yield
    except LakelogError as error:
        if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            raise


async def _as_they_are(replies: Sequence[Fetched]) -> Sequence[Fetched]:
    return replies


async def _never_waits(_: Awaitable[Any]) -> Any:
    raise AssertionError("there are always records")


class Consumers(RuleBasedStateMachine):
    clients: Bundle[Client] = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(World(TOPICS))
        self.living: list[Client] = []

    def do(self, client: Client, action: Callable[[], Awaitable[None]], meanwhile: tuple[int, str]) -> None:
        requests_before, what = meanwhile
        self.groups.meanwhile = [*[None] * requests_before, self._happening(client, what)]
        asyncio.run(_finished(action))
        self.groups.meanwhile = []
        assert not self.groups.waiting, "who has the answer waits for no news"

    def _happening(self, client: Client, what: str) -> Meanwhile:
        async def happen() -> None:
            others = [each for each in self.living if each is not client]
            # What happens is not itself interrupted.
            rest, self.groups.meanwhile = self.groups.meanwhile, []
            match what:
                case "one comes":
                    await self.appears(("a", "b"), 0).subscribe()
                case "others poll":
                    for each in others:
                        await each.poll()
                case "one goes":
                    for each in others[:1]:
                        self.living.remove(each)
                        await each.delete()
                case "all fall silent":
                    self.groups.world.pass_time(SESSION_MS + 1)
                case "a stranger reads on":
                    await self.a_stranger_reads_on()
            self.groups.meanwhile = rest

        return happen

    def appears(self, topics: tuple[str, ...], interval_ms: int) -> Client:
        client = Client(self.groups, topics, interval_ms)
        self.living.append(client)
        return client

    async def a_stranger_reads_on(self) -> None:
        """While all the others are silent; when they are back it has left."""
        self.groups.world.pass_time(SESSION_MS + 1)
        stranger = Client(self.groups, ("a", "b"), 0)
        await stranger.subscribe()
        for _ in range(4):
            await stranger.poll()
        await stranger.delete()

    # Before which of its requests, and what.
    meanwhiles = st.tuples(
        st.integers(0, 3),
        st.sampled_from(["nothing", "one comes", "others poll", "one goes", "all fall silent", "a stranger reads on"]),
    )

    @rule(
        target=clients,
        topics=st.sampled_from([("a", "b"), ("a",)]),
        interval_ms=st.sampled_from([0, SESSION_MS]),
        meanwhile=meanwhiles,
    )
    def one_comes(self, topics: tuple[str, ...], interval_ms: int, meanwhile: tuple[int, str]) -> Client:
        client = self.appears(topics, interval_ms)
        self.do(client, client.subscribe, meanwhile)
        return client

    @rule(client=clients, lost=st.booleans(), meanwhile=meanwhiles)
    def poll(self, client: Client, lost: bool, meanwhile: tuple[int, str]) -> None:
        if client in self.living:
            self.do(client, lambda: client.poll(lost=lost), meanwhile)

    @rule(client=clients, meanwhile=meanwhiles)
    def poll_after_a_silence(self, client: Client, meanwhile: tuple[int, str]) -> None:
        if client in self.living:
            asyncio.run(self.a_stranger_reads_on())
            self.do(client, client.poll, meanwhile)

    @rule(client=clients, meanwhile=meanwhiles)
    def commit(self, client: Client, meanwhile: tuple[int, str]) -> None:
        if client in self.living:
            self.do(client, client.commit, meanwhile)

    @rule(client=consumes(clients), meanwhile=meanwhiles)
    def delete(self, client: Client, meanwhile: tuple[int, str]) -> None:
        if client in self.living:
            self.living.remove(client)
            self.do(client, client.delete, meanwhile)

    @rule(ms=st.sampled_from([1, SESSION_MS // 2, SESSION_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.groups.world.pass_time(ms)

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        readers = Counter(key for each in self.living if each.is_member for key in each.member.held)
        assert max(readers.values(), default=1) == 1


async def _finished(action: Callable[[], Awaitable[None]]) -> None:
    await action()


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_who_was_silent_commits_nothing_of_before_when_it_is_back() -> None:
    """It is given everything once more, and hears at once that another is to have some of it."""
    group = Consumers()
    silent = group.appears(("a", "b"), SESSION_MS)
    for action in (silent.subscribe, silent.poll):
        group.do(silent, action, (0, "nothing"))
    asyncio.run(group.a_stranger_reads_on())
    group.do(silent, silent.poll, (2, "one comes"))
    assert len(silent.member.held) == 2
