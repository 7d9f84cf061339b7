"""Deadlines, kept so that the next one is found at once and moving one costs next to nothing.

Owns when something is due, under any key that can be hashed and ordered. It has no clock: time is handed in.
A heartbeat moves a deadline away thousands of times before it is ever reached, so a move later leaves the old entry in
the heap, and the entry is corrected when it comes to the top.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])


class Timers(Generic[K]):
    """Invariant: every key of `_due` has an entry in `_heap` that is not later than its deadline."""

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []
        self._earliest: dict[K, int] = {}

    def set(self, key: K, due_ms: int) -> None:
        self._due[key] = due_ms
        if key not in self._earliest or due_ms < self._earliest[key]:
            self._push(key, due_ms)

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def due_at(self, key: K) -> int | None:
        return self._due.get(key)

    def next_ms(self) -> int | None:
        self._correct_top()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Iterator[K]:
        """Take out, in order, what is due; also what becomes due by what the caller does meanwhile."""
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._earliest[key], self._due[key]
            yield key

    def _push(self, key: K, due_ms: int) -> None:
        heapq.heappush(self._heap, (due_ms, key))
        self._earliest[key] = due_ms

    def _correct_top(self) -> None:
        while self._heap:
            entry_ms, key = self._heap[0]
            due_ms = self._due.get(key)
            if due_ms == entry_ms == self._earliest.get(key):
                return
            heapq.heappop(self._heap)
            # An entry that an earlier one has replaced says nothing any more.
            if self._earliest.get(key) == entry_ms:
                del self._earliest[key]
                if due_ms is not None:
                    self._push(key, due_ms)
