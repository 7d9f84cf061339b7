"""The hot tail serves only what it was given, from the very offset on, and never holds more bytes than it may."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakelog.hot_tail import BATCH_OVERHEAD_BYTES, HotPartition, HotTail


def rows(base: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"offset": pa.array(range(base, base + count), pa.int64())})


def offsets(batch: pa.RecordBatch | None) -> list[int] | None:
    return None if batch is None else batch.column("offset").to_pylist()


# Partition, gap before the batch (another process appended), number of rows.
PUSHES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 5)), max_size=150)


@given(PUSHES, st.integers(0, 12))
def test_as_a_list_of_the_newest_batches_would(pushes: list[tuple[int, int, int]], room: int):
    bytes_max = room * (BATCH_OVERHEAD_BYTES + 30)
    tail, partitions = HotTail(bytes_max), [HotPartition() for _ in range(3)]
    ends = [0, 0, 0]
    held: list[tuple[int, pa.RecordBatch]] = []
    for partition, gap, count in pushes:
        base = ends[partition] + gap
        batch = rows(base, count)
        tail.push(partitions[partition], base, batch)
        ends[partition] = base + count
        held.append((partition, batch))
        while sum(each.nbytes + BATCH_OVERHEAD_BYTES for _, each in held) > bytes_max:
            held.pop(0)
        assert tail.bytes <= bytes_max
    for number, partition_ in enumerate(partitions):
        mine = [offsets(batch) or [] for partition, batch in held if partition == number]
        for offset in range(-1, ends[number] + 2):
            expected = next((each[each.index(offset) :] for each in mine if offset in each), None)
            assert offsets(partition_.find(offset)) == expected


def test_what_was_dropped_is_let_go_of():
    tail, partition = HotTail(3 * (BATCH_OVERHEAD_BYTES + 8)), HotPartition()
    for offset in range(10_000):
        tail.push(partition, offset, rows(offset, 1))
    assert [batch for batch in partition.batches if batch is not None] == [
        partition.find(9_997),
        partition.find(9_998),
        partition.find(9_999),
    ]
    assert len(partition.bases) < 200


def test_a_tail_without_room_holds_nothing():
    tail, partition = HotTail(0), HotPartition()
    tail.push(partition, 0, rows(0, 5))
    assert partition.find(0) is None
    assert tail.bytes == 0


def test_a_batch_larger_than_all_the_room_goes_at_once():
    tail, partition = HotTail(BATCH_OVERHEAD_BYTES + 100), HotPartition()
    tail.push(partition, 0, rows(0, 1))
    tail.push(partition, 1, rows(1, 1_000))
    assert partition.find(0) is None
    assert partition.find(1) is None
    assert tail.bytes == 0
