"""A consumer as a member of its group: it joins, says that it is alive, takes generations in, commits, leaves.

Owns the member id, the generation and what may be read in it, and keeps the rules of a served member (see
`consumer_groups.coordinator`). Where the consumer reads must not be known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets
from consumer_groups.requests import Heartbeat, JoinGroup, LeaveGroup, Leaver
from consumer_groups.service import GroupService
from consumer_groups.state import Subscription
from lakelog.errors import ErrorCode, LakelogError

# What a consumer does about partitions before it may not read them any more.
LetGo: TypeAlias = Callable[[Collection[TopicPartition]], Awaitable[None]]

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


class Member:
    def __init__(self, groups: GroupService, identity: Identity) -> None:
        self.held: tuple[TopicPartition, ...] = ()
        self.subscription: Subscription | None = None
        self._groups = groups
        self._identity = identity
        self._member_id = ""
        self._generation = -1

    async def join(self, subscription: Subscription, let_go: LetGo) -> bool:
        """Read these topics from now on; the first time this makes a member. Returns as `beat` does."""
        identity = self._identity
        reply = await self._groups.join(
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
        if reply.error is ErrorCode.UNKNOWN_MEMBER_ID and self._member_id:
            self._forget()
            await self.join(subscription, let_go)
            return False
        _require(reply.error, reply.message)
        if not self._member_id:
            self._member_id, self._generation, self.held = reply.member_id, reply.generation, reply.assignment
        self.subscription = subscription
        return await self.beat(let_go)

    async def beat(self, let_go: LetGo) -> bool:
        """Say that the member is alive, and take in what the group is now. `held` may be read afterwards.

        False if the group had dropped the member meanwhile. It is back then, and others may have read on from what
        it had.
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
                self._forget()
                await self.join(self.subscription, let_go)
                return False
            _require(reply.error)
            granted = frozenset(reply.assignment)
            lost = [partition for partition in self.held if partition not in granted]
            if reply.generation == self._generation:
                self.held = reply.assignment
                break
            if lost:
                # Still under the old generation, which these partitions belong to.
                await let_go(lost)
            self.held = tuple(partition for partition in self.held if partition in granted)
            self._generation = reply.generation  # and once more: to name it is to have let go of the rest
        return True

    async def leave(self) -> None:
        if self.subscription is None:
            return
        leaver = Leaver(self._member_id, self._identity.instance_id)
        self.held, self.subscription, self._member_id, self._generation = (), None, "", -1
        # Whoever is dropped already has left.
        await self._groups.leave(LeaveGroup(self._identity.group_id, (leaver,)))

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Offsets with their metadata. Who is in no group commits for a group without members, as in Kafka."""
        reply = await self._groups.commit_offsets(
            CommitOffsets(
                group_id=self._identity.group_id,
                offsets={key: (offset, -1, metadata) for key, (offset, metadata) in offsets.items()},
                member_id=self._member_id,
                generation=self._generation,
                instance_id=self._identity.instance_id if self._member_id else None,
            )
        )
        _require(reply.error)
        for (topic, partition), error in reply.refused.items():
            _require(error, f"offset of {topic}-{partition}: {error.meaning}")

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

    def _forget(self) -> None:
        self.held, self._member_id, self._generation = (), "", -1


def _require(error: ErrorCode, message: str = "") -> None:
    if error is not ErrorCode.NONE:
        raise LakelogError(error, message)
