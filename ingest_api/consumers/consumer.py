"""One consumer: what it reads, where it stands in it, and what of that is committed.

Owns the positions. A poll says that the group's member is alive, takes in what the group gives it now, reads the
partitions in turn and moves on behind what it hands out; between two polls nothing is held but positions. Requests
to one consumer take turns, but nobody waits for a poll that waits. How records are written must not be known here.

What is committed without being asked is what the client came back from: a poll says that the records of those before
it arrived. So a client that dies with a reply in its hands has its records delivered to another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from consumer_groups.assignors import TopicPartition
from consumer_groups.state import Subscription
from ingest_api.consumers.member import Member
from ingest_api.consumers.options import ConsumerOptions
from ingest_api.errors import ILLEGAL_STATE, HttpError
from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Fetched, FetchFrom, Position, enough

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_SUCH_CONSUMER = 40403
# A member gives so many signs of life in a session while somebody waits for its records.
BEATS_PER_SESSION = 3


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll asks for. By its `number` a poll that is sent again is told from the next one."""

    timeout_ms: int
    max_bytes: int
    min_bytes: int = 1
    max_records: int | None = None
    number: int | None = None


class Consumer:
    def __init__(self, broker: Broker, member: Member, options: ConsumerOptions, session_timeout_ms: int) -> None:
        self.options = options
        self.busy = 0  # requests under way
        self.idle_since_ms = broker.clock.monotonic_ms()
        self._broker = broker
        self._member = member
        self._beat_ms = session_timeout_ms / BEATS_PER_SESSION
        self._assigned: tuple[TopicPartition, ...] | None = None
        # In the order in which they are read: one that had records goes to the end.
        self._positions: dict[TopicPartition, int] = {}
        self._on_the_way: set[TopicPartition] = set()  # handed out by the last poll
        self._arrived: dict[TopicPartition, int] = {}  # and what may be committed without being asked
        self._acknowledged: dict[TopicPartition, int] = {}
        self._last_poll: tuple[int, dict[TopicPartition, tuple[int, int]]] | None = None
        self._committed_at_ms = broker.clock.monotonic_ms()
        self._turn = asyncio.Lock()
        # What its client does, for those who wait; each time there is a new one.
        self._orders, self._commits = asyncio.Event(), asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Right behind what was handed out."""
        return self._positions

    @property
    def acknowledged(self) -> Mapping[TopicPartition, int]:
        """Where it began or was put, and then what it was asked to commit."""
        return self._acknowledged

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None]:
        """A consumer is not idle while somebody asks something of it."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
            self.idle_since_ms = self._broker.clock.monotonic_ms()

    # What it reads.

    def subscription(self) -> Subscription | None:
        return self._member.subscription

    async def assignment(self) -> tuple[TopicPartition, ...]:
        async with self._in_turn():
            await self._beat()
            return self._readable

    async def subscribe(self, subscription: Subscription) -> None:
        async with self._in_turn():
            former = self._member.subscription
            changes_kind = former is not None and (former.pattern is None) != (subscription.pattern is None)
            if self._assigned is not None or changes_kind:
                raise _exclusive()
            await self._member.join(subscription, self)
            self._keep_readable()
            self._tell_who_waits()

    async def unsubscribe(self) -> None:
        """Read nothing any more, whether it was subscribed or assigned."""
        async with self._in_turn():
            await self._commit_if_it_can()
            self._assigned = None
            await self._member.leave()
            self._keep_readable()
            self._tell_who_waits()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, whoever else does: the group only keeps the offsets."""
        wanted = tuple(dict.fromkeys(partitions))
        await self._require_partitions(wanted)
        async with self._in_turn():
            if self._member.subscription is not None:
                raise _exclusive()
            await self.let_go(set(self._assigned or ()) - set(wanted))
            self._assigned = wanted
            self._keep_readable()
            self._tell_who_waits()

    @property
    def _readable(self) -> tuple[TopicPartition, ...]:
        return self._member.held if self._assigned is None else self._assigned

    # Where it stands.

    async def seek(self, places: Mapping[TopicPartition, int | Position]) -> None:
        """All of them or none. An offset that is not served is met by the next poll, as in Kafka."""
        async with self._in_turn():
            await self._beat()
            for topic, partition in places:
                if TopicPartition(topic, partition) not in self._readable:
                    raise illegal_state(f"{topic}-{partition} is not assigned to this consumer")
            found = {key: at if isinstance(at, int) else await self._offset_at(key, at) for key, at in places.items()}
            for key, offset in found.items():
                self._put(key, offset)
                self._arrived.pop(key, None)
                self._on_the_way.discard(key)
            self._last_poll = None
            self._tell_who_waits()

    async def poll(
        self,
        poll: Poll,
        write: Callable[[Sequence[Fetched]], Awaitable[T]],
        unless_over: Callable[[Awaitable[Literal[True]]], Awaitable[Literal[True] | None]],
    ) -> T:
        """Records as `write` makes a reply of them, as soon as there are enough or the time is over.

        `unless_over` waits for something, and gives up with None when nobody waits for the reply any more.
        """
        deadline_ms = self._broker.clock.monotonic_ms() + poll.timeout_ms
        begun = False
        while True:
            async with self._in_turn():
                if not self._rewound(poll.number) and not begun:
                    self._came_back()
                begun = True
                news, orders = self._member.next_news(), self._orders
                try:
                    replies = _cut(await self._read(poll.max_bytes), poll.max_records)
                    left_ms = deadline_ms - self._broker.clock.monotonic_ms()
                    if left_ms <= 0 or enough(replies, poll.min_bytes):
                        _cancel(news)
                        reply = await write(replies)
                        self._hand_out(replies, poll.number)
                        return reply
                except BaseException:
                    _cancel(news)
                    raise
            if await unless_over(self._changed(news, [orders], replies, min(left_ms, self._beat_ms))) is None:
                return await write([])

    async def rest(self, until: Callable[[], bool], timeout_ms: int) -> Literal[True]:
        """Read nothing until that is so, or the time is over, and keep the member's place meanwhile."""
        deadline_ms = self._broker.clock.monotonic_ms() + timeout_ms
        while True:
            async with self._in_turn():
                news, events = self._member.next_news(), [self._orders, self._commits]
                try:
                    await self._beat()
                except BaseException:
                    _cancel(news)
                    raise
                left_ms = deadline_ms - self._broker.clock.monotonic_ms()
                if left_ms <= 0 or until():
                    _cancel(news)
                    return True
            await self._changed(news, events, (), min(left_ms, self._beat_ms))

    async def _changed(
        self,
        news: asyncio.Future[None] | None,
        events: Sequence[asyncio.Event],
        replies: Sequence[Fetched],
        wait_ms: float,
    ) -> Literal[True]:
        """Wait for records behind these, for news of the group, for one of the events, or for the consumer's end."""
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(each.wait()) for each in (self._ended, *events)]
        if news is not None:
            waits.append(news)
        if replies:
            ends = [FetchFrom(each.topic, each.partition, each.next_offset) for each in replies]
            waits.append(asyncio.ensure_future(self._broker.fetch_path.wait_past(ends, wait_ms)))
        try:
            await asyncio.wait(waits, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return True

    def _tell_who_waits(self) -> None:
        self._orders.set()
        self._orders = asyncio.Event()

    async def _read(self, max_bytes: int) -> list[Fetched]:
        """What there is now in the partitions that the consumer may read, each first in its turn."""
        await self._beat()
        if self._member.subscription is None and self._assigned is None:
            raise illegal_state("the consumer is not subscribed to any topics or assigned any partitions")
        now_ms = self._broker.clock.monotonic_ms()
        if self._arrived and now_ms - self._committed_at_ms >= self.options.auto_commit_interval_ms:
            await self._commit_arrived(self._arrived)
        await self._find_positions()
        replies = await self._fetch(max_bytes)
        if await self._find_anew(replies):
            replies = await self._fetch(max_bytes)
        whole = [reply for reply in replies if reply.error is None]
        for reply in replies:
            if reply.error is not None and not any(each.rows.num_rows for each in whole):
                raise reply.error
        return whole

    async def _fetch(self, max_bytes: int) -> list[Fetched]:
        requests = [FetchFrom(*key, offset, max_bytes) for key, offset in self._positions.items()]
        return await self._broker.fetch(requests, max_bytes=max_bytes, min_bytes=0)

    async def _find_positions(self) -> None:
        """New partitions are read on from what the group has committed, or from where the options say."""
        missing = [key for key in self._readable if key not in self._positions]
        if not missing:
            return
        committed = await self._member.committed(missing)
        for key in missing:
            try:
                self._put(key, committed[key][0] if key in committed else await self._reset(key))
            except LakelogError as error:
                # It was deleted; the group will hear of that.
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

    async def _find_anew(self, replies: Iterable[Fetched]) -> bool:
        """Mend the positions that are not there (any more); whether any were."""
        mended = False
        for reply in replies:
            key = TopicPartition(reply.topic, reply.partition)
            if reply.error is None:
                continue
            if reply.error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self.options.reset is not None:
                self._put(key, await self._reset(key))
                mended = True
            elif reply.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                del self._positions[key]
                mended = True
        return mended

    def _put(self, key: TopicPartition, offset: int) -> None:
        """Read on from here, with nothing before it that is still to be acknowledged."""
        self._positions[key] = self._acknowledged[key] = offset

    async def _reset(self, key: TopicPartition) -> int:
        if self.options.reset is None:
            raise LakelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the group has no offset for {key.topic}-{key.partition} and auto.offset.reset is none; commit one, "
                "or seek to a position",
            )
        offset = await self._offset_at(key, self.options.reset)
        # The end is another one later. Who comes after shall begin where this consumer did.
        self._arrived[key] = offset
        return offset

    async def _offset_at(self, key: TopicPartition, at: Position) -> int:
        return (await self._broker.offset_at(key.topic, key.partition, at)).offset

    def _came_back(self) -> None:
        """The client asks for more: what was handed out before has arrived."""
        self._arrived |= {key: self._positions[key] for key in self._on_the_way}
        self._on_the_way = set()

    def _rewound(self, number: int | None) -> bool:
        """Whether the client asks once more for what it was handed out under this number, and may have it."""
        if self._last_poll is None or self._last_poll[0] != number:
            return False
        for key, (start, end) in self._last_poll[1].items():
            if self._positions.get(key) == end:
                self._positions[key] = start
        self._on_the_way = set()
        return True

    def _hand_out(self, replies: Iterable[Fetched], number: int | None) -> None:
        moved = {}
        for reply in replies:
            key = TopicPartition(reply.topic, reply.partition)
            start = self._positions[key]
            if reply.next_offset != start:
                del self._positions[key]
                self._positions[key] = reply.next_offset
                moved[key] = start, reply.next_offset
        self._on_the_way = set(moved)
        self._last_poll = None if number is None else (number, moved)
        self._member.note_positions(self._positions)

    # What it commits.

    async def commit(
        self, offsets: Mapping[TopicPartition, tuple[int, str]] | None = None, *, skip_missing: bool = False
    ) -> None:
        """These offsets with their metadata, all or none of them, or the ends of all that was handed out.

        With `skip_missing`, and where no offsets are named, partitions that are gone are left out.
        """
        if offsets is not None and not skip_missing:
            await self._require_partitions(offsets)
        async with self._in_turn():
            if offsets is None:
                offsets = {key: (offset, "") for key, offset in self._positions.items()}
                skip_missing = True
            if offsets:
                await self._member.commit(offsets, skip_missing=skip_missing)
            for key, (offset, _) in offsets.items():
                self._acknowledged[key] = offset
                self._arrived.pop(key, None)
                self._on_the_way.discard(key)
            self._commits.set()
            self._commits = asyncio.Event()

    async def committed(self, partitions: Collection[TopicPartition] | None) -> dict[TopicPartition, tuple[int, str]]:
        return await self._member.committed(self._readable if partitions is None else partitions)

    async def close(self, *, taken: bool) -> None:
        """Stop being a member. `taken` says that the client took what was handed out to it last."""
        async with self._turn:
            self._ended.set()
            if taken:
                self._came_back()
            await self._commit_if_it_can()
            await self._member.stop()

    def end(self) -> None:
        """Close it without a word to its group, which is in another gateway."""
        self._ended.set()

    async def _commit_arrived(self, partitions: Collection[TopicPartition]) -> None:
        arrived = {key: (self._arrived[key], "") for key in partitions if key in self._arrived}
        if arrived and self.options.auto_commit:
            await self._member.commit(arrived, skip_missing=True)
        for key in arrived:
            del self._arrived[key]
        self._committed_at_ms = self._broker.clock.monotonic_ms()

    async def _commit_if_it_can(self) -> None:
        try:
            await self._commit_arrived(self._positions)
        except LakelogError as error:
            # The next reader gets these records once more.
            log.warning("offsets were not committed when a consumer let go: %s", error)

    async def _require_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, partition in partitions:
            (await self._broker.topics.get(topic)).partition(partition)

    # What the group gives and takes.

    async def _beat(self) -> None:
        await self._member.beat(self)
        self._keep_readable()

    async def let_go(self, partitions: Collection[TopicPartition]) -> None:
        await self._commit_arrived(partitions)
        self._forget(partitions)

    def forget(self) -> None:
        self._forget(tuple(self._positions))

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Should they come back, others may be far beyond: then they are read on from what is committed."""
        _, handed_out = self._last_poll or (None, {})
        for key in partitions:
            self._positions.pop(key, None)
            handed_out.pop(key, None)
        self._keep_readable()

    def _keep_readable(self) -> None:
        readable = frozenset(self._readable)
        self._positions = {key: offset for key, offset in self._positions.items() if key in readable}
        self._arrived = {key: offset for key, offset in self._arrived.items() if key in self._positions}
        self._acknowledged = {key: offset for key, offset in self._acknowledged.items() if key in self._positions}
        self._on_the_way &= self._positions.keys()

    @asynccontextmanager
    async def _in_turn(self) -> AsyncGenerator[None]:
        async with self._turn:
            if self._ended.is_set():
                raise no_such_consumer()
            yield


def _cut(replies: list[Fetched], max_records: int | None) -> list[Fetched]:
    """No more records than were asked for."""
    if max_records is None:
        return replies
    kept, left = [], max_records
    for reply in replies:
        if reply.rows.num_rows > left:
            rows = reply.rows.slice(0, left)
            next_offset = int(reply.rows.column("offset")[left].as_py())
            kept.append(replace(reply, rows=rows, next_offset=next_offset))
            break
        kept.append(reply)
        left -= reply.rows.num_rows
    return kept


def _cancel(future: asyncio.Future[None] | None) -> None:
    if future is not None:
        future.cancel()


def no_such_consumer() -> HttpError:
    return HttpError(
        404, "consumer instance not found; it was deleted, or idle for too long: make another", NO_SUCH_CONSUMER
    )


def illegal_state(reason: str) -> HttpError:
    return HttpError(409, f"illegal state: {reason}", ILLEGAL_STATE)


def _exclusive() -> HttpError:
    return illegal_state(
        "subscriptions to topics, to a pattern and to partitions exclude each other; unsubscribe first"
    )
