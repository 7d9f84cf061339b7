"""Which offsets a read covers, given what the topics have: the decisions of Spark's Kafka source.

Pure. Records that were to be read and are not there any more are data loss: an error, or with failOnDataLoss=false a
gap that is passed over. Offsets that compaction took are not: their records were superseded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakelog.errors import ErrorCode, LakelogError
from lakelog.spark.options import Assign, SourceOptions, Subscribe, SubscribePattern
from lakelog.spark.planning import OffsetRange, PartitionView, TopicView
from lakelog.spark.positions import Offsets, Position, check_covers, resolve

OffsetAt = Callable[[str, int, int], int | None]


def data_loss(reason: str) -> LakelogError:
    return LakelogError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{reason}. Records may have been lost: retention, delete-records or the end of the topic was faster than this "
        "query. Set failOnDataLoss to false to go on without them",
    )


def require_topics(options: SourceOptions, topics: Mapping[str, TopicView]) -> None:
    """Topics and partitions that are named have to be there when a read begins. A pattern may match none."""
    match options.subscription:
        case Subscribe(names):
            missing = [name for name in names if name not in topics]
        case Assign(partitions):
            missing = [
                f"{name}-{number}"
                for name, numbers in partitions
                for number in numbers
                if name not in topics or number not in topics[name].partitions
            ]
        case SubscribePattern():
            missing = []
    if missing:
        raise LakelogError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no {missing[0]} in the warehouse {options.address.warehouse}; create it before it is read",
        )


def resolved(
    position: Position,
    topics: Mapping[str, TopicView],
    offset_at: OffsetAt,
    option: str,
    *,
    latest_when_no_record: bool,
) -> Offsets:
    """The offset of a position in every partition."""
    check_covers(position, {name: frozenset(topic.partitions) for name, topic in topics.items()}, option)

    def offset(topic: str, number: int, partition: PartitionView) -> int:
        return resolve(
            position,
            topic,
            number,
            log_start_offset=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            offset_at=lambda time_ms: offset_at(topic, number, time_ms),
            when_no_record=partition.high_watermark if latest_when_no_record else None,
        )

    return {
        name: {number: offset(name, number, each) for number, each in topic.partitions.items()}
        for name, topic in topics.items()
    }


def ends(position: Position, topics: Mapping[str, TopicView], offset_at: OffsetAt) -> Offsets:
    """Where a read ends that begins now. Times are looked up later than the topics were, and what has come meanwhile
    is not part of it.
    """
    seen = high_watermarks(topics)

    def offset_before(topic: str, number: int, time_ms: int) -> int | None:
        offset = offset_at(topic, number, time_ms)
        return offset if offset is None or offset < seen[topic][number] else None

    return resolved(position, topics, offset_before, "endingOffsets", latest_when_no_record=True)


def high_watermarks(topics: Mapping[str, TopicView]) -> Offsets:
    return {
        name: {number: each.high_watermark for number, each in topic.partitions.items()}
        for name, topic in topics.items()
    }


def log_starts(topics: Mapping[str, TopicView]) -> Offsets:
    return {
        name: {number: each.log_start_offset for number, each in topic.partitions.items()}
        for name, topic in topics.items()
    }


def check_not_behind(start: Offsets, latest: Offsets) -> None:
    """A topic that has fewer records than a stream has read of it was deleted, and perhaps created anew."""
    for topic, partitions in start.items():
        for number, offset in partitions.items():
            end = latest.get(topic, {}).get(number)
            if end is None or end < offset:
                now = "is gone" if end is None else f"ends at offset {end} now"
                raise data_loss(f"{topic}-{number} {now}, and the stream has read up to {offset}")


def between(
    start: Offsets, end: Offsets, topics: Mapping[str, TopicView], *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """What is to be read from one position to another, as far as the topics have it.

    A partition that `start` does not know is new and is read from its beginning. One that is behind its start already
    has nothing to read: the start was asked for anew, after a first batch that did not get through.
    """
    ranges: list[OffsetRange] = []
    for topic, partitions in sorted(end.items()):
        for number, last in sorted(partitions.items()):
            first = start.get(topic, {}).get(number, 0)
            if first >= last:
                continue
            view = topics[topic].partitions.get(number) if topic in topics else None
            if view is None:
                if fail_on_data_loss:
                    raise data_loss(f"{topic}-{number} is gone, and offsets {first} to {last} were to be read")
                continue
            if fail_on_data_loss and (first < view.log_start_offset or last > view.high_watermark):
                raise data_loss(
                    f"{topic}-{number} has offsets {view.log_start_offset} to {view.high_watermark}, "
                    f"and {first} to {last} were to be read"
                )
            first, last = max(first, view.log_start_offset), min(last, view.high_watermark)
            if first < last:
                ranges.append(OffsetRange(topic, number, first, last))
    return ranges
