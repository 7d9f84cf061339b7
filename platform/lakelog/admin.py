"""Topics as things: create, list, describe, alter, grow, empty, delete.

Each change is one commit to the topic's own table, so other processes see it like any other commit, and of two
changes at the same time one is made on top of the other or told that it came second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from lakelog.config import TopicConfig
from lakelog.delta import drafts
from lakelog.delta.state import PartitionState, TableState
from lakelog.delta.store import StoreRefused, StoreUnavailable
from lakelog.delta.table import LOG_KEPT_LEAST_MS, Draft, OutcomeUnknown, Stale, storage_error
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.model.segment import Segment
from lakelog.model.topic import (
    PartitionDescription,
    TopicDescription,
    check_not_internal,
    check_partition_count,
    check_topic_name,
    collides,
    is_internal,
)
from lakelog.topics import Topic, Topics

log = logging.getLogger(__name__)
Draftsman = Callable[[TableState], Draft]

OPENED_AT_ONCE = 32
NAMES_LOOK_INTERVAL_MS = 1_000
LISTED_AGE_MS = 1_000  # how old a topic may be in a listing
HIGH_WATERMARK = -1  # delete-records: everything there is
# What opening a folder says that holds no topic, be it that its name can't be one.
_NO_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


@dataclass(frozen=True, slots=True)
class Survey:
    """The topics under some names, open, and why others can't be had. What is no topic is in neither."""

    topics: list[Topic]
    unreadable: dict[str, LakelogError]


async def _nobody(name: str, partitions: int) -> None:
    """In the place of someone who wants to hear of changes."""


class Admin:
    """`on_partitions` hears how many partitions a topic has now that it was created or grown; 0 when it is deleted."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.on_partitions: Callable[[str, int], Awaitable[None]] = _nobody
        self._names: dict[str, str] = {}  # of topics by their ids, as they were at the last look
        self._looked_ms = float("-inf")

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicDescription:
        """Create a topic, or only say what would be created and raise what would be raised."""
        check_topic_name(name)
        check_not_internal(name)
        count = partitions if partitions is not None else self._topics.settings.num_partitions
        check_partition_count(count)
        terms = TopicConfig.parse(config or {}, on_object_store=self._topics.store.on_object_store)
        await self._refuse_collision(name)
        topic = await self._topics.find(name)
        state = topic.state
        state.require_sound()
        if state.exists:
            raise _already_exists(name)
        if state.version >= 0 and not state.is_topic:
            raise LakelogError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"{name!r} is a Delta table in this warehouse, but not a topic"
            )
        if validate_only:
            empty = (_partition(number, PartitionState()) for number in range(count))
            return TopicDescription(name, "", tuple(empty), terms, state.version, is_internal(name))
        try:
            await self._commit(topic, drafts.create(count, terms, state, self._topics.clock.now_ms()))
        except Stale:
            raise _already_exists(name) from None
        await self.on_partitions(name, count)
        return describe(await self._topics.get(name))

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics in the warehouse."""
        return [topic.name for topic in await self.all_topics(internal=internal)]

    async def describe_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """All topics in the warehouse, as they were a moment ago."""
        return [describe(topic) for topic in await self.all_topics(internal=internal)]

    async def describe_topic(self, name: str) -> TopicDescription:
        return describe(await self._topics.get(name, max_age_ms=0))

    async def name_of(self, topic_id: str) -> str:
        """The name of the topic that has this id now. A topic that is created anew under its old name has another.

        All topics of the warehouse are looked at where those that are open do not have it, but not all the time.
        """
        name = self._names.get(topic_id)
        if name is None or not await self._is(name, topic_id):
            self._names = {topic.state.table_id: topic.name for topic in await self._topics_to_name()}
            name = self._names.get(topic_id)
        if name is None or not await self._is(name, topic_id):
            raise LakelogError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
        return name

    async def _topics_to_name(self) -> Iterable[Topic]:
        now_ms = self._topics.clock.monotonic_ms()
        if now_ms - self._looked_ms < NAMES_LOOK_INTERVAL_MS:
            return self._topics
        self._looked_ms = now_ms
        return await self.all_topics(internal=True)

    async def _is(self, name: str, topic_id: str) -> bool:
        try:
            return (await self._topics.get(name)).state.table_id == topic_id
        except LakelogError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise

    async def alter_config(
        self,
        name: str,
        set: Mapping[str, str] | None = None,
        unset: Iterable[str] = (),
        *,
        validate_only: bool = False,
    ) -> TopicDescription:
        """Set some configs and take others back to their defaults; all of it or nothing."""
        unset = list(unset)
        if validate_only:
            described = await self.describe_topic(name)
            return replace(described, config=described.config.altered(set or {}, unset))

        def change(state: TableState) -> Draft:
            config = state.config.altered(set or {}, unset)
            return drafts.alter(len(state.partitions), config, state, self._topics.clock.now_ms())

        return describe(await self._change(name, change))

    async def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> TopicDescription:
        """Grow a topic to `total` partitions. Never fewer: offsets that were given out stay where they are."""
        check_partition_count(total)

        def change(state: TableState) -> Draft:
            if total <= len(state.partitions):
                raise LakelogError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {name!r} has {len(state.partitions)} partitions; only more are possible, not {total}",
                )
            return drafts.alter(total, state.config, state, self._topics.clock.now_ms())

        if validate_only:
            topic = await self._topics.get(name, max_age_ms=0)
            change(topic.state)
            return describe(topic)
        grown = await self._change(name, change)
        await self.on_partitions(name, total)
        return describe(grown)

    async def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Stop serving records below an offset per partition; returns the new log starts."""

        def change(state: TableState) -> Draft:
            starts = {p: _new_start(name, state, p, offset) for p, offset in before.items()}
            below: list[Segment] = []
            for partition, start in starts.items():
                below += (s for s in state.partitions[partition].segments if s.end_offset <= start)
            return drafts.expire("DELETE RECORDS", starts, below, state, self._topics.clock.now_ms())

        topic = await self._change(name, change)
        return {partition: topic.state.partitions[partition].log_start_offset for partition in before}

    async def delete_topic(self, name: str) -> None:
        """The topic is gone with its commit. Its files follow at once; what is left is an empty table that says so."""
        topic = await self._topics.get(name, max_age_ms=0)
        files: list[str] = []

        def change(state: TableState) -> Draft:
            files[:] = [topic.table.path(path) for path in state.live]
            return drafts.delete(state, self._topics.clock.now_ms())

        await self._change(name, change)
        await self.on_partitions(name, 0)
        try:
            await topic.table.checkpoint()
            await topic.table.clean_log(before_ms=self._topics.clock.now_ms() - LOG_KEPT_LEAST_MS)
            await topic.table.delete_removed_files()  # by the commits that are left
            await self._topics.store.delete(files)
        except (StoreUnavailable, StoreRefused, LakelogError) as error:
            log.warning("files of the deleted topic %s stay behind: %s", name, error)

    async def _change(self, name: str, draft_of: Draftsman) -> Topic:
        """Commit a change made from the newest state, and make it anew as often as another one comes first."""
        topic = await self._topics.get(name, max_age_ms=0)
        while True:
            topic.require()
            try:
                await self._commit(topic, draft_of(topic.state))
                return topic
            except Stale:
                continue

    async def _commit(self, topic: Topic, draft: Draft) -> None:
        try:
            await topic.table.commit(draft)
        except OutcomeUnknown as error:
            raise storage_error(error, "the store did not say whether the change was made") from error
        except (StoreUnavailable, StoreRefused) as error:
            raise storage_error(error, "the change could not be made") from error

    async def all_topics(self, *, internal: bool = False) -> list[Topic]:
        """All topics in the warehouse, open. What else lies there is passed over, and so is a topic that is unfit."""
        return await self._readable(await self.folders(internal=internal))

    async def folders(self, *, internal: bool = False) -> list[str]:
        """The names of the folders in the warehouse: of topics, and of what else lies there."""
        try:
            found = await self._topics.store.folders()
        except (StoreUnavailable, StoreRefused) as error:
            raise storage_error(error, "listing the warehouse") from error
        return [name for name in found if internal or not is_internal(name)]

    async def survey(self, names: Iterable[str], *, max_age_ms: float) -> Survey:
        """Open the topics among the names, as they were at most `max_age_ms` ago. One that fails stops no other."""
        turns = asyncio.Semaphore(OPENED_AT_ONCE)
        found = Survey([], {})

        async def look(name: str) -> Topic | LakelogError:
            async with turns:
                try:
                    return await self._topics.get(name, max_age_ms=max_age_ms)
                except LakelogError as error:
                    return error

        names = list(names)
        for name, outcome in zip(names, await asyncio.gather(*map(look, names)), strict=True):
            if isinstance(outcome, Topic):
                found.topics.append(outcome)
            elif outcome.code not in _NO_TOPIC:
                found.unreadable[name] = outcome
        return found

    async def _readable(self, folders: Iterable[str]) -> list[Topic]:
        found = await self.survey(folders, max_age_ms=LISTED_AGE_MS)
        for error in found.unreadable.values():
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise error
        return found.topics

    async def _refuse_collision(self, name: str) -> None:
        if "." not in name and "_" not in name:
            return
        folders = await self.folders(internal=True)
        for other in await self._readable([folder for folder in folders if collides(name, folder)]):
            raise LakelogError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} collides with {other.name!r}: '.' and '_' are the same in metric names",
            )


def describe(topic: Topic) -> TopicDescription:
    state = topic.state
    return TopicDescription(
        name=topic.name,
        topic_id=state.table_id,
        partitions=tuple(_partition(number, each) for number, each in enumerate(state.partitions)),
        config=state.config,
        version=state.version,
        internal=is_internal(topic.name),
    )


def _partition(number: int, state: PartitionState) -> PartitionDescription:
    return PartitionDescription(
        partition=number,
        log_start_offset=state.log_start_offset,
        high_watermark=state.next_offset,
        segments=len(state.segments),
        bytes=state.bytes,
        min_timestamp_ms=min((s.min_timestamp_us // 1000 for s in state.segments), default=None),
        max_timestamp_ms=max((s.max_timestamp_us // 1000 for s in state.segments), default=None),
    )


def _new_start(name: str, state: TableState, partition: int, offset: int) -> int:
    if not 0 <= partition < len(state.partitions):
        raise UnknownPartition(f"topic {name!r} has no partition {partition}")
    end = state.partitions[partition].next_offset
    if offset == HIGH_WATERMARK:
        return end
    if not 0 <= offset <= end:
        raise LakelogError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {name}-{partition}: it has 0 to {end}")
    return max(offset, state.partitions[partition].log_start_offset)


def _already_exists(name: str) -> LakelogError:
    return LakelogError(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {name!r} already")
