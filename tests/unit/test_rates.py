"""What went through lately, counted in intervals that are forgotten in time."""

from __future__ import annotations

import pytest

from ingest_api.ui import rates
from ingest_api.ui.rates import INTERVAL_MS, INTERVALS, RECENT_INTERVALS, Rates


class Time:
    now_ms = 1_000_000 * INTERVAL_MS

    def __call__(self) -> int:
        return self.now_ms

    def pass_intervals(self, count: int) -> None:
        self.now_ms += count * INTERVAL_MS


def commit(counted: Rates, topic: str, records: int) -> None:
    counted.committed(topic, records=records, size_bytes=10 * records, requests=1, files=1, seconds=0.1)


def test_counts_stand_in_their_intervals_and_go_after_a_while() -> None:
    time = Time()
    counted = Rates(time)
    commit(counted, "orders", 3)
    commit(counted, "orders", 4)
    time.pass_intervals(2)
    commit(counted, "orders", 5)
    counted.fetched("orders", records=2, size_bytes=7)
    history = counted.of("orders")
    assert history.counts(counted.interval, "records_in")[-3:] == [7, 0, 5]
    assert history.counts(counted.interval, "bytes_in")[-3:] == [70, 0, 50]
    assert history.counts(counted.interval, "records_out")[-1] == 2
    time.pass_intervals(INTERVALS - 1)
    assert sum(history.counts(counted.interval, "records_in")) == 5
    time.pass_intervals(1)
    assert history.counts(counted.interval, "records_in") == [0] * INTERVALS
    time.pass_intervals(10 * INTERVALS)
    commit(counted, "orders", 1)
    assert sum(history.counts(counted.interval, "records_in")) == 1


def test_a_rate_is_of_intervals_that_are_over() -> None:
    time = Time()
    counted = Rates(time)
    for _ in range(RECENT_INTERVALS):
        commit(counted, "orders", 100)
        time.pass_intervals(1)
    commit(counted, "orders", 1_000_000)
    assert counted.of("orders").recent_per_second(counted.interval, "records_in") == 100 * 1000 / INTERVAL_MS


def test_all_topics_together_and_a_topic_that_nobody_knows() -> None:
    counted = Rates(Time())
    commit(counted, "orders", 1)
    commit(counted, "payments", 2)
    counted.fetched("payments", records=0, size_bytes=0)
    assert sum(counted.of(None).counts(counted.interval, "records_in")) == 3
    assert sum(counted.of("none").counts(counted.interval, "records_in")) == 0


def test_the_topic_that_was_idle_the_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "TOPICS_MAX", 2)
    counted = Rates(Time())
    for topic in ("a", "b", "a", "c"):
        commit(counted, topic, 1)
    sums = {topic: sum(counted.of(topic).counts(counted.interval, "records_in")) for topic in "abc"}
    assert sums == {"a": 2, "b": 0, "c": 1}
