"""The way in: requests are gathered, stamped, encoded and committed, and answered with their offsets.

Each topic has a leader while it has something to write. A request that finds its topic idle is committed at once;
while a commit is under way the next group gathers, waits a moment for those who were just answered, and goes when the
commit budget says so. So latency is one commit when it is quiet, and files are few when it is not. Bytes in flight are
bounded over all topics, and so are commits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeAlias, TypeVar

import pyarrow as pa

from lakelog.clock import Clock
from lakelog.config import ServerSettings
from lakelog.delta import drafts
from lakelog.delta.parquet import codec_for, encode_segment, timestamp_range_us
from lakelog.delta.store import Store, StoreRefused, StoreUnavailable
from lakelog.delta.table import RETRY_FIRST_MS, RETRY_MOST_MS, OutcomeUnknown, Stale, storage_error
from lakelog.errors import ErrorCode, LakelogError
from lakelog.flow import Room
from lakelog.log.budget import SMALL_FILE_BYTES, CommitBudget, cheaper_from, price
from lakelog.log.producers import ProducerBatch
from lakelog.log.stamp import Appended, LogEnd, PartitionAppend, Request, StampedGroup, stamp
from lakelog.model.batch import AnyRecords, ListRecords, held_bytes
from lakelog.model.segment import Segment, segment_path
from lakelog.observer import Observer
from lakelog.topics import Topic, Topics

log = logging.getLogger(__name__)

# However many partitions a topic has, a record does not wait longer than this for its commit to begin.
BUDGET_PAUSE_MOST_MS = 1_000
# Requests that were answered together mostly come back together. A commit waits for them for as long as the one before
# took, which is what the others would wait if it went with the first; and never longer than this.
GATHER_MOST_MS = 10
# Groups up to this size are stamped and encoded in one go: handing them around costs more than the work. The smallest
# do not even go to a thread, where they would wait for the interpreter's lock after every step.
ONE_STEP_BYTES = 256 * 1024
IN_PLACE_BYTES = 96 * 1024
IN_PLACE_FILES = 32
SLOW_CODECS = frozenset({"gzip"})  # twenty times as slow as the others
# So often a group is stamped again as it is before it is made smaller.
RACES_LOST_MOST = 2
# A partition's records are encoded by several threads, into a file each, if none of them becomes smaller than this.
PIECE_BYTES_LEAST = 2 * SMALL_FILE_BYTES

# An odd 64-bit number whose multiples look like chance in their upper bits.
_SCRAMBLE = 0x9E37_79B9_7F4A_7C15

T = TypeVar("T")


class Acks(Enum):
    """What the sender waits for: nothing, its offsets, or the commit."""

    NONE = 0
    LEADER = 1
    ALL = -1


@dataclass(slots=True)
class Pending:
    """A request on its way, and whom to answer. Without a future nobody waits any more."""

    request: Request
    held_bytes: int
    acks: Acks
    answer: asyncio.Future[Appended] | None
    came_ms: float

    def settle(self, outcome: Appended | LakelogError) -> None:
        if self.answer is None or self.answer.done():
            if isinstance(outcome, LakelogError):
                log.warning("records that nobody waits for were refused: %s", outcome)
            return
        if isinstance(outcome, LakelogError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


NewFile: TypeAlias = tuple[Segment, pa.Buffer]


@dataclass(frozen=True, slots=True)
class Plan:
    """A group on its way to a commit: what each request gets if it lands, and the files that it names."""

    commit_id: str
    basis: drafts.Basis
    stamped: StampedGroup
    parts: Sequence[PartitionAppend]
    files: Sequence[NewFile]  # one a part

    @property
    def answers_from_memory(self) -> bool:
        """Whether a request is refused or known already: no commit will tell whether what it rests on still holds."""
        return any(isinstance(outcome, LakelogError) or outcome.duplicate for outcome in self.stamped.outcomes)


class ProducePath:
    """One per process. `on_commit` hears of each topic that was appended to, so that upkeep can follow."""

    def __init__(
        self,
        topics: Topics,
        executor: Executor,
        encode_threads: int,
        on_commit: Callable[[Topic], None],
        observer: Observer,
    ) -> None:
        self.topics = topics
        self.settings: ServerSettings = topics.settings
        self.clock: Clock = topics.clock
        self.store: Store = topics.store
        self.on_commit = on_commit
        self.observer = observer
        self.in_flight = Room(self.settings.in_flight_bytes_max, self.settings.in_flight_wait_ms, "in_flight_bytes_max")
        self.commits = asyncio.Semaphore(self.settings.commits_in_flight_max)
        self.encode_threads = encode_threads
        self._executor = executor
        self._leaders: dict[str, TopicLeader] = {}
        self._closing = False

    async def append(
        self,
        topic_name: str,
        records: AnyRecords,
        *,
        acks: Acks = Acks.ALL,
        producer: ProducerBatch | None = None,
        expected_offsets: Mapping[int, int] | None = None,
    ) -> Appended | None:
        """Append all of the records or none. Returns where they are, or None at once with Acks.NONE."""
        submitted = self.submit(topic_name, records, acks=acks, producer=producer, expected_offsets=expected_offsets)
        answer = await submitted
        return await answer if answer is not None else None

    async def submit(
        self,
        topic_name: str,
        records: AnyRecords,
        *,
        acks: Acks = Acks.ALL,
        producer: ProducerBatch | None = None,
        expected_offsets: Mapping[int, int] | None = None,
    ) -> asyncio.Future[Appended] | None:
        """The first half of an append: returns once the records have their place in the topic's line, so that who
        submits one request after the other gets them appended in that order. The future is the other half.
        """
        self._refuse_when_closing()
        if len(records) == 0:
            raise LakelogError(ErrorCode.INVALID_REQUEST, "no records in the request")
        if records.size_bytes > self.settings.request_bytes_max:
            raise LakelogError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{records.size_bytes} bytes of records; request_bytes_max is {self.settings.request_bytes_max}",
            )
        if isinstance(records, ListRecords):
            records.check()
        topic = await self.topics.get(topic_name)
        size = held_bytes(records)
        await self.in_flight.enter(size)
        try:
            self._refuse_when_closing()  # while it waited for room
        except LakelogError:
            self.in_flight.leave(size)
            raise
        leader = self._leaders.get(topic.name)
        if leader is None or leader.topic is not topic:
            leader = TopicLeader(self, topic)
            self._leaders[topic.name] = leader
        answer = asyncio.get_running_loop().create_future() if acks is not Acks.NONE else None
        request = Request(records, leader.keyless_partition(producer), producer, expected_offsets)
        leader.take_in(Pending(request, size, acks, answer, self.clock.monotonic_ms()))
        return answer

    async def close(self, timeout_ms: float) -> None:
        """Take nothing more, commit what is there, answer it."""
        self._closing = True
        tasks = [leader.task for leader in self._leaders.values() if leader.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise LakelogError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the server is shutting down")

    def finished(self, leader: TopicLeader) -> None:
        # A leader is kept for its budget while its topic is open; idle ones beyond that are no loss.
        if len(self._leaders) > self.settings.open_topics_max:
            self._leaders.pop(leader.topic.name, None)

    async def run(self, work: Callable[[], T]) -> T:
        """Work that computes goes to a thread; pyarrow lets go of the interpreter's lock there."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


class TopicLeader:
    """Gives out the offsets of one topic, as long as its commits say so."""

    def __init__(self, path: ProducePath, topic: Topic) -> None:
        self.topic = topic
        self.task: asyncio.Task[None] | None = None
        self._path = path
        self._waiting: deque[Pending] = deque()
        self._waiting_bytes = 0
        self._budget = CommitBudget(topic.state.config.flush_files_per_second, path.clock.monotonic_ms())
        self._more = asyncio.Event()  # set when there is as much in the next group as its leader would rather wait for
        self._enough: Callable[[], bool] = lambda: False
        self._partitions_last = 1
        self._expected = 1
        self._expected_until_ms = 0.0
        self._round_robin = random.randrange(1 << 16)

    def keyless_partition(self, producer: ProducerBatch | None) -> int:
        """Sticky: the records without a key of one request stay together, and requests take turns. Stamping counts it
        round the partitions that there are then.
        """
        if producer is not None:
            # A repetition has to go where it went the first time, on whichever server it arrives. Scrambled, because
            # batches of one size would else take every size-th turn, and in the worst case only ever one partition's.
            scrambled = (producer.producer_id ^ producer.sequence * _SCRAMBLE) * _SCRAMBLE
            return (scrambled & 0xFFFF_FFFF_FFFF_FFFF) >> 33
        self._round_robin += 1
        return self._round_robin

    def take_in(self, pending: Pending) -> None:
        self._waiting.append(pending)
        self._waiting_bytes += pending.held_bytes
        if self._enough():
            self._more.set()
        if self.task is None:
            self.topic.users += 1
            self.task = asyncio.get_running_loop().create_task(self._lead())

    async def _lead(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                await self._pause_for_budget()
                async with self._path.commits:
                    started_ms = self._path.clock.monotonic_ms()
                    group = self._next_group()
                    try:
                        await self._write(group)
                    except Exception as error:
                        log.exception("appending to %s failed", self.topic.name)
                        _refuse(group, LakelogError(ErrorCode.UNKNOWN_SERVER_ERROR, f"append failed: {error!r}"))
                    finally:
                        self._path.in_flight.leave(sum(pending.held_bytes for pending in group))
                now_ms = self._path.clock.monotonic_ms()
                # The others were answered before their commit, or not at all: who of them came back is waiting already.
                self._expected = sum(pending.acks is Acks.ALL for pending in group) + len(self._waiting)
                self._expected_until_ms = now_ms + min(now_ms - started_ms, GATHER_MOST_MS)
        finally:
            self.task = None
            self.topic.users -= 1
            self._path.finished(self)

    async def _gather(self) -> None:
        """Until those that the last commit has answered are back beside those that it left waiting, or late."""

        def enough() -> bool:
            return len(self._waiting) >= self._expected or self._has_bytes(self._path.settings.group_bytes_max)

        wait_ms = self._expected_until_ms - self._path.clock.monotonic_ms()
        if wait_ms > 0 and not enough():
            await self._wait_for(enough, wait_ms)

    async def _pause_for_budget(self) -> None:
        """Until the budget allows for the next group, which costs less as it gets larger, or a group is full."""
        clock, full_bytes = self._path.clock, self._path.settings.group_bytes_max
        paid, partitions = self._path.store.on_object_store, self._partitions_last
        self._budget.files_per_second = self.topic.state.config.flush_files_per_second
        latest_ms = clock.monotonic_ms() + BUDGET_PAUSE_MOST_MS
        while self._waiting_bytes < full_bytes:
            now_ms, file_bytes = clock.monotonic_ms(), self._waiting_bytes / partitions
            cost = partitions * price(file_bytes, every_file_is_paid=paid)
            wait_ms = min(self._budget.wait_ms(cost, now_ms), latest_ms - now_ms)
            if wait_ms <= 0:
                return
            cheaper_bytes = min(full_bytes, partitions * cheaper_from(file_bytes, every_file_is_paid=paid))
            await self._wait_for(partial(self._has_bytes, cheaper_bytes), wait_ms)

    def _has_bytes(self, least: int) -> bool:
        return self._waiting_bytes >= least

    async def _wait_for(self, enough: Callable[[], bool], wait_ms: float) -> None:
        """Until there is enough to write, or the time is over."""
        self._enough = enough
        self._more.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._more.wait()

    def _next_group(self) -> list[Pending]:
        group: list[Pending] = []
        size, size_max = 0, self._path.settings.group_bytes_max
        while self._waiting and (not group or size + self._waiting[0].held_bytes <= size_max):
            pending = self._waiting.popleft()
            size += pending.held_bytes
            group.append(pending)
        self._waiting_bytes -= size
        return group

    async def _write(self, group: list[Pending]) -> None:
        """Stamp, encode, commit, answer; and again from the start when another writer was faster."""
        started_ms = self._path.clock.monotonic_ms()
        deadline_ms = group[0].came_ms + self._path.settings.commit_timeout_ms
        plan: Plan | None = None
        races_lost = 0
        while plan is None:
            try:
                plan = await self._attempt(group)
            except OutcomeUnknown as error:
                return _refuse(group, storage_error(error, "the store did not say whether the commit landed"))
            except (StoreUnavailable, StoreRefused) as error:
                return _refuse(group, storage_error(error, "the records could not be written"))
            except LakelogError as error:
                return _refuse(group, error)
            if plan is None:
                races_lost += 1
                if races_lost > RACES_LOST_MOST:
                    if self._path.clock.monotonic_ms() > deadline_ms:
                        return _refuse(group, _always_overtaken(races_lost))
                    self._put_half_back(group)
        for pending, outcome in zip(group, plan.stamped.outcomes, strict=True):
            pending.settle(outcome)
        if plan.files:
            self._path.observer.committed(
                self.topic.name,
                records=sum(int(part.rows.num_rows) for part in plan.stamped.appends),
                size_bytes=sum(pending.request.records.size_bytes for pending in group),
                requests=len(group),
                files=len(plan.files),
                seconds=(self._path.clock.monotonic_ms() - started_ms) / 1000,
            )

    async def _attempt(self, group: Sequence[Pending]) -> Plan | None:
        """What was committed and decided, or None where another writer changed what it rests on meanwhile."""
        plan = await self._plan(group)
        if plan.answers_from_memory:
            # Nobody is answered by what the table said a while ago.
            await self.topic.table.refresh()
            if not plan.basis.holds(self.topic.state):
                return None
        try:
            if plan.files:
                await self._commit(plan)
        except Stale:
            return None
        return plan

    def _put_half_back(self, group: list[Pending]) -> None:
        """A smaller group is quicker, and so has a chance against somebody who commits all the time."""
        later = group[(len(group) + 1) // 2 :]
        del group[len(group) - len(later) :]
        self._waiting.extendleft(reversed(later))
        self._waiting_bytes += sum(pending.held_bytes for pending in later)

    async def _plan(self, group: Sequence[Pending]) -> Plan:
        """The group with its offsets, and the files that it makes."""
        if not self.topic.state.exists:
            await self.topic.table.refresh()  # one that was deleted may have been created again since
        self.topic.require()
        state, now_ms = self.topic.state, self._path.clock.now_ms()
        requests = [pending.request for pending in group]
        producers = {r.producer: state.producers.of(r.producer) for r in requests if r.producer is not None}
        # Copies: the work is done in a thread, while the state may go on here.
        end = LogEnd(state.next_offsets, state.producers.overlay(producers), state.config)
        expected = {partition for request in requests for partition in request.expected_offsets or ()}
        ends = {number: end.next_offsets[number] for number in expected if 0 <= number < len(end.next_offsets)}
        terms, commit_id = state.metadata, drafts.new_commit_id()
        codec = codec_for(state.config.compression_type, merged=False)

        def file_of(part: PartitionAppend) -> NewFile:
            return encode_append(part, codec, commit_id, now_ms)

        def in_one_step() -> tuple[StampedGroup, list[NewFile]]:
            stamped = stamp(requests, end, now_ms)
            return stamped, [file_of(part) for part in stamped.appends]

        size = sum(pending.held_bytes for pending in group)
        if size <= ONE_STEP_BYTES:
            few_files = _files_most(requests, len(end.next_offsets)) <= IN_PLACE_FILES
            in_place = size <= IN_PLACE_BYTES and few_files and codec not in SLOW_CODECS
            stamped, files = in_one_step() if in_place else await self._path.run(in_one_step)
            parts = stamped.appends
            self._answer_leader_acks(group, stamped)
        else:
            stamped = await self._path.run(lambda: stamp(requests, end, now_ms))
            self._answer_leader_acks(group, stamped)
            parts = _for_all_threads(stamped.appends, self._path.encode_threads)
            files = await asyncio.gather(*(self._path.run(partial(file_of, part)) for part in parts))
        ends.update({append.partition: append.base_offset for append in stamped.appends})
        return Plan(commit_id, drafts.Basis(terms, ends, producers), stamped, parts, files)

    def _answer_leader_acks(self, group: Sequence[Pending], stamped: StampedGroup) -> None:
        for pending, outcome in zip(group, stamped.outcomes, strict=True):
            # A refusal waits until it is known that the table does not say something else by now.
            if pending.acks is Acks.LEADER and pending.answer is not None and isinstance(outcome, Appended):
                pending.settle(outcome)
                pending.answer = None

    async def _commit(self, plan: Plan) -> None:
        path, topic = self._path, self.topic
        segments = [segment for segment, _ in plan.files]
        if len(plan.files) == 1:
            await self._put(*plan.files[0])
        else:
            await asyncio.gather(*(self._put(segment, data) for segment, data in plan.files))
        try:
            await topic.table.commit(drafts.append(plan.commit_id, segments, plan.basis, path.clock.now_ms()))
        except (Stale, LakelogError):
            await self._drop(segments)
            raise
        self._partitions_last = len(plan.stamped.appends)
        paid = path.store.on_object_store
        cost = sum(price(part.rows.nbytes, every_file_is_paid=paid) for part in plan.parts)
        self._budget.spend(cost, path.clock.monotonic_ms())
        for part in plan.parts:
            path.topics.hot_tail.push(topic.hot_partition(part.partition), part.base_offset, part.rows)
        path.on_commit(topic)

    async def _put(self, segment: Segment, data: pa.Buffer) -> None:
        clock, settings = self._path.clock, self._path.settings
        deadline_ms = clock.monotonic_ms() + settings.commit_timeout_ms
        pause_ms = float(RETRY_FIRST_MS)
        while True:
            try:
                await self._path.store.put(self.topic.table.path(segment.path), data)
                return
            except StoreUnavailable:
                if clock.monotonic_ms() + pause_ms > deadline_ms:
                    raise
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, RETRY_MOST_MS)

    async def _drop(self, segments: Sequence[Segment]) -> None:
        """Files that no commit names. If this fails they are orphans, and the vacuum job finds them."""
        try:
            await self._path.store.delete([self.topic.table.path(segment.path) for segment in segments])
        except (StoreUnavailable, StoreRefused) as error:
            log.info("orphans stay behind in %s: %s", self.topic.name, error)


def _files_most(requests: Sequence[Request], partitions: int) -> int:
    return min(partitions, sum(len(request.records) for request in requests))


def _for_all_threads(appends: Sequence[PartitionAppend], threads: int) -> list[PartitionAppend]:
    """What each partition is to write, cut further where there are more threads to encode it than partitions."""
    pieces_most = -(-threads // max(1, len(appends)))
    parts: list[PartitionAppend] = []
    for append in appends:
        pieces = min(pieces_most, append.rows.nbytes // PIECE_BYTES_LEAST)
        parts += append.cut(pieces) if pieces > 1 else [append]
    return parts


def encode_append(part: PartitionAppend, codec: str, commit_id: str, now_ms: int) -> NewFile:
    data = encode_segment(part.rows, codec)
    earliest_us, latest_us = timestamp_range_us(part.rows)
    segment = Segment(
        partition=part.partition,
        base_offset=part.base_offset,
        end_offset=part.end_offset,
        records=part.rows.num_rows,
        bytes=data.size,
        min_timestamp_us=earliest_us,
        max_timestamp_us=latest_us,
        path=segment_path(part.partition, part.base_offset, commit_id),
        modified_ms=now_ms,
    )
    return drafts.tagged(segment, part.written), data


def _always_overtaken(races_lost: int) -> LakelogError:
    return LakelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"another writer was faster {races_lost} times in a row; nothing was written. Send smaller requests, or let "
        "one server append to a partition",
    )


def _refuse(group: Sequence[Pending], error: LakelogError) -> None:
    for pending in group:
        pending.settle(error)
