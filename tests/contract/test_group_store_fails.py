"""A store that fails under the coordinator: nobody is told what is not on record, and it goes on when it is back."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_groups.assignors import TopicPartition
from consumer_groups.service import GroupService
from lakelog.broker import Broker
from lakelog.delta.store import Store, StoreUnavailable, open_store
from lakelog.errors import ErrorCode, LakelogError
from tests.contract.group_members import commit_simply, joined, offsets_of

KEY = TopicPartition("orders", 0)


class BrokenForGroups:
    """A store that takes no data files of the groups' tables while it is `broken`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, path: str, data: Any) -> None:
        if self.broken and path.startswith("__consumer"):
            raise StoreUnavailable(path)
        await self._store.put(path, data)


async def test_a_write_that_fails_is_told_to_who_waits_and_the_record_is_read_again() -> None:
    store = BrokenForGroups(open_store("memory://fails"))
    async with Broker(store) as broker, GroupService(broker) as service:
        await broker.admin.create_topic("orders", 1)
        await commit_simply(service, {KEY: 1})
        member = await joined(service, "orders", group_id="members")
        store.broken = True
        with pytest.raises(LakelogError) as caught:
            await commit_simply(service, {KEY: 2})
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert caught.value.retriable
        with pytest.raises(LakelogError) as caught:
            await joined(service, "orders", group_id="members")
        assert caught.value.retriable
        store.broken = False
        assert await offsets_of(service) == {KEY: 1}
        described = await service.describe("members")
        assert [each.member_id for each in described.members] == [member.member_id]
        await commit_simply(service, {KEY: 2})
        assert await member.heartbeat() is ErrorCode.NONE
        assert await offsets_of(service) == {KEY: 2}
