"""The hot tail: the newest batches of every partition, as the Arrow they were stamped in.

Stands for the page cache of a Kafka broker: a reader at the tail touches no file and decodes nothing. Bounded in
bytes over all topics; the oldest batch goes first. It only ever holds committed records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

# What a batch costs beside its bytes: Arrow's own objects, and ours.
BATCH_OVERHEAD_BYTES = 4096


@dataclass(slots=True)
class HotPartition:
    """Batches of one partition in the order of their offsets. There may be gaps where another process appended."""

    bases: list[int] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    head: int = 0  # how many at the front are gone already: the lists are cut only now and then

    def find(self, offset: int) -> pa.RecordBatch | None:
        """The rest of the batch that holds `offset`, from there on."""
        position = bisect_right(self.bases, offset, lo=self.head) - 1
        if position < self.head:
            return None
        batch, skipped = self.batches[position], offset - self.bases[position]
        if skipped >= batch.num_rows:
            return None
        return batch.slice(skipped) if skipped else batch

    def push(self, base_offset: int, batch: pa.RecordBatch) -> None:
        self.bases.append(base_offset)
        self.batches.append(batch)

    def drop_oldest(self) -> None:
        self.batches[self.head] = None
        self.head += 1
        if self.head > 64 and self.head * 2 > len(self.bases):
            del self.bases[: self.head], self.batches[: self.head]
            self.head = 0


class HotTail:
    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._order: deque[tuple[HotPartition, int]] = deque()

    def push(self, partition: HotPartition, base_offset: int, batch: pa.RecordBatch) -> None:
        size = batch.nbytes + BATCH_OVERHEAD_BYTES
        partition.push(base_offset, batch)
        self._order.append((partition, size))
        self.bytes += size
        while self.bytes > self._bytes_max and self._order:
            oldest, its_size = self._order.popleft()
            oldest.drop_oldest()
            self.bytes -= its_size
