"""Idempotent producers: what each one wrote last, and whether a batch is new, a repetition or out of order.

A producer numbers its records. The numbers run per stream: per partition, as Kafka's clients count, or over a whole
topic (TOPIC_STREAM), as an HTTP request that spreads over partitions does. The last five batches of a stream are
remembered, so a repetition answers with the offsets that it got the first time.

What is remembered travels with the data: each batch is noted in the tags of the file that holds it, a merge carries the
notes on, and opening a table reads them back. When records go, the notes of their producers move to the table's
properties in the same commit, so no note is ever in two places that could disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from lakelog.errors import ErrorCode, LakelogError

TOPIC_STREAM = -1
BATCHES_REMEMBERED = 5
# Per topic. Beyond it the streams that have been silent longest are forgotten first.
STREAMS_MAX = 20_000
_SEQUENCES = 1 << 31


class ProducerBatch(msgspec.Struct, frozen=True):
    """What a request says of itself: who sends it and where it stands in the sender's own count."""

    producer_id: int
    epoch: int
    sequence: int
    stream: int = TOPIC_STREAM


class OffsetRange(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    base_offset: int
    count: int


class WrittenBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch of a producer that is in the log: where it stands in the count and the offsets that it got."""

    producer_id: int
    stream: int
    epoch: int
    sequence: int
    count: int
    written_ms: int
    ranges: tuple[OffsetRange, ...]
    partition_count: int = 0  # of the topic then: by it a repetition finds out where each of its records went
    topic_records: int = 0  # in all its partitions then, those included that are gone

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) % _SEQUENCES

    @property
    def standing(self) -> int:
        """Grows from each batch of a stream to the next, while its count goes round and servers' clocks differ: whoever
        writes a batch has seen the one before it, and so all that the log held by then.
        """
        return self.topic_records if self.stream == TOPIC_STREAM else self.ranges[0].base_offset


_notes = msgspec.json.Decoder(list[WrittenBatch])


def encode_notes(batches: Iterable[WrittenBatch]) -> str:
    return msgspec.json.encode(list(batches)).decode()


def decode_notes(text: str) -> list[WrittenBatch]:
    return _notes.decode(text)


def in_order(batches: Iterable[WrittenBatch]) -> list[WrittenBatch]:
    """Batches that come in no order, those of a stream as they were written and the streams by their last one."""
    streams: dict[tuple[int, int], list[WrittenBatch]] = {}
    for batch in sorted(batches, key=lambda batch: batch.standing):
        streams.setdefault((batch.producer_id, batch.stream), []).append(batch)
    by_age = sorted(streams.values(), key=lambda written: written[-1].written_ms)
    return [batch for written in by_age for batch in written]


class ProducerStates:
    """The streams of one topic. `check` decides, `apply` records; replay and live use the same `apply`."""

    def __init__(self) -> None:
        self._streams: dict[tuple[int, int], tuple[WrittenBatch, ...]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def check(self, batch: ProducerBatch, count: int) -> WrittenBatch | None:
        """None when the batch is new and in order, or the earlier batch that it repeats; raises otherwise."""
        written = self._streams.get((batch.producer_id, batch.stream))
        if written is None:
            return None
        last = written[-1]
        if batch.epoch < last.epoch:
            raise LakelogError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {batch.producer_id} sent epoch {batch.epoch}, but epoch {last.epoch} has taken over",
            )
        if batch.epoch > last.epoch:
            if batch.sequence == 0:
                return None
            raise _out_of_order(batch, expected=0)
        for earlier in written:
            if earlier.epoch == batch.epoch and (earlier.sequence, earlier.count) == (batch.sequence, count):
                return earlier
        if batch.sequence != last.next_sequence:
            raise _out_of_order(batch, expected=last.next_sequence)
        return None

    def apply(self, batch: WrittenBatch) -> None:
        stream = (batch.producer_id, batch.stream)
        # Taken out and put back at the end: the order of the dict is the order of the last writes.
        written = self._streams.pop(stream, ())
        if written and written[-1].epoch != batch.epoch:
            written = ()
        self._streams[stream] = (*written[1 - BATCHES_REMEMBERED :], batch)
        if len(self._streams) > STREAMS_MAX:
            del self._streams[next(iter(self._streams))]

    def of(self, batch: ProducerBatch) -> tuple[WrittenBatch, ...]:
        """What is remembered of the stream that a batch belongs to."""
        return self._streams.get((batch.producer_id, batch.stream), ())

    def remembers(self, batch: WrittenBatch) -> bool:
        return batch in self._streams.get((batch.producer_id, batch.stream), ())

    def forget_before(self, written_ms: int) -> None:
        """Let go of the streams whose last batch is older. They stand in the order of their last batch."""
        for stream, written in list(self._streams.items()):
            if written[-1].written_ms >= written_ms:
                break
            del self._streams[stream]

    def overlay(self, batches: Iterable[ProducerBatch]) -> ProducerStates:
        """A copy to decide these batches on, in which each sees the ones before it. It knows their streams alone."""
        copy = ProducerStates()
        copy._streams = {(each.producer_id, each.stream): written for each in batches if (written := self.of(each))}
        return copy

    def __iter__(self) -> Iterator[WrittenBatch]:
        for written in self._streams.values():
            yield from written


def _out_of_order(batch: ProducerBatch, expected: int) -> LakelogError:
    return LakelogError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} sent sequence {batch.sequence}, the next one is {expected}",
    )
