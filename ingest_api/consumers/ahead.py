"""How far a reader was sent ahead of what it has acknowledged, in records.

Owns the offsets of what it has in its hands. Offsets that a compacted topic has no records for do not count, so it is
records that are kept and not the ends of ranges; a reader's window bounds how many. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from consumer_groups.assignors import TopicPartition

Offsets = npt.NDArray[np.int64]


class SentAhead:
    def __init__(self) -> None:
        self._sent: dict[TopicPartition, Offsets] = {}

    def add(self, key: TopicPartition, offsets: Offsets) -> None:
        """Records were sent, in order. A reader that was put back is sent some of them once more: they count once."""
        if not len(offsets):
            return
        before = self._sent.get(key, offsets[:0])
        self._sent[key] = np.concatenate((before[: np.searchsorted(before, offsets[0])], offsets))

    def count(self, acknowledged: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> int:
        """How many records the reader has, given the first offset by partition that it has not acknowledged, and the
        one that it is sent next. What is not between them, or in no partition of these, it is done with.
        """
        left = {}
        for key, offsets in self._sent.items():
            if key in positions and key in acknowledged:
                start, end = np.searchsorted(offsets, (acknowledged[key], positions[key]))
                left[key] = offsets[start:end]
        self._sent = {key: offsets for key, offsets in left.items() if len(offsets)}
        return sum(map(len, self._sent.values()))
