"""How many records a reader has that it has not acknowledged."""

from __future__ import annotations

import random

import numpy as np

from consumer_groups.assignors import TopicPartition
from ingest_api.consumers.ahead import Offsets, SentAhead

KEY, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


def some(*offsets: int) -> Offsets:
    return np.array(offsets, dtype=np.int64)


def test_records_count_until_they_are_acknowledged() -> None:
    ahead = SentAhead()
    assert ahead.count({}, {}) == 0
    ahead.add(KEY, some(0, 1, 2))
    ahead.add(OTHER, some(7))
    positions = {KEY: 3, OTHER: 8}
    assert ahead.count({KEY: 0, OTHER: 7}, positions) == 4
    assert ahead.count({KEY: 2, OTHER: 7}, positions) == 2
    assert ahead.count({KEY: 3, OTHER: 8}, positions) == 0


def test_offsets_without_records_do_not_count() -> None:
    ahead = SentAhead()
    ahead.add(KEY, some(0, 1_000_000))
    ahead.add(KEY, some())
    assert ahead.count({KEY: 0}, {KEY: 5_000_000}) == 2
    assert ahead.count({KEY: 1}, {KEY: 5_000_000}) == 1


def test_a_reader_that_is_put_elsewhere_is_done_with_what_it_had() -> None:
    ahead = SentAhead()
    ahead.add(KEY, some(5, 6, 7))
    assert ahead.count({KEY: 100}, {KEY: 100}) == 0
    ahead.add(KEY, some(100, 101))
    assert ahead.count({KEY: 0}, {KEY: 0}) == 0


def test_what_is_sent_once_more_counts_once() -> None:
    ahead = SentAhead()
    ahead.add(KEY, some(0, 1, 2, 3))
    ahead.add(KEY, some(2, 3, 4))  # it was put back in between, and nobody had asked for the count
    assert ahead.count({KEY: 2}, {KEY: 5}) == 3


def test_a_partition_that_went_to_others_is_forgotten() -> None:
    ahead = SentAhead()
    ahead.add(KEY, some(0, 1))
    assert ahead.count({}, {}) == 0
    assert ahead.count({KEY: 0}, {KEY: 2}) == 0


def test_it_counts_as_one_who_keeps_every_record() -> None:
    rng = random.Random(7)
    for _ in range(200):
        ahead, held, position, acknowledged = SentAhead(), set[int](), 0, 0
        log = sorted(rng.sample(range(100), 40))
        for _ in range(20):
            match rng.choice(("send", "acknowledge", "seek")):
                case "send":
                    offsets = [each for each in log if each >= position][: rng.randint(0, 10)]
                    ahead.add(KEY, some(*offsets))
                    held.update(offsets)
                    position = max([position, *(each + 1 for each in offsets)])
                case "acknowledge":
                    acknowledged = rng.randint(acknowledged, position)
                    held = {each for each in held if each >= acknowledged}
                case "seek":
                    acknowledged = position = rng.randint(0, 100)
                    held = set()
            if rng.random() < 0.7:
                assert ahead.count({KEY: acknowledged}, {KEY: position}) == len(held)
