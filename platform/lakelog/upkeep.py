"""What a leader does for its own tail: merge small files in tiers, write checkpoints, clean the log.

All of it in the background, after the appends that made it necessary. It is allowed to fail: what it leaves undone
is done after the next append, and nothing that was acknowledged depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakelog.delta import drafts
from lakelog.delta.parquet import SegmentFile, codec_for
from lakelog.delta.store import FileMissing, StoreRefused, StoreUnavailable
from lakelog.delta.table import OutcomeUnknown, Stale
from lakelog.errors import LakelogError
from lakelog.log.tiers import Merge, plan_merge
from lakelog.model.batch import STORED_SCHEMA
from lakelog.model.segment import Segment, segment_path
from lakelog.topics import Topic, Topics

log = logging.getLogger(__name__)
T = TypeVar("T")

CHECKPOINT_COMMITS = 100
CHECKPOINT_INTERVAL_MS = 30_000
# A log that grows faster than the interval allows for is checkpointed all the same.
CHECKPOINT_COMMITS_MOST = 1_000
CLEAN_INTERVAL_MS = 600_000


@dataclass(slots=True)
class _LogCare:
    """When a topic's log was last seen to."""

    checkpointed_ms: float = float("-inf")
    cleaned_ms: float = float("-inf")


class Upkeep:
    def __init__(self, topics: Topics, executor: Executor) -> None:
        self._topics = topics
        self._clock = topics.clock
        self._executor = executor
        self._turns = asyncio.Semaphore(topics.settings.maintenance_threads)
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._log_care: WeakKeyDictionary[Topic, _LogCare] = WeakKeyDictionary()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closing = False

    def appended(self, topic: Topic) -> None:
        """A topic has grown: look after it, unless somebody does already, who will then look once more."""
        if self._closing:
            return
        if topic.name in self._at_work:
            self._again.add(topic.name)
        elif self._is_due(topic):
            topic.users += 1
            self._at_work[topic.name] = asyncio.get_running_loop().create_task(self._look_after(topic))

    async def settle(self) -> None:
        """Wait until nothing is at work."""
        while self._at_work:
            await asyncio.wait(list(self._at_work.values()))

    async def close(self) -> None:
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        for task in self._at_work.values():
            task.cancel()
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    def _is_due(self, topic: Topic) -> bool:
        return self._next_merge(topic) is not None or self._checkpoint_due(topic)

    async def _look_after(self, topic: Topic) -> None:
        try:
            async with self._turns:
                while topic.state.exists and topic.state.fault is None:
                    self._again.discard(topic.name)
                    merge = self._next_merge(topic)
                    if merge is not None:
                        await self.merge(topic, merge)
                    if self._checkpoint_due(topic):
                        await self._checkpoint(topic)
                    if merge is None and topic.name not in self._again:
                        return
        except (StoreUnavailable, StoreRefused, OutcomeUnknown, FileMissing, LakelogError) as error:
            log.warning("upkeep of %s was put off: %s", topic.name, error)
        except Exception:
            log.exception("upkeep of %s failed", topic.name)
        finally:
            del self._at_work[topic.name]
            topic.users -= 1

    # -- merging -----------------------------------------------------------------------------------------------

    def _next_merge(self, topic: Topic) -> Merge | None:
        """Of the partitions that have grown, whoever's files they grew by. One stays among them while a merge is due,
        so what failed is tried again.
        """
        config = topic.state.config
        for number in list(topic.grown):
            merge = plan_merge(topic.state.partitions[number].segments, config.segment_bytes, config.roll_ms)
            if merge is not None:
                return merge
            topic.grown.discard(number)
        return None

    async def merge(self, topic: Topic, merge: Merge) -> None:
        """One file in the place of several neighbours, the same records in the same order."""
        table, state = topic.table, topic.state
        commit_id = drafts.new_commit_id()
        first, last = merge.segments[0], merge.segments[-1]
        path = segment_path(first.partition, first.base_offset, commit_id)
        codec = codec_for(state.config.compression_type, merged=True)
        file = SegmentFile(lambda: self._topics.store.writer(table.path(path)), codec)
        async for rows in self._rows_of(topic, merge):
            if file.hold(rows):
                await self._run(file.flush)
        size = await self._run(file.close)
        merged = Segment(
            partition=first.partition,
            base_offset=first.base_offset,
            end_offset=last.end_offset,
            records=sum(segment.records for segment in merge.segments),
            bytes=size,
            min_timestamp_us=min(segment.min_timestamp_us for segment in merge.segments),
            max_timestamp_us=max(segment.max_timestamp_us for segment in merge.segments),
            path=path,
            modified_ms=self._clock.now_ms(),
            tier=merge.tier,
            tags=drafts.carried_notes(merge.segments, state.producers),
        )
        draft = drafts.rewrite(commit_id, "MERGE TAIL", merge.segments, [merged], state, self._clock.now_ms())
        try:
            await table.commit(draft)
        except Stale:  # another process merged them, or the topic is gone
            await self._topics.store.delete([table.path(path)])
        except LakelogError:  # another writer has made the table unfit for a topic
            await self._topics.store.delete([table.path(path)])
            raise

    async def _rows_of(self, topic: Topic, merge: Merge) -> AsyncIterator[pa.RecordBatch]:
        """The records of the files, from memory where they still are there."""
        for segment in merge.segments:
            hot = topic.hot_partition(segment.partition).find(segment.base_offset)
            if hot is not None and hot.num_rows == segment.records == segment.end_offset - segment.base_offset:
                yield hot
                continue
            path = topic.table.path(segment.path)
            footer = await self._topics.reader.footer(path, segment.bytes)
            for group in footer.groups:
                rows = await self._topics.reader.uncached_rows(path, footer, group, STORED_SCHEMA.names)
                for batch in rows.to_batches():
                    yield batch

    # -- the log -----------------------------------------------------------------------------------------------

    def _checkpoint_due(self, topic: Topic) -> bool:
        commits = topic.state.version - topic.table.checkpoint_version
        if commits < CHECKPOINT_COMMITS:
            return False
        left_ms = self._care_of(topic).checkpointed_ms + CHECKPOINT_INTERVAL_MS - self._clock.monotonic_ms()
        if left_ms <= 0 or commits >= CHECKPOINT_COMMITS_MOST:
            return True
        if topic.name not in self._timers:  # the topic may fall silent, and its log is long enough to be cut
            self._timers[topic.name] = asyncio.get_running_loop().call_later(left_ms / 1000, self._wake, topic)
        return False

    def _wake(self, topic: Topic) -> None:
        self._timers.pop(topic.name, None)
        self.appended(topic)

    async def _checkpoint(self, topic: Topic) -> None:
        care, now_ms = self._care_of(topic), self._clock.monotonic_ms()
        topic.state.producers.forget_before(self._clock.now_ms() - self._topics.settings.producer_expiration_ms)
        await topic.table.checkpoint()
        care.checkpointed_ms = now_ms
        if now_ms - care.cleaned_ms >= CLEAN_INTERVAL_MS:
            config = topic.state.config
            kept_ms = max(config.delta_log_retention_ms, config.file_delete_delay_ms)
            care.cleaned_ms = now_ms
            await topic.table.clean_log(before_ms=self._clock.now_ms() - kept_ms)

    def _care_of(self, topic: Topic) -> _LogCare:
        return self._log_care.setdefault(topic, _LogCare())

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
