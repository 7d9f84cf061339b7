"""Idempotent producers: a batch is stored once, whatever is sent again, skipped, forgotten or read back from notes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import ErrorCode, LakelogError
from lakelog.log import producers
from lakelog.log.producers import (
    BATCHES_REMEMBERED,
    TOPIC_STREAM,
    OffsetRange,
    ProducerBatch,
    ProducerStates,
    WrittenBatch,
    decode_notes,
    encode_notes,
    in_order,
)

LAST_SEQUENCE = 2**31 - 1


def sent(sequence: int, *, producer: int = 1, epoch: int = 0, stream: int = TOPIC_STREAM) -> ProducerBatch:
    return ProducerBatch(producer, epoch, sequence, stream)


def written(batch: ProducerBatch, count: int, offset: int = 0, now_ms: int = 0) -> WrittenBatch:
    ranges = (OffsetRange(0, offset, count),)
    return WrittenBatch(batch.producer_id, batch.stream, batch.epoch, batch.sequence, count, now_ms, ranges, 1)


def refusal(states: ProducerStates, batch: ProducerBatch, count: int = 1) -> ErrorCode:
    with pytest.raises(LakelogError) as caught:
        states.check(batch, count)
    return caught.value.code


@dataclass
class Model:
    """All that a stream ever wrote, looked through from the end."""

    epoch: int = -1
    batches: list[WrittenBatch] = field(default_factory=list)

    def verdict(self, batch: ProducerBatch, count: int) -> WrittenBatch | ErrorCode | None:
        if not self.batches:
            return None
        if batch.epoch != self.epoch:
            if batch.epoch < self.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            return None if batch.sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for earlier in self.batches[-BATCHES_REMEMBERED:]:
            if (earlier.sequence, earlier.count) == (batch.sequence, count):
                return earlier
        last = self.batches[-1]
        is_next = batch.sequence == (last.sequence + last.count) % 2**31
        return None if is_next else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def write(self, batch: WrittenBatch) -> None:
        if batch.epoch != self.epoch:
            self.epoch, self.batches = batch.epoch, []
        self.batches.append(batch)


ATTEMPTS = st.lists(
    st.tuples(
        st.integers(1, 2),  # producer
        st.sampled_from([-1, 0]),  # stream
        st.integers(-1, 1),  # epoch, from the last one
        st.integers(-7, 1) | st.just(0),  # how many batches back, or ahead
        st.integers(1, 3),  # records
    ),
    max_size=60,
)


@given(ATTEMPTS, st.sampled_from([0, LAST_SEQUENCE - 10]))
def test_every_verdict_is_that_of_one_who_forgets_nothing_early(
    attempts: list[tuple[int, int, int, int, int]], first: int
):
    states, models = ProducerStates(), dict[tuple[int, int], Model]()
    for offset, (producer, stream, newer, back, count) in enumerate(attempts):
        model = models.setdefault((producer, stream), Model())
        epoch = max(0, model.epoch + newer)
        batches = model.batches
        if not batches:
            sequence = first
        elif epoch > model.epoch:
            sequence = max(0, back)
        elif back < 0 and len(batches) >= -back:
            sequence, count = batches[back].sequence, batches[back].count
        else:
            sequence = (batches[-1].sequence + batches[-1].count + back) % 2**31
        batch = sent(sequence, producer=producer, epoch=epoch, stream=stream)
        expected = model.verdict(batch, count)
        if isinstance(expected, ErrorCode):
            assert refusal(states, batch, count) is expected
            continue
        assert states.check(batch, count) == expected
        if expected is None:
            note = written(batch, count, offset)
            states.apply(note)
            model.write(note)
            assert states.of(batch) == tuple(model.batches[-BATCHES_REMEMBERED:])


@dataclass
class Topic:
    """Where batches go, and all that producers are noted for. Servers' clocks do not agree."""

    ends: list[int] = field(default_factory=lambda: [0, 0, 0])
    states: ProducerStates = field(default_factory=ProducerStates)
    notes: list[WrittenBatch] = field(default_factory=list)

    def write(self, batch: ProducerBatch, partitions: list[int], each: int, now_ms: int) -> None:
        if batch.stream != TOPIC_STREAM:
            partitions = [batch.stream]
        ranges = tuple(OffsetRange(partition, self.ends[partition], each) for partition in partitions)
        note = WrittenBatch(
            batch.producer_id,
            batch.stream,
            batch.epoch,
            batch.sequence,
            each * len(partitions),
            now_ms,
            ranges,
            len(self.ends),
            sum(self.ends),
        )
        assert self.states.check(batch, note.count) is None
        self.states.apply(note)
        self.notes.append(note)
        for partition in partitions:
            self.ends[partition] += each

    def next_of(self, producer: int, stream: int, *, restarts: bool = False) -> ProducerBatch:
        last = self.states.of(sent(0, producer=producer, stream=stream))
        if not last:
            return sent(0, producer=producer, stream=stream)
        if restarts:
            return sent(0, producer=producer, stream=stream, epoch=last[-1].epoch + 1)
        return sent(last[-1].next_sequence, producer=producer, stream=stream, epoch=last[-1].epoch)

    def opened_with(self, notes: list[WrittenBatch]) -> ProducerStates:
        """What somebody remembers who finds these notes in the files."""
        states = ProducerStates()
        for batch in in_order(decode_notes(encode_notes(notes))):
            states.apply(batch)
        return states


STEPS = st.lists(
    st.tuples(
        st.integers(1, 2),  # producer
        st.sampled_from([TOPIC_STREAM, TOPIC_STREAM, 0, 2]),
        st.sampled_from([False] * 9 + [True]),  # whether it restarts
        st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),  # partitions
        st.integers(1, 5) | st.integers(2**26, 2**29),  # records in each
        st.integers(0, 10**6),  # the time on the clock of the server
        st.booleans(),  # whether its note lives on when it is no longer remembered
    ),
    max_size=60,
)


@given(STEPS, st.randoms(use_true_random=False))
def test_notes_found_in_any_order_give_the_same_memory(
    steps: list[tuple[int, int, bool, list[int], int, int, bool]], shuffled: random.Random
):
    topic, living = Topic(), list[WrittenBatch]()
    for producer, stream, restarts, partitions, each, now_ms, lives_on in steps:
        topic.write(topic.next_of(producer, stream, restarts=restarts), partitions, each, now_ms)
        if lives_on:
            living.append(topic.notes[-1])
    notes = [*living, *(note for note in topic.states if note not in living)]
    shuffled.shuffle(notes)
    opened = topic.opened_with(notes)
    assert len(opened) == len(topic.states)
    for note in notes:
        batch = sent(0, producer=note.producer_id, stream=note.stream)
        assert opened.of(batch) == topic.states.of(batch)


@pytest.mark.parametrize("stream", [TOPIC_STREAM, 1])
@pytest.mark.parametrize(("batches", "each"), [(650, 4_000_000), (2**12, 2**20)], ids=["once round", "twice, in step"])
def test_notes_may_span_the_whole_circle_of_the_count(stream: int, batches: int, each: int):
    topic = Topic()
    for number in range(batches):
        topic.write(topic.next_of(1, stream), [number % 3], each, now_ms=number)
    opened = topic.opened_with(topic.notes[::-1])
    assert list(opened) == list(topic.states)
    assert opened.check(topic.next_of(1, stream), 1) is None


@pytest.mark.parametrize("stream", [TOPIC_STREAM, 1])
def test_a_note_may_be_left_of_long_before(stream: int):
    topic = Topic()
    for number, each in enumerate([10, 20, *[300_000_000] * 4, 1, 1, 1, 1, 1]):
        topic.write(topic.next_of(1, stream), [number % 3], each, now_ms=number)
    assert list(topic.opened_with([*topic.states, topic.notes[1]])) == list(topic.states)


def test_streams_are_found_in_the_order_of_their_last_batches():
    topic = Topic()
    for now_ms, producer in enumerate([1, 2, 3, 2, 1]):
        topic.write(topic.next_of(producer, TOPIC_STREAM), [0], 1, now_ms)
    assert list(topic.opened_with(topic.notes)) == list(topic.states)


def test_a_sixth_batch_back_is_too_long_ago_to_be_known():
    states = ProducerStates()
    for sequence in range(6):
        states.apply(written(sent(sequence), 1, offset=sequence))
    assert states.check(sent(1), 1) == written(sent(1), 1, offset=1)
    assert refusal(states, sent(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_sent_again_with_another_length_is_not_the_same():
    states = ProducerStates()
    states.apply(written(sent(0), 3))
    assert refusal(states, sent(0), count=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_count_goes_round_after_the_largest_sequence():
    states = ProducerStates()
    states.apply(written(sent(LAST_SEQUENCE), 1))
    assert states.check(sent(0), 1) is None
    assert refusal(states, sent(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere():
    assert ProducerStates().check(sent(12_345), 1) is None


def test_the_streams_that_were_silent_longest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(producers, "STREAMS_MAX", 3)
    states = ProducerStates()
    for producer in (1, 2, 3):
        states.apply(written(sent(0, producer=producer), 1))
    states.apply(written(sent(1, producer=1), 1))
    states.apply(written(sent(0, producer=4), 1))
    assert len(states) == 3
    assert states.of(sent(0, producer=2)) == ()
    assert len(states.of(sent(0, producer=1))) == 2


def test_forgetting_by_age_takes_streams_and_not_batches():
    states = ProducerStates()
    states.apply(written(sent(0, producer=1), 1, now_ms=10))
    states.apply(written(sent(0, producer=2), 1, now_ms=20))
    states.apply(written(sent(1, producer=1), 1, now_ms=30))
    states.forget_before(30)
    assert states.of(sent(0, producer=2)) == ()
    assert len(states.of(sent(0, producer=1))) == 2


def test_an_overlay_is_decided_on_without_a_trace_in_what_it_lies_over():
    states = ProducerStates()
    states.apply(written(sent(0), 1))
    overlay = states.overlay([sent(1)])
    overlay.apply(written(sent(1), 1))
    assert overlay.remembers(written(sent(1), 1))
    assert not states.remembers(written(sent(1), 1))
    assert states.check(sent(1), 1) is None
