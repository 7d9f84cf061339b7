"""One process's door to a warehouse: the paths in and out, topics, and upkeep, wired together.

Everything that stands on the log (the gateway, the coordinator, the command line) goes through a Broker and nothing
reaches around it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from lakelog.admin import Admin
from lakelog.clock import Clock, SystemClock
from lakelog.config import ServerSettings
from lakelog.delta.reader import SegmentReader
from lakelog.delta.store import Store, open_store
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.fetch import FetchPath
from lakelog.hot_tail import HotTail
from lakelog.log.producers import ProducerBatch
from lakelog.log.stamp import Appended
from lakelog.model.batch import AnyRecords
from lakelog.observer import Observer
from lakelog.produce import Acks, ProducePath
from lakelog.topics import Topics
from lakelog.upkeep import Upkeep

DRAIN_TIMEOUT_MS = 30_000


class Broker:
    """Use it as an async context manager, inside one event loop.

    `admin` changes topics; `fetch` and `offset_at` of `fetch_path` read; `append` writes; `compute` does work that
    takes long where it holds nobody up.
    """

    def __init__(
        self,
        store: Store,
        settings: ServerSettings | None = None,
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.settings = settings or ServerSettings()
        self.store = store
        self.clock = clock or SystemClock()
        encode_threads = self.settings.encode_threads or os.cpu_count() or 2
        compute = ThreadPoolExecutor(encode_threads, thread_name_prefix="lakelog-encode")
        maintenance = ThreadPoolExecutor(self.settings.maintenance_threads, thread_name_prefix="lakelog-upkeep")
        self._executors = (compute, maintenance)
        self.hot_tail = HotTail(self.settings.hot_tail_bytes_max)
        self.reader = SegmentReader(
            store, compute, self.settings.read_cache_bytes_max, self.settings.footer_cache_bytes_max
        )
        self.topics = Topics(store, self.clock, self.settings, self.reader, self.hot_tail)
        self.admin = Admin(self.topics)
        self.upkeep = Upkeep(self.topics, maintenance)
        observer = observer or Observer()
        self.produce_path = ProducePath(self.topics, compute, encode_threads, self.upkeep.appended, observer)
        self.fetch_path = FetchPath(self.topics, observer)
        self.compute = self.produce_path.run
        self.fetch = self.fetch_path.fetch
        self.offset_at = self.fetch_path.offset_at

    @classmethod
    def open(
        cls,
        url: str,
        settings: ServerSettings | None = None,
        options: Mapping[str, str] | None = None,
        *,
        observer: Observer | None = None,
    ) -> Self:
        """A broker on the warehouse at a URL; see `lakelog.delta.store.open_store` for what a URL may be."""
        settings = settings or ServerSettings()
        return cls(open_store(url, options, fsync=settings.fsync), settings, observer=observer)

    async def append(
        self,
        topic: str,
        records: AnyRecords,
        *,
        acks: Acks = Acks.ALL,
        producer: ProducerBatch | None = None,
        expected_offsets: Mapping[int, int] | None = None,
    ) -> Appended | None:
        """Append, and create the topic first if it is not there and the settings say so."""
        path = self.produce_path
        try:
            return await path.append(topic, records, acks=acks, producer=producer, expected_offsets=expected_offsets)
        except LakelogError as error:
            if not self._may_create(error):
                raise
        try:
            await self.admin.create_topic(topic)
        except LakelogError as error:
            # Another request was faster: as good, unless what is there is somebody else's table.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not (await self.topics.find(topic)).state.exists:
                raise
        return await path.append(topic, records, acks=acks, producer=producer, expected_offsets=expected_offsets)

    def _may_create(self, error: LakelogError) -> bool:
        unknown_topic = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not isinstance(error, UnknownPartition)
        return self.settings.auto_create_topics_enable and unknown_topic

    async def close(self, timeout_ms: float = DRAIN_TIMEOUT_MS) -> None:
        """Commit what was taken in, answer it, stop."""
        await self.produce_path.close(timeout_ms)
        await self.upkeep.close()
        for executor in self._executors:
            executor.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
