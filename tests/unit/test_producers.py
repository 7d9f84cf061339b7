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
    OffsetRange,
    ProducerBatch,
    ProducerStates,
    WrittenBatch,
    decode_notes,
    encode_notes,
    in_order,
)

LAST_SEQUENCE = 2**31 - 1


def sent(sequence: int, *, producer: int = 1, epoch: int = 0, stream: int = -1) -> ProducerBatch:
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


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([-1, 4]), st.booleans(), st.integers(1, 5)), max_size=60),
    st.sampled_from([0, 2**31 - 20]),
    st.randoms(use_true_random=False),
)
def test_notes_read_back_in_any_order_give_the_same_memory(
    history: list[tuple[int, int, bool, int]], first: int, shuffled: random.Random
):
    states = ProducerStates()
    for now_ms, (producer, stream, restarts, count) in enumerate(history):
        last = states.of(sent(0, producer=producer, stream=stream))
        epoch, sequence = (last[-1].epoch, last[-1].next_sequence) if last else (0, first)
        if restarts:
            epoch, sequence = epoch + 1, 0
        states.apply(written(sent(sequence, producer=producer, epoch=epoch, stream=stream), count, now_ms, now_ms))
    notes = list(states)
    shuffled.shuffle(notes)
    again = ProducerStates()
    for batch in in_order(decode_notes(encode_notes(notes))):
        again.apply(batch)
    assert list(again) == list(states)


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
    overlay = states.overlay()
    overlay.apply(written(sent(1), 1))
    assert overlay.remembers(written(sent(1), 1))
    assert not states.remembers(written(sent(1), 1))
    assert states.check(sent(1), 1) is None
