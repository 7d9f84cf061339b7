"""The topics that this process has open: each one's table, its hot tail, and who waits for its next commit.

Promises that a topic is opened once however many ask at the same time, and that a waiter hears of every commit, our
own or another process's. Must not know why somebody appends or reads.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.clock import Clock
from lakelog.config import ServerSettings
from lakelog.deleted_topics import DeletedTopics
from lakelog.delta.reader import SegmentReader
from lakelog.delta.state import Changes, PartitionState, TableState
from lakelog.delta.store import Store, StoreRefused, StoreUnavailable
from lakelog.delta.table import Table, storage_error
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.hot_tail import HotPartition, HotTail
from lakelog.model.topic import check_topic_name


class Topic:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.hot: dict[int, HotPartition] = {}
        self.users = 0  # paths at work on it; an idle topic may be closed to make room
        self.grown: set[int] = set()  # partitions in which a merge may be due, until somebody has looked
        self._waiters: set[asyncio.Future[None]] = set()
        self._table_id = ""
        table.on_changes = self._changed

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def state(self) -> TableState:
        return self.table.state

    def partition(self, number: int) -> PartitionState:
        self.require()
        if not 0 <= number < len(self.state.partitions):
            raise UnknownPartition(
                f"topic {self.name!r} has no partition {number}; it has 0 to {len(self.state.partitions) - 1}"
            )
        return self.state.partitions[number]

    def hot_partition(self, number: int) -> HotPartition:
        return self.hot.setdefault(number, HotPartition())

    def require(self) -> None:
        """Raise if the topic has been deleted meanwhile, or its table made unfit by another writer."""
        if not self.state.exists:
            raise unknown_topic(self.name)
        self.state.require_sound()

    def next_change(self) -> asyncio.Future[None]:
        """Done when the next commit is seen. Ask for it before looking at the state, or a commit may slip between."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def _changed(self, changes: Changes) -> None:
        # Memory must not serve what another writer took out of the table.
        if self.state.table_id != self._table_id or changes.records_removed:
            self._table_id = self.state.table_id
            self.hot = {}
        if changes.metadata:  # other sizes of segments, or other partitions
            self.grown = set(range(len(self.state.partitions)))
        self.grown.update(changes.appended)
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)


def unknown_topic(name: str) -> LakelogError:
    return LakelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (StoreUnavailable, StoreRefused) as error:
        raise storage_error(error, f"reading topic {name!r}") from error


class Topics:
    def __init__(
        self, store: Store, clock: Clock, settings: ServerSettings, reader: SegmentReader, hot_tail: HotTail
    ) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.reader = reader
        self.hot_tail = hot_tail
        self._open: OrderedDict[str, Topic] = OrderedDict()
        self._opening: dict[str, asyncio.Task[Topic]] = {}
        self._deleted = DeletedTopics(store, clock)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._open.values()))

    async def get(self, name: str, *, max_age_ms: float | None = None) -> Topic:
        """An existing topic, as it was at most `max_age_ms` ago; None takes what is known. Raises if there is none."""
        topic = self._open.get(name)
        if topic is None:
            with _reading(name):
                if await self._deleted.has(name, max_age_ms=max_age_ms or 0):
                    raise unknown_topic(name)
            topic = await self.find(name)
        elif max_age_ms is not None:
            await self._refresh(topic, max_age_ms)
        if not topic.state.exists or topic.state.fault is not None:
            # It may have been created or mended meanwhile by another process.
            await self._refresh(topic, self.settings.follow_interval_ms)
        if not topic.state.exists:
            if topic.state.is_topic:
                self._deleted.remember(topic.table)
            if not topic.users:
                self._open.pop(name, None)
            raise unknown_topic(name)
        topic = self._open.setdefault(name, topic)
        self._open.move_to_end(name)
        topic.require()
        return topic

    async def find(self, name: str) -> Topic:
        """Whatever is there under a name, be it a topic, a deleted one, another table or nothing yet; up to date."""
        check_topic_name(name)
        topic = self._open.get(name)
        if topic is not None:
            await self._refresh(topic, 0)
            return topic
        opening = self._opening.get(name)
        joined = opening is not None
        if opening is None:
            opening = asyncio.ensure_future(self._load(name))
            self._opening[name] = opening
            opening.add_done_callback(lambda _: self._opening.pop(name, None))
        # One caller's cancellation must not take the topic from the others.
        topic = await asyncio.shield(opening)
        if joined:  # it was begun before we asked
            await self._refresh(topic, 0)
        return topic

    async def _load(self, name: str) -> Topic:
        table = Table(self.store, name, self.clock, commit_timeout_ms=self.settings.commit_timeout_ms)
        topic = Topic(table)
        await self._refresh(topic, 0)
        if topic.state.exists:
            self._open[name] = topic
            self._make_room()
        return topic

    async def _refresh(self, topic: Topic, max_age_ms: float) -> None:
        with _reading(topic.name):
            await topic.table.refresh(max_age_ms=max_age_ms)

    def _make_room(self) -> None:
        excess = len(self._open) - self.settings.open_topics_max
        for name, topic in list(self._open.items()):
            if excess <= 0:
                return
            if not topic.users:
                del self._open[name]
                excess -= 1
