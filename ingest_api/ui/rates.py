"""What went in and out of this gateway lately, for those who look: a short history per topic and over all of them.

Counts in intervals of fixed length and forgets the oldest. Bounded in topics: the one that was idle the longest goes.
Must not know what draws it. For history that outlives the process there are metrics.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from lakelog.observer import Observer

INTERVAL_MS = 5_000
INTERVALS = 180
TOPICS_MAX = 2_000
# A rate of now is that of so many intervals that are over.
RECENT_INTERVALS = 6

Flow: TypeAlias = Literal["records_in", "bytes_in", "records_out", "bytes_out"]
FLOWS: tuple[Flow, ...] = get_args(Flow)


class History:
    """A ring of counts for each flow; `newest` is the number of the interval that was counted last."""

    __slots__ = ("_counts", "_newest")

    def __init__(self, newest: int) -> None:
        self._newest = newest
        self._counts = {flow: array("q", bytes(8 * INTERVALS)) for flow in FLOWS}

    def add(self, interval: int, flow: Flow, count: int) -> None:
        self._advance(interval)
        self._counts[flow][interval % INTERVALS] += count

    def counts(self, interval: int, flow: Flow) -> list[int]:
        """Of the intervals up to this one, oldest first."""
        self._advance(interval)
        ring, place = self._counts[flow], interval % INTERVALS + 1
        return [*ring[place:], *ring[:place]]

    def recent_per_second(self, interval: int, flow: Flow) -> float:
        over = self.counts(interval, flow)[-1 - RECENT_INTERVALS : -1]
        return sum(over) * 1000 / (INTERVAL_MS * RECENT_INTERVALS)

    def _advance(self, interval: int) -> None:
        for passed in range(max(self._newest + 1, interval - INTERVALS + 1), interval + 1):
            for ring in self._counts.values():
                ring[passed % INTERVALS] = 0
        self._newest = max(self._newest, interval)


class Rates(Observer):
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._total = History(self.interval)
        self._topics: OrderedDict[str, History] = OrderedDict()

    @property
    def interval(self) -> int:
        """The number of the interval that is now."""
        return self._now_ms() // INTERVAL_MS

    def committed(
        self, topic: str, *, records: int, size_bytes: int, requests: int, files: int, seconds: float
    ) -> None:
        self._count(topic, "records_in", records, "bytes_in", size_bytes)

    def fetched(self, topic: str, *, records: int, size_bytes: int) -> None:
        if records:
            self._count(topic, "records_out", records, "bytes_out", size_bytes)

    def of(self, topic: str | None) -> History:
        """The history of a topic, of all together for None; an empty one if nothing is known."""
        return self._total if topic is None else self._topics.get(topic) or History(self.interval)

    def _count(self, topic: str, of_records: Flow, records: int, of_bytes: Flow, size_bytes: int) -> None:
        interval = self.interval
        mine = self._topics.get(topic)
        if mine is None:
            mine = self._topics[topic] = History(interval)
            if len(self._topics) > TOPICS_MAX:
                self._topics.popitem(last=False)
        self._topics.move_to_end(topic)
        for history in (mine, self._total):
            history.add(interval, of_records, records)
            history.add(interval, of_bytes, size_bytes)
