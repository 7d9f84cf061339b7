"""When the records of a producer go, and with which others. Pure: the time is handed in, and nobody waits here.

A batch goes when it is full, when its first record has waited for the linger, or when somebody is in a hurry. Batches
go one after the other, so while one is on its way the next one gathers: the busier it is, the larger they get.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lakelog.client.records import Record, RecordList

MIB = 1024 * 1024

# How the sender of a record hears of its batch.
Delivery = TypeVar("Delivery")


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """`linger_ms` is how long a record waits for others; `buffer_bytes` is what may wait for the gateway in all."""

    linger_ms: float = 5.0
    batch_bytes: int = 4 * MIB
    buffer_bytes: int = 32 * MIB


@dataclass(slots=True)
class Batch(Generic[Delivery]):
    delivery: Delivery
    due_ms: float
    records: RecordList = field(default_factory=RecordList)
    sealed: bool = False


class BatchQueue(Generic[Delivery]):
    def __init__(self, options: BatchingOptions, new_delivery: Callable[[], Delivery]) -> None:
        self._options = options
        self._new_delivery = new_delivery
        self._waiting: deque[Batch[Delivery]] = deque()
        self._on_its_way: Batch[Delivery] | None = None
        self._bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether a record may be added. One record may go over the limit, so that it can be of any size."""
        return self._bytes < self._options.buffer_bytes

    def deliveries(self) -> list[Delivery]:
        """Of all batches that are not settled yet."""
        moving = [self._on_its_way] if self._on_its_way is not None else []
        return [batch.delivery for batch in (*moving, *self._waiting)]

    def add(self, record: Record, now_ms: float) -> tuple[Delivery, bool]:
        """Put a record with the others. Returns its delivery, and whether the time of the next batch has changed."""
        opened = not self._waiting or self._waiting[-1].sealed
        batch = Batch(self._new_delivery(), now_ms + self._options.linger_ms) if opened else self._waiting[-1]
        self._bytes += batch.records.add(record)
        if opened:
            self._waiting.append(batch)
        batch.sealed = batch.records.size_bytes >= self._options.batch_bytes
        return batch.delivery, opened or batch.sealed

    def hurry(self) -> None:
        """What is here now goes as soon as it can."""
        if self._waiting:
            self._waiting[-1].sealed = True

    def wait_ms(self, now_ms: float) -> float | None:
        """How long until the next batch is due; None when there is none."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        return 0.0 if first.sealed else max(0.0, first.due_ms - now_ms)

    def take(self) -> Batch[Delivery]:
        self._on_its_way = self._waiting.popleft()
        return self._on_its_way

    def settled(self) -> None:
        """The batch that was taken is stored or given up: its room is free."""
        assert self._on_its_way is not None
        self._bytes -= self._on_its_way.records.size_bytes
        self._on_its_way = None
