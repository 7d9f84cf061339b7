"""A coordinator in a process of its own, that commits offsets as fast as it can and says which ones are durable.

Run as `python -m tests.e2e.committer_process WAREHOUSE TOPIC GROUPS`. Each line that it prints is a commit that was
acknowledged, as GROUP OFFSET. The group `members` has one of Kafka's protocol, who stays.
"""

from __future__ import annotations

import asyncio
import sys

from consumer_groups.assignors import TopicPartition
from consumer_groups.offsets import CommitOffsets
from consumer_groups.requests import JoinGroup, SyncGroup
from consumer_groups.service import GroupService
from consumer_groups.state import Protocol
from consumer_groups.subscription_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    encode_assignment,
    encode_subscription,
)
from lakelog.broker import Broker
from lakelog.errors import ErrorCode

MEMBERS = "members"


async def commit_for_ever(service: GroupService, group: str, key: TopicPartition) -> None:
    committed = await service.committed(group, [key])
    offset = committed[key].offset if key in committed else 0
    while True:
        offset += 1
        reply = await service.commit_offsets(CommitOffsets(group_id=group, offsets={key: (offset, -1, str(offset))}))
        assert reply.error is ErrorCode.NONE
        sys.stdout.write(f"{group} {offset}\n")
        sys.stdout.flush()


async def main(warehouse: str, topic: str, groups: int) -> None:
    async with Broker.open(warehouse) as broker, GroupService(broker) as service:
        if not (await service.describe(MEMBERS)).members:
            protocols = (Protocol("range", encode_subscription(ConsumerSubscription(topics=(topic,)), 1)),)
            joined = await service.join(JoinGroup(group_id=MEMBERS, protocols=protocols))
            everything = ConsumerAssignment(partitions=tuple(TopicPartition(topic, number) for number in range(4)))
            given = ((joined.member_id, encode_assignment(everything, 1)),)
            await service.sync(
                SyncGroup(group_id=MEMBERS, member_id=joined.member_id, generation=joined.generation, assignments=given)
            )
        key = TopicPartition(topic, 0)
        await asyncio.gather(*(commit_for_ever(service, f"group-{number}", key) for number in range(groups)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
