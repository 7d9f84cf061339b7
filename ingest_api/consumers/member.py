"""A consumer as a member of its group: it joins, says that it is alive, takes generations in, commits, leaves.

Owns the member id, the generation and what may be read in it, and keeps the rules of a served member (see
`consumer_groups.coordinator`). Where the consumer reads must not be known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets
from consumer_groups.requests import Heartbeat, JoinGroup, JoinReply, LeaveGroup, Leaver
from consumer_groups.service import GroupService
from consumer_groups.state import Subscription
from lakelog.errors import ErrorCode, LakelogError

log = logging.getLogger(__name__)

# The group does not know the member any more: it was silent for longer than its session.
_DROPPED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a member is to its group."""

    group_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    instance_id: str | None = None


class Reader(Protocol):
    """Who reads what the member may read."""

    async def let_go(self, partitions: Collection[TopicPartition]) -> None:
        """Before these may not be read any more."""

    def forget(self) -> None:
        """The group had dropped the member, so others may have read on from all that it had."""


class Member:
    def __init__(self, groups: GroupService, identity: Identity) -> None:
        self.held: tuple[TopicPartition, ...] = ()
        self.subscription: Subscription | None = None
        self._groups = groups
        self._identity = identity
        self._member_id = ""
        self._generation = -1

    async def join(self, subscription: Subscription, reader: Reader) -> None:
        """Read these topics from now on; the first time this makes a member."""
        reply = await self._ask_to_join(subscription)
        if reply.error is ErrorCode.UNKNOWN_MEMBER_ID and self._member_id:
            self._drop(reader)
            reply = await self._ask_to_join(subscription)
        _require(reply.error, reply.message)
        if not self._member_id:
            self._member_id, self._generation, self.held = reply.member_id, reply.generation, reply.assignment
        self.subscription = subscription
        await self.beat(reader)

    async def _ask_to_join(self, subscription: Subscription) -> JoinReply:
        identity = self._identity
        return await self._groups.join(
            JoinGroup(
                group_id=identity.group_id,
                member_id=self._member_id,
                instance_id=identity.instance_id,
                client_id=identity.client_id,
                client_host=identity.client_host,
                session_timeout_ms=identity.session_timeout_ms,
                subscription=subscription,
            )
        )

    async def beat(self, reader: Reader) -> None:
        """Say that the member is alive, and take in what the group is now. `held` may be read afterwards.

        One that the group had dropped is back then, and its reader knows nothing of before: what it would commit
        belongs to the membership that is over, and others may be far beyond it.
        """
        while self.subscription is not None:
            identity = self._identity
            reply = await self._groups.heartbeat(
                Heartbeat(
                    group_id=identity.group_id,
                    member_id=self._member_id,
                    generation=self._generation,
                    instance_id=identity.instance_id,
                )
            )
            if reply.error in _DROPPED:
                self._drop(reader)
                return await self.join(self.subscription, reader)
            _require(reply.error)
            granted = frozenset(reply.assignment)
            lost = [partition for partition in self.held if partition not in granted]
            if reply.generation == self._generation:
                self.held = reply.assignment
                break
            if lost:
                # Still under the old generation, which these partitions belong to.
                await reader.let_go(lost)
            self.held = tuple(partition for partition in self.held if partition in granted)
            self._generation = reply.generation  # and once more: to name it is to have let go of the rest

    async def leave(self) -> None:
        if self.subscription is None:
            return
        leaver = Leaver(self._member_id, self._identity.instance_id)
        self.subscription = None
        self._forget()
        # Whoever is dropped already has left.
        await self._groups.leave(LeaveGroup(self._identity.group_id, (leaver,)))

    async def stop(self) -> None:
        """Be heard of no more. As in Kafka a static member does not leave: its place is kept until its session ends."""
        if self._identity.instance_id is None:
            await self.leave()

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]], *, skip_missing: bool) -> None:
        """Offsets with their metadata, all or none of them. Who is in no group commits for a group without members, as
        in Kafka.

        With `skip_missing` what is there no more is left out: nobody will ask for its offset, and none of the others
        must wait for it.
        """
        group_id = self._identity.group_id
        reply = await self._groups.commit_offsets(
            CommitOffsets(
                group_id=group_id,
                offsets={key: (offset, -1, metadata) for key, (offset, metadata) in offsets.items()},
                member_id=self._member_id,
                generation=self._generation,
                instance_id=self._identity.instance_id if self._member_id else None,
                all_or_none=not skip_missing,
            )
        )
        _require(reply.error)
        for (topic, partition), error in reply.refused.items():
            if not skip_missing or error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise LakelogError(error, f"offset of {topic}-{partition}: {error.meaning}")
            log.info("group %s commits nothing for %s-%d, which is gone", group_id, topic, partition)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        found = await self._groups.committed(self._identity.group_id, partitions)
        return {key: (each.offset, each.metadata) for key, each in found.items()}

    def note_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """For those who look at the group's lag."""
        if self._member_id:
            self._groups.note_positions(self._identity.group_id, self._member_id, positions)

    def next_news(self) -> asyncio.Future[None] | None:
        """Done when the next heartbeat would bring something new. Ask before you send one."""
        return self._groups.next_news(self._identity.group_id, self._member_id) if self._member_id else None

    def _drop(self, reader: Reader) -> None:
        self._forget()
        reader.forget()

    def _forget(self) -> None:
        self.held, self._member_id, self._generation = (), "", -1


def _require(error: ErrorCode, message: str = "") -> None:
    if error is not ErrorCode.NONE:
        raise LakelogError(error, message)
