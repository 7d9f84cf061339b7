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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from consumer_groups.assignors import TopicPartition
from consumer_groups.coordinator import Coordinator
from consumer_groups.group_settings import GroupSettings
from consumer_groups.membership import Membership
from consumer_groups.offsets import NO_OFFSET, CommitOffsets, CommitReply, CommittedOffset, OffsetBook, OffsetRow
from consumer_groups.requests import (
    DeleteGroup,
    DeleteReply,
    GroupDescription,
    GroupListing,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    SyncGroup,
    SyncReply,
)
from consumer_groups.resets import Marks, OffsetChange, ResetTarget, new_offset, time_wanted_ms
from consumer_groups.state import Fact, Phase, Subscription
from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a group is in one partition.

    `current` is where its member reads now as far as the gateway knows, else what is committed. `end_offset` is one
    past the last record. What stands in the table is all there is, so it equals the high watermark. `lag` counts from
    what is committed, and is None where nothing is. `member_id` is empty where nobody reads the partition.
    """

    topic: str
    partition: int
    committed: int | None
    current: int | None
    log_start_offset: int
    high_watermark: int
    end_offset: int
    lag: int | None
    metadata: str = ""
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class GroupService:
    """Use it as an async context manager inside the broker's event loop; one per warehouse coordinates."""

    def __init__(self, broker: Broker, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self._broker = broker
        self._clock = broker.clock
        # Sessions must not end because somebody set the clock, so time is counted on from the start.
        self._started_ms = self._clock.now_ms() - int(self._clock.monotonic_ms())
        self._partition_counts: dict[str, int] = {}
        self._positions: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        self._book = OffsetBook()
        self._membership = Membership(Coordinator(self.settings), _NoJournal(), self._now_ms)

    async def __aenter__(self) -> Self:
        self._broker.admin.on_partitions = self._topic_changed
        self._membership.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._membership.close(LakelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is shutting down"))

    def _now_ms(self) -> int:
        return self._started_ms + int(self._clock.monotonic_ms())

    # -- being a member ----------------------------------------------------------------------------------------

    async def join(self, request: JoinGroup) -> JoinReply:
        """Become a member, or come again. A Kafka member waits for its group; a served one is answered at once.

        Leave `new_member_id` out: it is drawn here, from the client id as Kafka does it.
        """
        if not request.new_member_id:
            request = replace(request, new_member_id=f"{request.client_id or 'consumer'}-{uuid.uuid4()}")
        if request.subscription is not None:
            await self._learn_topics([request.subscription])
        return await self._membership.ask(request, JoinReply)

    async def sync(self, request: SyncGroup) -> SyncReply:
        """A Kafka member's assignment; waits until the leader has brought it."""
        return await self._membership.ask(request, SyncReply)

    async def heartbeat(self, request: Heartbeat) -> HeartbeatReply:
        """A sign of life; to a served member it brings the generation to take in, and what it may read in it."""
        return await self._membership.ask(request, HeartbeatReply)

    async def leave(self, request: LeaveGroup) -> LeaveReply:
        for leaver in request.leavers:
            self._positions.pop((request.group_id, leaver.member_id), None)
        return await self._membership.ask(request, LeaveReply)

    def next_news(self, group_id: str, member_id: str) -> asyncio.Future[None]:
        """Done when a heartbeat of this served member would bring something new, or when it is no member any more.

        Ask before the heartbeat, or news may slip between; cancel it when you no longer wait.
        """
        return self._membership.next_news(group_id, member_id)

    def note_positions(self, group_id: str, member_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Where a served member reads now, for `lag`. Costs nothing, is not on record."""
        self._positions.setdefault((group_id, member_id), {}).update(positions)

    # -- offsets -----------------------------------------------------------------------------------------------

    async def commit_offsets(self, request: CommitOffsets) -> CommitReply:
        """Store how far a member has read. Answered when it is durable; what is refused is not stored at all."""
        refused = {}
        for key, (offset, _, metadata) in request.offsets.items():
            if offset < 0:
                refused[key] = ErrorCode.OFFSET_OUT_OF_RANGE
            elif len(metadata.encode()) > self.settings.offset_metadata_bytes_max:
                refused[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif not await self._exists(key):
                refused[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # From here on nothing waits: who may commit now must not be overtaken by a rebalance.
        error = self._may_commit(request)
        if error is not ErrorCode.NONE:
            return CommitReply(error)
        accepted = {key: row for key, row in request.offsets.items() if key not in refused}
        await self._write_offsets(request.group_id, accepted)
        return CommitReply(refused=refused)

    async def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, for all partitions or some; one without a commit is not in the reply."""
        offsets = self._book.of(group_id)
        return dict(offsets) if partitions is None else {key: offsets[key] for key in partitions if key in offsets}

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget what was committed for partitions that nobody in the group reads now; the outcome of each."""
        self._require(group_id)
        outcome = {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if self._coordinator.subscribes(group_id, key.topic)
            else ErrorCode.NONE
            for key in partitions
        }
        await self._forget_offsets(group_id, [key for key, error in outcome.items() if error is ErrorCode.NONE])
        return outcome

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
        changes = [
            await self._change_for(group_id, target, key)
            for key in sorted(await self._partitions_to_reset(group_id, topics))
        ]
        if dry_run:
            return changes
        if self._coordinator.describe(group_id).members:
            raise LakelogError(
                ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members: stop them, then reset its offsets"
            )
        rows = {TopicPartition(each.topic, each.partition): (each.after, -1, "") for each in changes}
        await self._write_offsets(group_id, rows)
        return changes

    async def lag(self, group_id: str) -> list[PartitionLag]:
        """How far the group is, in every partition that it has committed for or that a member reads."""
        self._require(group_id)
        described = self._coordinator.describe(group_id)
        readers = {key: member for member in described.members for key in member.assignment}
        offsets = self._book.of(group_id)
        found = []
        for topic, partition in sorted({*offsets, *readers}):
            key = TopicPartition(topic, partition)
            with suppress(LakelogError):  # the topic is being deleted
                marks = await self._marks(key)
                committed = offsets[key].offset if key in offsets else None
                reader = readers.get(key)
                position = self._positions.get((group_id, reader.member_id), {}).get(key) if reader else None
                found.append(
                    PartitionLag(
                        topic=topic,
                        partition=partition,
                        committed=committed,
                        current=committed if position is None else position,
                        log_start_offset=marks.log_start_offset,
                        high_watermark=marks.high_watermark,
                        end_offset=marks.high_watermark,
                        lag=None if committed is None else max(0, marks.high_watermark - committed),
                        metadata=offsets[key].metadata if key in offsets else "",
                        member_id=reader.member_id if reader else "",
                        instance_id=reader.instance_id if reader else None,
                        client_id=reader.client_id if reader else "",
                        client_host=reader.client_host if reader else "",
                    )
                )
        return found

    # -- groups ------------------------------------------------------------------------------------------------

    async def list_groups(self) -> list[GroupListing]:
        """All groups: those with members, those that had some, and those that have only committed offsets."""
        listed = {each.group_id: each for each in self._coordinator.list_groups()}
        for group_id in self._book.groups:
            listed.setdefault(group_id, GroupListing(group_id, "", Phase.EMPTY))
        return [listed[group_id] for group_id in sorted(listed)]

    async def describe(self, group_id: str) -> GroupDescription:
        """A group as it stands; one that is not there is Dead, as in Kafka."""
        return self._described(group_id)

    async def delete_group(self, group_id: str) -> None:
        """Forget an empty group with all its offsets. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        self._require(group_id)
        if self._coordinator.describe(group_id).phase is not Phase.DEAD:
            reply = await self._membership.ask(DeleteGroup(group_id), DeleteReply)
            if reply.error is not ErrorCode.NONE:
                raise LakelogError(reply.error, f"group {group_id!r} has members: stop them, then delete it")
        await self._forget_offsets(group_id, self._book.of(group_id))

    @property
    def _coordinator(self) -> Coordinator:
        return self._membership.coordinator

    def _described(self, group_id: str) -> GroupDescription:
        described = self._coordinator.describe(group_id)
        if described.phase is Phase.DEAD and self._book.of(group_id):
            return replace(described, phase=Phase.EMPTY)
        return described

    def _require(self, group_id: str) -> None:
        if self._described(group_id).phase is Phase.DEAD:
            raise LakelogError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")

    def _may_commit(self, request: CommitOffsets) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self._coordinator.check_commit(
            request.group_id,
            request.member_id,
            request.generation,
            request.instance_id,
            self._now_ms(),
            request.offsets,
        )

    async def _write_offsets(self, group_id: str, offsets: Mapping[TopicPartition, tuple[int, int, str]]) -> None:
        now_us = self._clock.now_ms() * 1000
        self._book.apply(
            OffsetRow(group_id, topic, partition, offset, leader_epoch, metadata, now_us)
            for (topic, partition), (offset, leader_epoch, metadata) in offsets.items()
        )

    async def _forget_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        now_us = self._clock.now_ms() * 1000
        self._book.apply(
            [OffsetRow(group_id, topic, partition, None, -1, "", now_us) for topic, partition in partitions]
        )

    async def _partitions_to_reset(
        self, group_id: str, topics: Mapping[str, Sequence[int] | None] | None
    ) -> list[TopicPartition]:
        if topics is None:
            self._require(group_id)
            return list(self._book.of(group_id))
        found = []
        for name, numbers in topics.items():
            count = len((await self._broker.topics.get(name)).state.partitions)
            found += [TopicPartition(name, number) for number in (range(count) if numbers is None else numbers)]
        return found

    async def _change_for(self, group_id: str, target: ResetTarget, key: TopicPartition) -> OffsetChange:
        marks = await self._marks(key)
        before = self._book.of(group_id).get(key)
        time_ms = time_wanted_ms(target, self._clock.now_ms())
        if time_ms is not None:
            found = await self._broker.offset_at(key.topic, key.partition, max(0, time_ms))
            marks = replace(marks, at_time=found.offset if found.offset != NO_OFFSET else None)
        marks = replace(marks, committed=before.offset if before else None)
        return OffsetChange(key.topic, key.partition, marks.committed, new_offset(target, marks))

    # -- topics ------------------------------------------------------------------------------------------------

    async def _marks(self, key: TopicPartition) -> Marks:
        topic = await self._broker.topics.get(key.topic, max_age_ms=self._broker.settings.follow_interval_ms)
        partition = topic.partition(key.partition)
        return Marks(partition.log_start_offset, partition.next_offset)

    async def _exists(self, key: TopicPartition) -> bool:
        try:
            topic = await self._broker.topics.get(key.topic)
            return key.partition < len(topic.state.partitions)
        except LakelogError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                return False
            raise

    async def _learn_topics(self, subscriptions: Iterable[Subscription]) -> None:
        """See how many partitions the topics of these subscriptions have, and let the groups know."""
        subscriptions = list(subscriptions)
        wanted = {topic for each in subscriptions for topic in each.topics}
        if any(each.pattern is not None for each in subscriptions):
            wanted.update(await self._broker.admin.list_topics())
        counts = dict(self._partition_counts)
        for name in wanted:
            counts.pop(name, None)
            if await self._exists(TopicPartition(name, 0)):
                counts[name] = len((await self._broker.topics.get(name)).state.partitions)
        await self._tell_topics(counts)

    async def _topic_changed(self, name: str, partitions: int) -> None:
        counts = {**self._partition_counts, name: partitions}
        if not partitions:
            del counts[name]
            for group_id in list(self._book.groups):
                await self._forget_offsets(group_id, [key for key in self._book.of(group_id) if key.topic == name])
        await self._tell_topics(counts)

    async def _tell_topics(self, counts: dict[str, int]) -> None:
        if counts != self._partition_counts:
            self._partition_counts = counts
            await self._membership.topics_changed(counts)


class _NoJournal:
    def record(self, facts: Sequence[Fact]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done
