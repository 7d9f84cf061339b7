"""The way out: records from any offset, of several partitions at once, up to the high watermark.

The tail comes from memory, older records by row groups. A reader that has everything waits for the next commit and
not for a timer; commits of other processes are looked for while somebody waits. No record is touched one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from math import inf

import numpy as np
import pyarrow as pa

from lakelog.delta.reader import enough_for, offsets_of
from lakelog.delta.store import FileMissing, StoreRefused, StoreUnavailable
from lakelog.delta.table import storage_error
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.lookup import segments_from, segments_since
from lakelog.model.batch import RECORD_OVERHEAD_BYTES, STORED_SCHEMA, Int64s, payload_bytes, record_bytes
from lakelog.model.segment import Segment
from lakelog.observer import Observer
from lakelog.topics import Topic, Topics

ALL_COLUMNS = tuple(STORED_SCHEMA.names)
# With very many waiting readers the looks for foreign commits are spread out: at most this many a second in all.
LOOKS_PER_SECOND = 2_000
# A fetch may name the partitions of many topics. After so many the others get their turn.
READS_IN_A_ROW_MOST = 100


@dataclass(frozen=True, slots=True)
class FetchFrom:
    topic: str
    partition: int
    offset: int
    max_bytes: int | None = None


@dataclass(slots=True)
class Fetched:
    """Records of one partition, or the error in their place. `next_offset` is where to go on."""

    topic: str
    partition: int
    rows: pa.Table
    next_offset: int
    high_watermark: int = -1
    log_start_offset: int = -1
    size_bytes: int = 0
    table_id: str = ""
    error: LakelogError | None = None


class Position(Enum):
    """Places in a partition that are not named by a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """An offset and its record's time; -1 and -1 when no record is as late as was asked."""

    offset: int
    timestamp_ms: int = -1


@dataclass(slots=True)
class _Reply:
    """What one partition's reply has gathered so far. Its first record may be larger than the partition's limit."""

    position: int
    bytes_left: int
    first_bytes_max: float
    pieces: list[pa.Table] = field(default_factory=list)
    size_bytes: int = 0

    def take(self, rows: pa.Table) -> None:
        """Add rows up to the limit."""
        size = payload_bytes(rows) + RECORD_OVERHEAD_BYTES * rows.num_rows
        if size > self.bytes_left:
            running = np.cumsum(record_bytes(rows) + RECORD_OVERHEAD_BYTES)
            count = int(np.searchsorted(running, self.bytes_left, side="right"))
            if count == 0 and not self.pieces and running[0] <= self.first_bytes_max:
                count = 1
            rows, size = rows.slice(0, count), int(running[count - 1]) if count else 0
            self.bytes_left = 0
        if rows.num_rows:
            self.pieces.append(rows)
            self.size_bytes += size
            self.bytes_left -= size
            self.position = int(rows.column("offset")[-1].as_py()) + 1


class FetchPath:
    def __init__(self, topics: Topics, observer: Observer) -> None:
        self._topics = topics
        self._observer = observer
        self._settings = topics.settings
        self._clock = topics.clock
        self._waiting = 0

    async def fetch(
        self,
        requests: Sequence[FetchFrom],
        *,
        max_bytes: int | None = None,
        min_bytes: int = 1,
        max_wait_ms: float = 0,
        columns: Sequence[str] | None = None,
        at_least_one: bool = True,
    ) -> list[Fetched]:
        """One reply per request, in their order. Waits up to `max_wait_ms` for `min_bytes` in all; an error comes at
        once, and so does a reply that a limit has cut short. The first record comes whatever its size, unless the
        caller goes on from an earlier fetch and has `at_least_one` already.
        """
        if not requests:
            return []
        names = _projection(columns)
        limit = max_bytes if max_bytes is not None else self._settings.fetch_max_bytes
        deadline_ms = self._clock.monotonic_ms() + max_wait_ms
        requests = [self._limited(request) for request in requests]
        replies = await self._read(requests, limit, names, at_least_one=at_least_one)
        while not enough(replies, min_bytes):
            places, left_ms = behind(requests, replies), deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or not await self.wait_past(places, left_ms):
                break
            size = size_of(replies)
            more = await self._read(places, limit - size, names, at_least_one=at_least_one and not size)
            replies = joined(replies, more)
        for reply in replies:
            self._observer.fetched(reply.topic, records=reply.rows.num_rows, size_bytes=reply.size_bytes)
        return replies

    def _limited(self, request: FetchFrom) -> FetchFrom:
        if request.max_bytes is not None:
            return request
        return replace(request, max_bytes=self._settings.fetch_partition_max_bytes)

    async def wait_past(self, places: Sequence[FetchFrom], max_wait_ms: float) -> bool:
        """Wait until one of the partitions does not end any more at the offset that is named of it; whether there is
        anything to read in time, or to be told. Reads no records.
        """
        deadline_ms = self._clock.monotonic_ms() + max_wait_ms
        while True:
            topics = await self._topics_of(places, self._settings.follow_interval_ms)
            changes = [topic.next_change() for topic in topics.values()]
            try:
                if not all(each.topic in topics and _ends_at(topics[each.topic], each) for each in places):
                    return True
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    return False
                await self._wait(changes, left_ms)
            finally:
                for change in changes:
                    change.cancel()

    async def offset_at(self, topic_name: str, partition: int, at: Position | int) -> OffsetAt:
        """Where a partition begins, ends, has its latest time, or the first record at or after a time in ms."""
        topic = await self._topics.get(topic_name, max_age_ms=self._settings.follow_interval_ms)
        state = topic.partition(partition)
        if at is Position.EARLIEST:
            return OffsetAt(state.log_start_offset)
        if at is Position.LATEST:
            return OffsetAt(state.next_offset)
        while True:
            try:
                if at is Position.MAX_TIMESTAMP:
                    return await self._latest(topic, partition)
                assert isinstance(at, int)
                return await self._first_since(topic, partition, at * 1000)
            except _Replaced:
                continue

    async def _topics_of(self, requests: Sequence[FetchFrom], max_age_ms: float) -> dict[str, Topic]:
        found: dict[str, Topic] = {}
        for name in dict.fromkeys(request.topic for request in requests):
            try:
                found[name] = await self._topics.get(name, max_age_ms=max_age_ms)
            except LakelogError:
                continue  # each of its partitions will say so
        return found

    async def _wait(self, changes: Sequence[asyncio.Future[None]], left_ms: float) -> None:
        """Until one of the topics changes here, or it is time to look whether it has changed elsewhere."""
        self._waiting += 1
        look_ms = max(self._settings.follow_interval_ms, 1000 * self._waiting / LOOKS_PER_SECOND)
        try:
            timeout = min(left_ms, look_ms) / 1000
            if changes:
                await asyncio.wait(changes, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            else:  # the topic came to be between our look at it and our read of it
                await asyncio.sleep(timeout)
        finally:
            self._waiting -= 1

    async def _read(
        self, requests: Sequence[FetchFrom], limit: int, names: tuple[str, ...], *, at_least_one: bool
    ) -> list[Fetched]:
        """What there is now, as far as the limit goes."""
        left = max(0, limit)
        first_bytes_max = inf if at_least_one else left
        replies: list[Fetched] = []
        for number, request in enumerate(requests, start=1):
            if number % READS_IN_A_ROW_MOST == 0:
                await asyncio.sleep(0)
            try:
                reply = await self._read_one(request, left, first_bytes_max, names)
            except LakelogError as error:
                reply = Fetched(request.topic, request.partition, _empty(names), request.offset, error=error)
            left = max(0, left - reply.size_bytes)
            if reply.size_bytes:
                first_bytes_max = left
            replies.append(reply)
        return replies

    async def _read_one(
        self, request: FetchFrom, limit: int, first_bytes_max: float, names: tuple[str, ...]
    ) -> Fetched:
        topic = await self._topics.get(request.topic, max_age_ms=self._settings.follow_interval_ms)
        if not topic.state.reaches(request.partition, request.offset):
            # Nobody is refused on what the table said a moment ago: another process may have gone further.
            topic = await self._topics.get(request.topic, max_age_ms=0)
        state = topic.partition(request.partition)
        if not state.log_start_offset <= request.offset <= state.next_offset:
            raise LakelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {request.offset} of {request.topic}-{request.partition}: "
                f"it serves {state.log_start_offset} to {state.next_offset}",
            )
        at_least = 1 if first_bytes_max == inf else 0
        reply = _Reply(request.offset, max(at_least, min(limit, request.max_bytes or 0)), first_bytes_max)
        end_offset = state.next_offset
        if reply.bytes_left > 0 and reply.position < end_offset:
            await self._fill(topic, request.partition, reply, end_offset, names)
        rows = pa.concat_tables(reply.pieces).select(names) if reply.pieces else _empty(names)
        # Nothing left below the end although there was room: the rest was compacted away.
        if reply.bytes_left > 0 and reply.position < end_offset:
            reply.position = end_offset
        return Fetched(
            request.topic,
            request.partition,
            rows,
            reply.position,
            high_watermark=state.next_offset,
            log_start_offset=state.log_start_offset,
            size_bytes=reply.size_bytes,
            table_id=topic.state.table_id,
        )

    async def _fill(self, topic: Topic, partition: int, reply: _Reply, end_offset: int, names: tuple[str, ...]) -> None:
        hot = topic.hot_partition(partition)
        # Positions need the offsets, also where the caller does not ask for them.
        columns = names if "offset" in names else ("offset", *names)
        while reply.bytes_left > 0 and reply.position < end_offset:
            # Memory still has what compaction took away, and the table says what is left.
            batch = hot.find(reply.position) if reply.position >= topic.state.cleaned_up_to(partition) else None
            self._observer.read(from_memory=batch is not None)
            if batch is not None:
                reply.take(pa.Table.from_batches([batch]).select(columns))
                continue
            state = topic.partition(partition)
            segment = next(segments_from(state.segments, state.bases, reply.position), None)
            if segment is None or segment.base_offset >= end_offset:
                return
            with suppress(_Replaced):
                async with self._reading(topic, segment):
                    await self._read_segment(topic, segment, reply, columns)

    @asynccontextmanager
    async def _reading(self, topic: Topic, segment: Segment) -> AsyncIterator[None]:
        """A file that is gone was replaced and vacuumed since we looked, unless the table still names it."""
        try:
            yield
        except FileMissing as error:
            await self._topics.get(topic.name, max_age_ms=0)
            if segment.path in topic.state.live:
                raise storage_error(error, "a segment that the table names is not there") from error
            raise _Replaced from error
        except (StoreUnavailable, StoreRefused) as error:
            raise storage_error(error, "reading a segment") from error

    async def _read_segment(self, topic: Topic, segment: Segment, reply: _Reply, columns: tuple[str, ...]) -> None:
        """The rows of one file from the reply's position on, by as many row groups as it has room for."""
        reader, path = self._topics.reader, topic.table.path(segment.path)
        footer = await reader.footer(path, segment.bytes)
        wanted = [group for group in footer.groups if group.last_offset >= reply.position]
        first = enough_for(wanted, reply.bytes_left)
        ahead = wanted[first : 2 * first]
        if len(ahead) < first:
            self._begin_next(topic, segment, columns, reply.bytes_left)
        for some in (wanted[:first], *([group] for group in wanted[first:])):
            for rows in await reader.rows_of(path, footer, some, columns, ahead):
                offsets = offsets_of(rows)
                skipped = int(np.searchsorted(offsets, reply.position))
                reply.take(rows.slice(skipped) if skipped else rows)
                if reply.bytes_left <= 0:
                    return
        reply.position = max(reply.position, segment.end_offset)

    def _begin_next(self, topic: Topic, segment: Segment, columns: tuple[str, ...], bytes_wanted: int) -> None:
        """Whoever reads a file to its end goes on with the one after it, unless that is in memory."""
        state = topic.partition(segment.partition)
        following = next(segments_from(state.segments, state.bases, segment.end_offset), None)
        if following is None or topic.hot_partition(segment.partition).find(following.base_offset) is not None:
            return
        self._topics.reader.read_ahead(topic.table.path(following.path), following.bytes, columns, bytes_wanted)

    async def _first_since(self, topic: Topic, partition: int, timestamp_us: int) -> OffsetAt:
        for segment in segments_since(list(topic.partition(partition).segments), timestamp_us):
            async for offsets, times in self._times(topic, partition, segment, timestamp_us):
                late = np.flatnonzero(times >= timestamp_us)
                if len(late):
                    return OffsetAt(int(offsets[late[0]]), int(times[late[0]]) // 1000)
        return OffsetAt(-1)

    async def _latest(self, topic: Topic, partition: int) -> OffsetAt:
        """The first of the records with the latest time. What a segment says of its times may be of deleted records."""
        found = OffsetAt(-1)
        latest_first = sorted(topic.partition(partition).segments, key=lambda segment: -segment.max_timestamp_us)
        for segment in latest_first:
            if segment.max_timestamp_us // 1000 <= found.timestamp_ms:
                break
            async for offsets, times in self._times(topic, partition, segment, (found.timestamp_ms + 1) * 1000):
                latest = int(np.argmax(times))
                if times[latest] // 1000 > found.timestamp_ms:
                    found = OffsetAt(int(offsets[latest]), int(times[latest]) // 1000)
        return found

    async def _times(
        self, topic: Topic, partition: int, segment: Segment, since_us: int
    ) -> AsyncIterator[tuple[Int64s, Int64s]]:
        """The offsets and times of a segment's records, by row groups that reach as late as `since_us`."""
        reader, path = self._topics.reader, topic.table.path(segment.path)
        start_offset = topic.partition(partition).log_start_offset
        async with self._reading(topic, segment):
            footer = await reader.footer(path, segment.bytes)
        for group in footer.groups:
            if group.max_timestamp_us < since_us or group.last_offset < start_offset:
                continue
            async with self._reading(topic, segment):
                rows = await reader.rows(path, footer, group, ("offset", "timestamp"))
            offsets = offsets_of(rows)
            served = int(np.searchsorted(offsets, start_offset))
            yield offsets[served:], rows.column("timestamp").cast(pa.int64()).to_numpy()[served:]


class _Replaced(Exception):
    """The segment is no longer in the table: look again."""


def _ends_at(topic: Topic, place: FetchFrom) -> bool:
    partitions = topic.state.partitions
    return place.partition < len(partitions) and partitions[place.partition].next_offset == place.offset


def enough(replies: Sequence[Fetched], min_bytes: int) -> bool:
    """Whether there is no reason to wait: the bytes are there, or an error, or a limit has cut a reply short."""
    return size_of(replies) >= min_bytes or any(
        reply.error is not None or reply.next_offset < reply.high_watermark for reply in replies
    )


def size_of(replies: Sequence[Fetched]) -> int:
    return sum(reply.size_bytes for reply in replies)


def behind(requests: Sequence[FetchFrom], replies: Sequence[Fetched]) -> list[FetchFrom]:
    """Where a fetch goes on that wants more than these replies, with what its limits leave of it."""
    return [
        replace(request, offset=reply.next_offset, max_bytes=max(0, (request.max_bytes or 0) - reply.size_bytes))
        for request, reply in zip(requests, replies, strict=True)
    ]


def joined(first: Sequence[Fetched], then: Sequence[Fetched]) -> list[Fetched]:
    """The replies to a fetch, and to one that went on from where they ended, as those of one fetch. Records of what
    is gone meanwhile, or can't be read, are not given out.
    """
    return [_as_one(*pair) for pair in zip(first, then, strict=True)]


def _as_one(first: Fetched, then: Fetched) -> Fetched:
    if then.error is not None or not first.rows.num_rows:
        return then
    if then.table_id != first.table_id:
        error = LakelogError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {first.topic!r} was deleted while it was read, and another one made under its name",
        )
        return Fetched(first.topic, first.partition, then.rows.slice(0, 0), then.next_offset, error=error)
    rows = pa.concat_tables((first.rows, then.rows)) if then.rows.num_rows else first.rows
    return replace(then, rows=rows, size_bytes=first.size_bytes + then.size_bytes)


def _projection(columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return ALL_COLUMNS
    unknown = [name for name in columns if name not in ALL_COLUMNS]
    if unknown:
        raise LakelogError(
            ErrorCode.INVALID_REQUEST, f"no column {unknown[0]!r}; records have {', '.join(ALL_COLUMNS)}"
        )
    return tuple(columns)


@lru_cache(maxsize=64)
def _empty(names: tuple[str, ...]) -> pa.Table:
    return STORED_SCHEMA.empty_table().select(names)
