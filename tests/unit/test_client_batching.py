"""When the records of a producer go: with a clock that is moved by hand."""

from __future__ import annotations

from itertools import count

from lakelog.client.batching import BatchingOptions, BatchQueue
from lakelog.client.records import Record


def queue(**options: float) -> BatchQueue[int]:
    """Deliveries are numbered."""
    return BatchQueue(BatchingOptions(**options), count().__next__)  # type: ignore[arg-type]


def test_a_record_waits_for_others_as_long_as_it_may() -> None:
    waiting = queue(linger_ms=10)
    assert waiting.wait_ms(0) is None
    assert waiting.add(Record("a"), 100) == (0, True)
    assert waiting.add(Record("b"), 105) == (0, False)
    assert [waiting.wait_ms(now) for now in (105, 109, 110, 200)] == [5, 1, 0, 0]
    assert waiting.take().records.to_table()["value"].to_pylist() == [b"a", b"b"]


def test_a_full_batch_goes_at_once_and_the_next_one_opens() -> None:
    waiting = queue(linger_ms=10, batch_bytes=50)
    assert waiting.add(Record(b"x" * 50), 0) == (0, True)
    assert waiting.wait_ms(0) == 0
    assert waiting.add(Record("a"), 0) == (1, True)
    assert waiting.deliveries() == [0, 1]
    waiting.take()
    assert waiting.wait_ms(0) == 10
    assert waiting.deliveries() == [0, 1]
    waiting.settled()
    assert waiting.deliveries() == [1]


def test_a_hurry_is_about_what_is_there_now() -> None:
    waiting = queue(linger_ms=10)
    waiting.hurry()
    waiting.add(Record("a"), 0)
    assert waiting.wait_ms(0) == 10
    waiting.hurry()
    assert waiting.wait_ms(0) == 0
    waiting.add(Record("b"), 0)
    waiting.take()
    assert waiting.wait_ms(0) == 10


def test_room_is_free_again_when_a_batch_is_settled() -> None:
    waiting = queue(linger_ms=0, buffer_bytes=100)
    waiting.add(Record(b"x" * 60), 0)
    assert waiting.has_room
    waiting.add(Record(b"x" * 60), 0)
    assert not waiting.has_room
    waiting.take()
    assert not waiting.has_room
    waiting.settled()
    assert waiting.has_room
