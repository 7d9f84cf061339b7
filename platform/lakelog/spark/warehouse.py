"""The warehouse as Spark's driver and tasks see it: topics, straight from their tables.

Reads the tables' logs by the core's own code, without a gateway. Spark's side is not asynchronous, so everything here
waits for its answer; the event loop is this object's own.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from lakelog.broker import Broker
from lakelog.delta.store import open_store
from lakelog.errors import ErrorCode, LakelogError
from lakelog.spark.options import Address, Assign, Subscribe, SubscribePattern, Subscription
from lakelog.spark.planning import PartitionView, TopicView
from lakelog.topics import Topic


class Warehouse:
    """Use it as a context manager, or close it."""

    def __init__(self, address: Address) -> None:
        check_is_there(address)
        self._runner = asyncio.Runner()
        self._broker = Broker(open_store(address.warehouse, dict(address.storage)))

    def topics(self, subscription: Subscription) -> dict[str, TopicView]:
        """The subscribed topics that there are, as they are now. An assignment shows the assigned partitions only."""
        return self._runner.run(self._topics(subscription))

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The offset of the first record at or after a time, if there is one."""
        found = self._runner.run(self._broker.offset_at(topic, partition, time_ms))
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        self._runner.run(self._broker.close())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _topics(self, subscription: Subscription) -> dict[str, TopicView]:
        match subscription:
            case Subscribe(topics):
                names = list(topics)
            case SubscribePattern(pattern):
                names = [name for name in await self._broker.admin.folders() if re.fullmatch(pattern, name)]
            case Assign(partitions):
                names = [name for name, _ in partitions]
        found = await self._broker.admin.survey(names, max_age_ms=0)
        for name, error in found.unreadable.items():
            raise LakelogError(error.code, f"topic {name!r} can't be read: {error.message}") from error
        views = {topic.name: view_of(topic) for topic in found.topics}
        if isinstance(subscription, Assign):
            return {name: _assigned(views[name], numbers) for name, numbers in subscription.partitions if name in views}
        return views


def check_is_there(address: Address) -> None:
    """A directory that is not there is a mistake in the address. The store would create it and find nothing in it."""
    url = urlsplit(address.warehouse)
    path = unquote(url.path) if url.scheme else address.warehouse
    if url.scheme in ("", "file") and not Path(path).is_dir():
        raise LakelogError(ErrorCode.INVALID_CONFIG, f"there is no warehouse at {address.warehouse}")


def view_of(topic: Topic) -> TopicView:
    """A copy: the state goes on when the table is looked at again."""
    state = topic.state
    return TopicView(
        topic.name,
        {
            number: PartitionView(each.log_start_offset, each.next_offset, tuple(each.segments))
            for number, each in enumerate(state.partitions)
        },
        log_append_time=state.config.message_timestamp_type == "LogAppendTime",
    )


def _assigned(topic: TopicView, numbers: tuple[int, ...]) -> TopicView:
    partitions = {number: topic.partitions[number] for number in numbers if number in topic.partitions}
    return TopicView(topic.name, partitions, topic.log_append_time)
