"""Consumer groups as a service: what the gateway's consumers and the Kafka listener both call.

Owns one coordinator and one book of offsets for a warehouse, their time and their record. Three rules for callers:

- Refusals that belong to the group protocol (a stale generation, an unknown member, a rebalance under way) are `error`
  in the reply, as Kafka's clients expect them. Everything else is raised as a LakelogError; a retriable one means that
  nothing is known to have happened, and that the same request may be sent again.
- Nothing is answered before it is on record, and `join` and `sync` of Kafka's members are answered when their group is.
- A member that the coordinator serves (an HTTP consumer) follows the rules in `consumer_groups.coordinator`: a
  heartbeat before each poll, an acknowledgement of each new generation. `next_news` tells it that there is one.

HTTP, sockets and Kafka's wire form must not be known here.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from consumer_groups.assignors import TopicPartition
from consumer_groups.group_settings import GroupSettings
from consumer_groups.lag import PartitionLag, partition_lags
from consumer_groups.offsets import CommitOffsets, CommitReply, CommittedOffset
from consumer_groups.requests import (
    JOINS,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroup,
    DeleteReply,
    GroupDescription,
    GroupListing,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    LeaveReply,
    SyncGroup,
    SyncReply,
)
from consumer_groups.resets import Marks, OffsetChange, ResetTarget, new_offset, time_wanted_ms
from consumer_groups.state import Phase, Subscription
from consumer_groups.tenure import Tenure
from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError

log = logging.getLogger(__name__)

# So long may a gateway go on serving groups that another one has claimed.
CHECK_CLAIM_MS = 1_000
# A gateway that lost the groups to another one leaves them there for so long, whoever asks.
TAKE_BACK_AFTER_MS = 10_000
NO_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


class GroupService:
    """Use it as an async context manager inside the broker's event loop.

    The tables are claimed and loaded by the first request that needs them. If another gateway claims them later, this
    one refuses with NOT_COORDINATOR for a while, and then takes them back if it is asked: so a gateway that is gone is
    replaced by whichever its consumers turn to, and nothing has to be configured.
    """

    def __init__(self, broker: Broker, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self._broker = broker
        self._clock = broker.clock
        # Sessions must not end because somebody set the clock, so time is counted on from the start.
        self._started_ms = self._clock.now_ms() - int(self._clock.monotonic_ms())
        self._positions: dict[str, dict[str, dict[TopicPartition, int]]] = {}
        self._served_here: set[tuple[str, str]] = set()  # members of HTTP consumers that joined through this process
        self._tenure: Tenure | None = None
        self._beginning: asyncio.Task[Tenure] | None = None
        self._fenced_ms = float("-inf")
        self._watches: list[asyncio.Task[None]] = []
        self._expired_ms = self._clock.monotonic_ms()
        self._closing = False

    async def __aenter__(self) -> Self:
        self._broker.admin.on_partitions = self._topic_changed
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        for watch in self._watches:
            watch.cancel()
        if self._tenure is not None:
            await self._tenure.end(LakelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is shutting down"))

    # -- being a member ----------------------------------------------------------------------------------------

    async def join(self, request: JoinGroup) -> JoinReply:
        """Become a member, or come again. A Kafka member waits for its group; a served one is answered at once.

        Leave `new_member_id` out: it is drawn here, from the client id as Kafka does it.
        """
        tenure = await self._coordinating()
        if not request.new_member_id:
            request = replace(request, new_member_id=f"{request.client_id or 'consumer'}-{uuid.uuid4()}")
        if request.subscription is not None:
            max_age_ms = self._broker.settings.follow_interval_ms
            await self._learn_topics(tenure, [request.subscription], max_age_ms)
        reply = await tenure.membership.ask(request, JoinReply)
        if request.subscription is not None and reply.error is ErrorCode.NONE:
            self._served_here.add((request.group_id, reply.member_id))
        return reply

    async def sync(self, request: SyncGroup) -> SyncReply:
        """A Kafka member's assignment; waits until the leader has brought it."""
        return await (await self._coordinating()).membership.ask(request, SyncReply)

    async def heartbeat(self, request: Heartbeat) -> HeartbeatReply:
        """A sign of life; to a served member it brings the generation to take in, and what it may read in it."""
        return await (await self._coordinating()).membership.ask(request, HeartbeatReply)

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """All that a member of Kafka's newer protocol has to say. One that joins may leave its member id to us."""
        tenure = await self._coordinating()
        if request.epoch == JOINS and not request.member_id:
            request = replace(request, member_id=str(uuid.uuid4()))
        if request.topics or request.pattern:
            subscription = Subscription(request.topics or (), request.pattern or None)
            await self._learn_topics(tenure, [subscription], self._broker.settings.follow_interval_ms)
        return await tenure.membership.ask(request, ConsumerHeartbeatReply)

    async def leave(self, request: LeaveGroup) -> LeaveReply:
        """Go, alone or for others by their static instance ids; those who stay share what is let go of."""
        self._served_here.difference_update((request.group_id, leaver.member_id) for leaver in request.leavers)
        return await (await self._coordinating()).membership.ask(request, LeaveReply)

    def next_news(self, group_id: str, member_id: str) -> asyncio.Future[None]:
        """Done when a heartbeat of this served member would bring something new, or when it is no member any more.

        Ask before the heartbeat, or news may slip between; cancel it when you no longer wait.
        """
        if self._tenure is not None:
            return self._tenure.membership.next_news(group_id, member_id)
        at_once: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        at_once.set_result(None)
        return at_once

    def note_positions(self, group_id: str, member_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Where a served member reads now, for `lag`. Costs next to nothing, and is not on record."""
        self._positions.setdefault(group_id, {}).setdefault(member_id, {}).update(positions)

    # -- offsets -----------------------------------------------------------------------------------------------

    async def commit_offsets(self, request: CommitOffsets) -> CommitReply:
        """Store how far a member has read. Answered when it is durable; what is refused is not stored at all."""
        tenure = await self._coordinating()
        counts = {topic: await self._count_or_error(tenure, topic) for topic in {key.topic for key in request.offsets}}
        refused = {}
        for key, (offset, _, metadata) in request.offsets.items():
            count = counts[key.topic]
            if isinstance(count, ErrorCode):
                refused[key] = count
            elif not 0 <= key.partition < count:
                refused[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif offset < 0:
                refused[key] = ErrorCode.OFFSET_OUT_OF_RANGE
            elif len(metadata.encode()) > self.settings.offset_metadata_bytes_max:
                refused[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        accepted = request.offsets
        if refused:
            accepted = {key: row for key, row in accepted.items() if key not in refused}
        # From here on nothing waits: who may commit now must not be overtaken by a rebalance.
        error = self._may_commit(tenure, request, accepted)
        if error is not ErrorCode.NONE:
            return CommitReply(error)
        if refused and request.all_or_none:
            return CommitReply(refused=refused)
        await asyncio.shield(tenure.commit(request.group_id, accepted))
        return CommitReply(refused=refused)

    async def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, for all partitions or some; one without a commit is not in the reply.

        A member of Kafka's newer protocol that names itself is refused if its epoch is not its current one: another may
        be about to commit for what it believes to have.
        """
        tenure = await self._coordinating()
        error = tenure.coordinator.check_fetch(group_id, member_id, epoch)
        if error is not ErrorCode.NONE:
            raise LakelogError(error)
        offsets = tenure.book.of(group_id)
        return dict(offsets) if partitions is None else {key: offsets[key] for key in partitions if key in offsets}

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget what was committed for partitions that nobody in the group reads now; the outcome of each."""
        tenure = await self._coordinating()
        _require(tenure, group_id)
        read = {key for key in partitions if tenure.coordinator.subscribes(group_id, key.topic)}
        free = [key for key in partitions if key not in read]
        await asyncio.shield(tenure.forget(group_id, free))
        return {key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for key in read} | dict.fromkeys(free, ErrorCode.NONE)

    async def reset_offsets(
        self,
        group_id: str,
        target: ResetTarget,
        topics: Mapping[str, Sequence[int] | None] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Move a group to another place, or say with `dry_run` where it would go.

        `topics` names partitions by topic, None for all of a topic; without it all that the group has committed is
        moved. Raises NON_EMPTY_GROUP while it has members, who would go on from where they are: stop them first.
        """
        tenure = await self._coordinating()
        if not group_id:
            raise LakelogError(ErrorCode.INVALID_GROUP_ID)
        if topics is None:
            _require(tenure, group_id)
            keys = list(tenure.book.of(group_id))
        else:
            keys = [key for name, numbers in topics.items() for key in await self._partitions_of(name, numbers)]
        for topic in sorted({key.topic for key in keys}):
            # What is left of a former topic of this name goes before, and not after.
            await self._partition_count(tenure, topic, max_age_ms=0)
        changes = [await self._change_for(tenure, group_id, target, key) for key in sorted(keys)]
        if dry_run:
            return changes
        if tenure.coordinator.describe(group_id).members:
            raise LakelogError(
                ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members: stop them, then reset its offsets"
            )
        rows = {TopicPartition(each.topic, each.partition): (each.after, -1, "") for each in changes}
        await asyncio.shield(tenure.commit(group_id, rows))
        return changes

    async def lag(self, group_id: str) -> list[PartitionLag]:
        """How far the group is, in every partition that it has committed for or that a member reads."""
        tenure = await self._coordinating()
        described = _require(tenure, group_id)
        read = {key for member in described.members for key in member.assignment}
        marks: dict[TopicPartition, Marks] = {}
        for key in {*tenure.book.of(group_id), *read}:
            with suppress(LakelogError):  # the topic is being deleted
                marks[key] = await self._marks(key)
        return partition_lags(described, tenure.book.of(group_id), self._positions.get(group_id, {}), marks)

    # -- groups ------------------------------------------------------------------------------------------------

    async def list_groups(self) -> list[GroupListing]:
        """All groups: those with members, those that had some, and those that have only committed offsets."""
        tenure = await self._coordinating()
        listed = {each.group_id: each for each in tenure.coordinator.list_groups()}
        for group_id in tenure.book.groups:
            listed.setdefault(group_id, GroupListing(group_id, "", Phase.EMPTY))
        return [listed[group_id] for group_id in sorted(listed)]

    async def describe(self, group_id: str) -> GroupDescription:
        """A group as it stands; one that is not there is Dead, as in Kafka."""
        return _described(await self._coordinating(), group_id)

    async def delete_group(self, group_id: str) -> None:
        """Forget an empty group with all its offsets. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        tenure = await self._coordinating()
        _require(tenure, group_id)
        if tenure.coordinator.describe(group_id).members:
            raise LakelogError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members: stop them, then delete it")
        # Both are handed in before anything is waited for, so nobody joins between them.
        forgotten = tenure.forget(group_id, tenure.book.of(group_id))
        if tenure.coordinator.describe(group_id).phase is not Phase.DEAD:
            await tenure.membership.ask(DeleteGroup(group_id), DeleteReply)
        await asyncio.shield(forgotten)

    # -- coordinating ------------------------------------------------------------------------------------------

    @property
    def coordinates(self) -> bool:
        """Whether this process has the groups, as far as it knows. Whoever was not asked for them looks here first:
        each request takes the groups over from the process that has them.
        """
        return self._tenure is not None and self._tenure.ended is None

    def _now_ms(self) -> int:
        return self._started_ms + int(self._clock.monotonic_ms())

    async def _coordinating(self) -> Tenure:
        """The tenure under which requests are served; begun by whoever asks first."""
        tenure = self._tenure
        if tenure is not None and tenure.ended is None:
            return tenure
        if self._closing:
            raise LakelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is shutting down")
        if tenure is not None and tenure.ended is not None:
            self._tenure = None
            if tenure.ended.code is ErrorCode.NOT_COORDINATOR:
                self._fenced_ms = tenure.ended_ms
        if self._clock.monotonic_ms() - self._fenced_ms < TAKE_BACK_AFTER_MS:
            raise LakelogError(ErrorCode.NOT_COORDINATOR, "another gateway coordinates the groups of this warehouse")
        if self._beginning is None:
            self._beginning = asyncio.ensure_future(self._begin())
        # One caller's cancellation must not take it from the others.
        return await asyncio.shield(self._beginning)

    async def _begin(self) -> Tenure:
        try:
            tenure = await Tenure(self._broker, self.settings, self._now_ms).begin()
            await self._look_at_topics(tenure)
            await self._drop_strangers(tenure)
            self._tenure = tenure
            if not self._watches:
                self._watches = [
                    asyncio.ensure_future(self._keep_looking(self.sweep, self.settings.group_topics_refresh_ms)),
                    asyncio.ensure_future(self._keep_looking(self._check_claim, CHECK_CLAIM_MS)),
                ]
            return tenure
        finally:
            self._beginning = None

    async def _drop_strangers(self, tenure: Tenure) -> None:
        """An HTTP consumer lives in the process that it joined through. Those of an earlier one can't come back, and
        nobody is to wait for the end of their sessions. A static one may come back as another, to the same place.
        """
        for group in list(tenure.coordinator.groups.values()):
            strangers = tuple(
                Leaver(member.member_id)
                for member in group.members.values()
                if member.served
                and not member.reconciles
                and member.instance_id is None
                and (group.group_id, member.member_id) not in self._served_here
            )
            if strangers:
                await tenure.membership.ask(LeaveGroup(group.group_id, strangers), LeaveReply)

    def _may_commit(self, tenure: Tenure, request: CommitOffsets, partitions: Iterable[TopicPartition]) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        return tenure.coordinator.check_commit(
            request.group_id,
            request.member_id,
            request.generation,
            request.instance_id,
            self._now_ms(),
            partitions,
        )

    async def _partitions_of(self, topic: str, numbers: Sequence[int] | None) -> list[TopicPartition]:
        count = len((await self._broker.topics.get(topic)).state.partitions)
        return [TopicPartition(topic, number) for number in (range(count) if numbers is None else numbers)]

    async def _change_for(
        self, tenure: Tenure, group_id: str, target: ResetTarget, key: TopicPartition
    ) -> OffsetChange:
        marks = await self._marks(key)
        time_ms = time_wanted_ms(target, self._clock.now_ms())
        if time_ms is not None:
            found = await self._broker.offset_at(key.topic, key.partition, max(0, time_ms))
            marks = replace(marks, at_time=found.offset if found.offset >= 0 else None)
        before = tenure.book.of(group_id).get(key)
        marks = replace(marks, committed=before.offset if before else None)
        return OffsetChange(key.topic, key.partition, marks.committed, new_offset(target, marks))

    # -- now and then ------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """What time asks for: sessions that end, topics of other processes, offsets and groups that nobody needs."""
        tenure = await self._coordinating()
        await tenure.membership.tick()
        await self._look_at_topics(tenure)
        for topic in sorted(tenure.book.topics):
            # One by one: what was not there when a look at many began may be by its end.
            if (await self._partition_counts(tenure, [topic], max_age_ms=0)).get(topic) == 0:
                await _forget_topic(tenure, topic)
        in_the_book = tenure.book.topics
        tenure.table_ids = {topic: table_id for topic, table_id in tenure.table_ids.items() if topic in in_the_book}
        self._forget_the_gone(tenure)
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._expired_ms >= self.settings.offsets_retention_check_interval_ms:
            self._expired_ms = now_ms
            await self._expire(tenure)

    async def _check_claim(self) -> None:
        await (await self._coordinating()).check()

    async def _keep_looking(self, look: Callable[[], Awaitable[None]], every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            if not self.coordinates:
                continue  # whoever needs groups will begin anew
            try:
                await look()
            except LakelogError as error:
                log.warning("a look after the groups was put off: %s", error)
            except Exception:
                log.exception("a look after the groups failed")

    async def _expire(self, tenure: Tenure) -> None:
        """Offsets that outlived their group, and then groups that have neither members nor offsets."""
        now_ms, retention_ms = self._now_ms(), self.settings.offsets_retention_minutes * 60_000
        for each in await self.list_groups():
            if each.phase is not Phase.EMPTY:
                continue
            idle_since_ms = tenure.coordinator.describe(each.group_id).changed_ms
            expired = tenure.book.expired(
                each.group_id, idle_since_ms=idle_since_ms, now_ms=now_ms, retention_ms=retention_ms
            )
            await asyncio.shield(tenure.forget(each.group_id, expired))
            is_idle = now_ms - idle_since_ms >= self.settings.offsets_retention_check_interval_ms
            if is_idle and each.group_id in tenure.coordinator.groups and not tenure.book.of(each.group_id):
                await tenure.membership.ask(DeleteGroup(each.group_id), DeleteReply)

    def _forget_the_gone(self, tenure: Tenure) -> None:
        """Positions and names of members whose sessions ended."""
        self._served_here = {
            (group.group_id, member_id)
            for group in tenure.coordinator.groups.values()
            for member_id in group.members
            if (group.group_id, member_id) in self._served_here
        }
        for group_id, positions in list(self._positions.items()):
            group = tenure.coordinator.groups.get(group_id)
            for member_id in [each for each in positions if group is None or each not in group.members]:
                del positions[member_id]
            if not positions:
                del self._positions[group_id]

    # -- topics ------------------------------------------------------------------------------------------------

    async def _marks(self, key: TopicPartition) -> Marks:
        topic = await self._broker.topics.get(key.topic, max_age_ms=self._broker.settings.follow_interval_ms)
        partition = topic.partition(key.partition)
        return Marks(partition.log_start_offset, partition.next_offset)

    async def _partition_count(self, tenure: Tenure, topic: str, max_age_ms: float | None = None) -> int:
        """0 if there is no such topic. Raises if it can't be told.

        What was committed for a former topic of this name is forgotten.
        """
        try:
            state = (await self._broker.topics.get(topic, max_age_ms=max_age_ms)).state
        except LakelogError as error:
            if error.code in NO_TOPIC:
                return 0
            raise
        former_id, tenure.table_ids[topic] = tenure.table_ids.get(topic, state.table_id), state.table_id
        if former_id != state.table_id:
            await _forget_topic(tenure, topic)
        return len(state.partitions)

    async def _count_or_error(self, tenure: Tenure, topic: str) -> int | ErrorCode:
        """Of a topic that can't be read any more, what was read of it before may still be committed."""
        try:
            return await self._partition_count(tenure, topic)
        except LakelogError as error:
            return tenure.coordinator.topics.get(topic, error.code)

    async def _look_at_topics(self, tenure: Tenure) -> None:
        members = (member for group in tenure.coordinator.groups.values() for member in group.members.values())
        subscriptions = [each.subscription for each in members if each.subscription is not None]
        await self._learn_topics(tenure, subscriptions, max_age_ms=0)

    async def _learn_topics(self, tenure: Tenure, subscriptions: Sequence[Subscription], max_age_ms: float) -> None:
        """See how many partitions the topics of these subscriptions have, and let the groups know."""
        wanted = {topic for each in subscriptions for topic in each.topics}
        if any(each.pattern is not None for each in subscriptions):
            wanted.update(await self._broker.admin.list_topics())
            wanted.update(tenure.coordinator.topics)
        counts = await self._partition_counts(tenure, wanted, max_age_ms)
        # To look at many takes its time, and who was made meanwhile must not be told to have gone.
        gone = [topic for topic, count in counts.items() if not count and topic in tenure.coordinator.topics]
        await self._tell_topics(tenure, counts | await self._partition_counts(tenure, gone, max_age_ms=0))

    async def _partition_counts(self, tenure: Tenure, topics: Iterable[str], max_age_ms: float) -> dict[str, int]:
        """A topic that can't be read is left out, so that it stays what it was to the groups and stops none of them."""
        counts = {}
        for topic in sorted(topics):
            try:
                counts[topic] = await self._partition_count(tenure, topic, max_age_ms)
            except LakelogError as error:
                log.warning("the groups go on with what they know of topic %s: %s", topic, error)
        return counts

    async def _topic_changed(self, name: str, partitions: int) -> None:
        """A topic was created, grown or deleted here. Nothing that goes wrong may look as if that had failed.

        Another process that has the groups finds out when it looks: it is no reason to take them over.
        """
        tenure = self._tenure
        if tenure is None or not self.coordinates:
            return
        try:
            if not partitions:
                await _forget_topic(tenure, name)
            await self._tell_topics(tenure, {name: partitions})
        except LakelogError as error:
            log.warning("the groups will hear of topic %s later: %s", name, error)

    async def _tell_topics(self, tenure: Tenure, counts: Mapping[str, int]) -> None:
        known = tenure.coordinator.topics
        changed = {name: count for name, count in {**known, **counts}.items() if count}
        if changed != known:
            await tenure.membership.topics_changed(changed)


def _described(tenure: Tenure, group_id: str) -> GroupDescription:
    described = tenure.coordinator.describe(group_id)
    if described.phase is Phase.DEAD and tenure.book.of(group_id):
        return replace(described, phase=Phase.EMPTY)
    return described


def _require(tenure: Tenure, group_id: str) -> GroupDescription:
    described = _described(tenure, group_id)
    if described.phase is Phase.DEAD:
        raise LakelogError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return described


async def _forget_topic(tenure: Tenure, topic: str) -> None:
    # All at once: what is committed from now on is of the new topic of this name, and stands.
    gone = {group: [key for key in tenure.book.of(group) if key.topic == topic] for group in tenure.book.groups}
    written = [tenure.forget(group, keys) for group, keys in gone.items() if keys]
    await asyncio.shield(asyncio.gather(*written))
