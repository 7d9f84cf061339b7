"""How a read of some offsets is cut into tasks.

Pure: what the topics' tables say and the offsets to read go in; slices come out, each with the files that hold it. A
slice is told by its offsets. Its files are where they lay when it was planned, and a reader that does not find
one any more asks the table again for the same offsets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakelog.log.lookup import segments_from
from lakelog.model.segment import Segment

# One task reads about as much as one full segment: small files at the tail go together.
SLICE_BYTES = 128 * 1024 * 1024
UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers from `first` to `last`, both included."""

    first: int = -UNBOUNDED
    last: int = UNBOUNDED

    def within(self, first: int, last: int) -> Bounds:
        return Bounds(max(self.first, first), min(self.last, last))

    def overlaps(self, first: int, last: int) -> bool:
        return self.first <= last and first <= self.last

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that a query can be interested in. Without filters these are all."""

    topics: frozenset[str] | None = None
    partitions: Bounds = field(default_factory=Bounds)
    partition_numbers: frozenset[int] | None = None
    offsets: Bounds = field(default_factory=Bounds)
    times_us: Bounds = field(default_factory=Bounds)

    def partition(self, topic: str, number: int) -> bool:
        return (
            (self.topics is None or topic in self.topics)
            and number in self.partitions
            and (self.partition_numbers is None or number in self.partition_numbers)
        )


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as a version of its table has it."""

    log_start_offset: int
    high_watermark: int
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    partitions: Mapping[int, PartitionView]
    log_append_time: bool = False


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets from `start_offset` to below `end_offset` of one partition."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """As much of a segment as a task has to know."""

    path: str
    bytes: int
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Slice:
    """What one task reads: the records of a range, in the order of their offsets."""

    range: OffsetRange
    files: tuple[PlannedFile, ...]
    times_us: Bounds
    log_append_time: bool

    @property
    def bytes(self) -> float:
        return sum(_bytes_within(file, self.range) for file in self.files)


def plan(
    ranges: Sequence[OffsetRange], topics: Mapping[str, TopicView], wanted: Wanted, *, min_partitions: int = 1
) -> list[Slice]:
    """Slices in the order of partitions and offsets; at least `min_partitions` where there are offsets enough."""
    slices = [
        each
        for wide in ranges
        if wanted.partition(wide.topic, wide.partition)
        for each in _slices(_narrowed(wide, wanted.offsets), topics[wide.topic], wanted.times_us)
    ]
    return _cut(slices, min_partitions)


def files_of(segments: Sequence[Segment], start_offset: int, end_offset: int, times_us: Bounds) -> list[PlannedFile]:
    """The files that may hold records of the offsets and times, in the order of their offsets."""
    bases = [segment.base_offset for segment in segments]
    return [
        PlannedFile(segment.path, segment.bytes, segment.base_offset, segment.end_offset)
        for segment in segments_from(segments, bases, start_offset)
        if segment.base_offset < end_offset and times_us.overlaps(segment.min_timestamp_us, segment.max_timestamp_us)
    ]


def _narrowed(wide: OffsetRange, offsets: Bounds) -> OffsetRange:
    return replace(
        wide,
        start_offset=max(wide.start_offset, offsets.first),
        end_offset=min(wide.end_offset, offsets.last + 1),
    )


def _slices(wide: OffsetRange, topic: TopicView, times_us: Bounds) -> Iterator[Slice]:
    if wide.start_offset >= wide.end_offset:
        return
    segments = topic.partitions[wide.partition].segments
    held: list[PlannedFile] = []
    held_bytes = 0.0
    for file in files_of(segments, wide.start_offset, wide.end_offset, times_us):
        size = _bytes_within(file, wide)
        if held and held_bytes + size > SLICE_BYTES:
            yield _slice_of(held, wide, topic, times_us)
            held, held_bytes = [], 0.0
        held.append(file)
        held_bytes += size
    if held:
        yield _slice_of(held, wide, topic, times_us)


def _slice_of(files: Sequence[PlannedFile], wide: OffsetRange, topic: TopicView, times_us: Bounds) -> Slice:
    range_ = replace(
        wide,
        start_offset=max(wide.start_offset, files[0].base_offset),
        end_offset=min(wide.end_offset, files[-1].end_offset),
    )
    return Slice(range_, tuple(files), times_us, topic.log_append_time)


def _cut(slices: Sequence[Slice], count_min: int) -> list[Slice]:
    """Cut the largest ones, so that there are `count_min` of about the same size."""
    parts = [1] * len(slices)
    largest = [(-each.bytes, index) for index, each in enumerate(slices) if _offsets(each) > 1]
    heapq.heapify(largest)
    for _ in range(count_min - len(slices)):
        if not largest:
            break
        _, index = largest[0]
        parts[index] += 1
        if parts[index] < _offsets(slices[index]):
            heapq.heapreplace(largest, (-slices[index].bytes / parts[index], index))
        else:
            heapq.heappop(largest)
    return [piece for each, count in zip(slices, parts, strict=True) for piece in _pieces(each, count)]


def _pieces(whole: Slice, count: int) -> Iterator[Slice]:
    start, offsets = whole.range.start_offset, _offsets(whole)
    for number in range(count):
        part = replace(
            whole.range,
            start_offset=start + offsets * number // count,
            end_offset=start + offsets * (number + 1) // count,
        )
        files = tuple(file for file in whole.files if _bytes_within(file, part) > 0)
        if files:
            yield replace(whole, range=part, files=files)


def _offsets(each: Slice) -> int:
    return each.range.end_offset - each.range.start_offset


def _bytes_within(file: PlannedFile, part: OffsetRange) -> float:
    shared = min(file.end_offset, part.end_offset) - max(file.base_offset, part.start_offset)
    return file.bytes * max(0, shared) / (file.end_offset - file.base_offset)
