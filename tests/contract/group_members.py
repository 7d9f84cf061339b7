"""Members of groups, as a test plays them, and services that it opens and leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets
from consumer_groups.requests import Heartbeat, JoinGroup, LeaveGroup, Leaver
from consumer_groups.service import GroupService
from consumer_groups.state import Subscription
from lakelog.errors import ErrorCode

GROUP = "readers"


@dataclass
class ServedMember:
    """A member that the coordinator serves, and that keeps the rules: it takes in what a heartbeat brings."""

    service: GroupService
    member_id: str
    generation: int
    assignment: tuple[TopicPartition, ...]
    group_id: str = GROUP

    async def heartbeat(self) -> ErrorCode:
        """As often as there is something new."""
        while True:
            beat = Heartbeat(group_id=self.group_id, member_id=self.member_id, generation=self.generation)
            reply = await self.service.heartbeat(beat)
            if reply.error is not ErrorCode.NONE:
                return reply.error
            news = reply.generation != self.generation
            self.generation, self.assignment = reply.generation, reply.assignment
            if not news:
                return ErrorCode.NONE

    async def commit(self, offsets: Mapping[TopicPartition, int], *, generation: int | None = None) -> ErrorCode:
        reply = await self.service.commit_offsets(
            CommitOffsets(
                group_id=self.group_id,
                member_id=self.member_id,
                generation=self.generation if generation is None else generation,
                offsets={key: (offset, -1, "") for key, offset in offsets.items()},
            )
        )
        assert not reply.refused
        return reply.error

    async def leave(self) -> None:
        reply = await self.service.leave(LeaveGroup(self.group_id, (Leaver(self.member_id),)))
        assert reply.errors == (ErrorCode.NONE,)


async def joined(
    service: GroupService,
    *topics: str,
    group_id: str = GROUP,
    pattern: str | None = None,
    instance_id: str | None = None,
) -> ServedMember:
    reply = await service.join(
        JoinGroup(group_id=group_id, instance_id=instance_id, subscription=Subscription(topics, pattern))
    )
    assert reply.error is ErrorCode.NONE, reply
    return ServedMember(service, reply.member_id, reply.generation, reply.assignment, group_id)


async def settle(*members: ServedMember) -> None:
    """Let everyone hear of the newest generation, and pass on what they let go of."""
    for _ in range(2):
        for member in members:
            assert await member.heartbeat() is ErrorCode.NONE


async def commit_simply(
    service: GroupService, offsets: Mapping[TopicPartition, int], *, group_id: str = GROUP, metadata: str = ""
) -> None:
    """Commit for a group that has no members, as a consumer without a group protocol does."""
    rows = {key: (offset, 0, metadata) for key, offset in offsets.items()}
    reply = await service.commit_offsets(CommitOffsets(group_id=group_id, offsets=rows))
    assert (reply.error, dict(reply.refused)) == (ErrorCode.NONE, {})


async def offsets_of(service: GroupService, group_id: str = GROUP) -> dict[TopicPartition, int]:
    return {key: each.offset for key, each in (await service.committed(group_id)).items()}
