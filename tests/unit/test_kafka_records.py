"""Record batches between bytes and columns, with aiokafka's codec for a second opinion."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ingest_api.kafka.records import reading
from ingest_api.kafka.records.compression import CODECS, pack, unpacking
from ingest_api.kafka.records.envelope import Envelope
from ingest_api.kafka.records.reading import Limits, Reading
from ingest_api.kafka.records.varints import TooLong, VarintRows, read_varint, read_varints, widths, zigzag
from ingest_api.kafka.records.writing import write_batches, write_gap
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Fetched
from lakelog.model.batch import STORED_SCHEMA, AnyRecords, combine

LIMIT, RECORDS_MAX = 1 << 24, 10_000
# timestamp, key, value, headers
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

rows_of_any_kind = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=20),
    ),
    min_size=1,
    max_size=60,
)


def batch_of(rows: Sequence[Row], *, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, *producer, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def sealed(batch: bytes | bytearray) -> bytes:
    """The batch with the checksum and the length that it should have."""
    batch = bytearray(batch)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def read_batch(data: memoryview, partition: int, bytes_max: int) -> tuple[Envelope, AnyRecords]:
    """With room for all of it."""
    read = Reading(data, partition, Limits(bytes_max, RECORDS_MAX)).go_on(sys.maxsize)
    assert read is not None
    return read


def unpack(data: memoryview, codec: int, bytes_max: int, room: int = 100) -> bytes:
    """In steps that begin with little room."""
    steps = unpacking(data, codec, bytes_max, room)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return bytes(done.value)


def rows_in(data: bytes, few: int, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    with monkeypatch.context() as patched:
        patched.setattr(reading, "FEW_RECORDS", few)
        _, records = read_batch(memoryview(data), 3, LIMIT)
    assert records.partitions is not None
    assert set(np.asarray(records.partitions).tolist()) == {3}
    return combine([records]).batch.to_pylist()


def expected(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(time, key, value, headers or None) for time, key, value, headers in rows]


def seen(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(each["key"], each["value"]) for each in row["headers"]] if row["headers"] is not None else None,
        )
        for row in rows
    ]


@given(rows_of_any_kind)
def test_both_ways_of_reading_give_what_was_written(rows: list[Row]):
    data = batch_of(rows)
    with pytest.MonkeyPatch.context() as patched:
        assert seen(rows_in(data, 0, patched)) == expected(rows)
        assert seen(rows_in(data, 1 << 20, patched)) == expected(rows)
        patched.setattr(reading, "CHUNK_RECORDS", 7)
        assert seen(rows_in(data, 0, patched)) == expected(rows)


@given(rows_of_any_kind, st.integers(0, 2**40), st.data())
def test_what_is_fetched_is_what_was_sent(rows: list[Row], base_offset: int, data: st.DataObject):
    """Also where compaction has left gaps between the offsets."""
    _, records = read_batch(memoryview(batch_of(rows)), 0, LIMIT)
    steps = data.draw(st.lists(st.integers(1, 300), min_size=len(rows), max_size=len(rows)))
    offsets = base_offset + np.cumsum(steps)
    stored = pa.Table.from_batches(
        [pa.RecordBatch.from_arrays([pa.array(offsets), *combine([records]).batch.columns], schema=STORED_SCHEMA)]
    )
    cut = data.draw(st.integers(0, len(rows) - 1))
    in_chunks = pa.concat_tables([stored.slice(0, cut), stored.slice(cut)])
    out = b"".join(write_batches(Fetched("t", 0, in_chunks, int(offsets[-1]) + 8)))
    batch = MemoryRecords(out).next_batch()
    assert batch.validate_crc()
    assert batch.next_offset == offsets[-1] + 8
    read = list(batch)
    assert [each.offset for each in read] == offsets.tolist()
    assert [(each.timestamp, each.key, each.value, each.headers) for each in read] == [
        (time, key, value, [*headers]) for time, key, value, headers in rows
    ]


def test_a_long_fetch_is_several_batches_that_lead_on_to_its_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ingest_api.kafka.records.writing.BATCH_RECORDS_MAX", 10)
    rows: list[Row] = [(1_000 + i, None, b"%d" % i, []) for i in range(35)]
    _, records = read_batch(memoryview(batch_of(rows)), 0, LIMIT)
    stored = pa.Table.from_batches(
        [pa.RecordBatch.from_arrays([pa.array(np.arange(35)), *combine([records]).batch.columns], schema=STORED_SCHEMA)]
    )
    reader = MemoryRecords(b"".join(write_batches(Fetched("t", 0, stored, 40))))
    ends, values = [], []
    while (batch := reader.next_batch()) is not None:
        values += [each.value for each in batch]
        ends.append(batch.next_offset)
    assert ends == [10, 20, 30, 40]
    assert values == [row[2] for row in rows]


def test_batches_count_their_offsets_in_32_bits_and_gaps_may_be_wider():
    offsets = [5, 6, 5 + 2**31, 7 + 2**31, 2**34]
    _, records = read_batch(memoryview(batch_of([(1_000, None, b"x", [])] * len(offsets))), 0, LIMIT)
    stored = pa.Table.from_batches(
        [pa.RecordBatch.from_arrays([pa.array(offsets), *combine([records]).batch.columns], schema=STORED_SCHEMA)]
    )
    reader = MemoryRecords(b"".join(write_batches(Fetched("t", 0, stored, 2**40))))
    found, ends = [], []
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        found += [each.offset for each in batch]
        ends.append(batch.next_offset)
    assert found == offsets
    # The last one reaches as far into the gap behind it as a batch can, and the reader goes on from there.
    assert ends == [7, 8 + 2**31, 2**34 + 2**31]


@pytest.mark.parametrize(("next_offset", "reached"), [(30, 30), (7 + 2**31, 7 + 2**31), (2**40, 7 + 2**31)])
def test_a_gap_is_a_batch_of_no_records(next_offset: int, reached: int):
    batch = MemoryRecords(b"".join(write_gap(7, next_offset))).next_batch()
    assert batch.validate_crc()
    assert (batch.base_offset, batch.next_offset, list(batch)) == (7, reached, [])


def test_records_without_a_timestamp_are_stamped_by_the_log(monkeypatch: pytest.MonkeyPatch):
    data = bytearray(batch_of([(0, None, b"x", [])] * 30))
    struct.pack_into(">qq", data, 27, -1, -1)
    for few in (0, 100):
        assert {row["timestamp"] for row in rows_in(sealed(data), few, monkeypatch)} == {None}


def test_very_many_headers_of_one_record_are_read(monkeypatch: pytest.MonkeyPatch):
    headers: list[tuple[str, bytes | None]] = [(f"h{i}", b"%d" % i) for i in range(500)]
    rows: list[Row] = [(5, None, b"x", headers), (5, None, b"y", []), (5, None, b"z", headers[:3])]
    assert seen(rows_in(batch_of(rows), 0, monkeypatch)) == expected(rows)


def test_the_envelope_tells_the_producer():
    envelope, _ = read_batch(memoryview(batch_of([(1, None, b"x", [])], producer=(77, 3, 12))), 0, LIMIT)
    assert (envelope.producer_id, envelope.producer_epoch, envelope.base_sequence) == (77, 3, 12)


ROWS: list[Row] = [(1_000 + i, b"k%d" % i, b"v" * i, [("h", b"x")]) for i in range(40)]


def refusal(data: bytes, limit: int = LIMIT) -> ErrorCode:
    with pytest.raises(LakelogError) as refused:
        read_batch(memoryview(data), 0, limit)
    return refused.value.code


def test_broken_batches_are_refused_with_the_reason():
    whole = batch_of(ROWS)
    assert refusal(whole[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(b"") is ErrorCode.CORRUPT_MESSAGE
    assert refusal(whole + whole) is ErrorCode.INVALID_RECORD
    assert refusal(whole[:100] + b"!" + whole[101:]) is ErrorCode.CORRUPT_MESSAGE
    old = whole[:16] + b"\x01" + whole[17:]
    assert refusal(old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    transactional = bytearray(whole)
    transactional[22] |= 0x10
    assert refusal(sealed(transactional)) is ErrorCode.INVALID_RECORD
    unknown_codec = bytearray(whole)
    unknown_codec[22] |= 7
    assert refusal(sealed(unknown_codec)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    too_many = bytearray(whole)
    struct.pack_into(">i", too_many, 57, 2_000_000_000)
    struct.pack_into(">i", too_many, 23, 1_999_999_999)
    assert refusal(sealed(too_many)) is ErrorCode.CORRUPT_MESSAGE
    misnumbered = bytearray(whole)
    struct.pack_into(">i", misnumbered, 23, 7)
    assert refusal(sealed(misnumbered)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("end", [b"\x80", b"\x80" * 9, b"\x80" * 12, b"\x81", b"\xfe" + b"\xff" * 8 + b"\x01"])
def test_numbers_that_go_on_past_the_end_or_name_more_than_there_is_are_refused(
    monkeypatch: pytest.MonkeyPatch, end: bytes
):
    whole = batch_of([(1_000, b"k", b"v" * 40, [("h", None)])] * 2)
    for place in range(1, 50):
        data = bytearray(whole)
        data[-place:] = end
        for few in (0, 100):
            assert _outcome(sealed(data), few, monkeypatch) is None


def test_damage_behind_a_good_checksum_is_found_or_harmless(monkeypatch: pytest.MonkeyPatch):
    """Both ways of reading agree on every damaged batch: the same records, or a refusal."""
    rng = random.Random(11)
    whole = batch_of(ROWS)
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(61, len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(61, len(data)) :]
        outcomes = [_outcome(sealed(data), few, monkeypatch) for few in (0, 1000)]
        assert outcomes[0] == outcomes[1]


def _outcome(data: bytes, few: int, monkeypatch: pytest.MonkeyPatch) -> list[Any] | None:
    try:
        return seen_raw(rows_in(data, few, monkeypatch))
    except LakelogError:
        return None


def seen_raw(rows: list[dict[str, Any]]) -> list[Any]:
    return [(row["key"], row["value"], row["headers"]) for row in rows]


def test_a_batch_that_unpacks_to_more_than_the_limit_is_refused():
    whole = bytearray(batch_of([(1, None, bytes(1000), [])] * 50))
    packed = gzip.compress(bytes(whole[61:]))
    whole[22] |= 1
    bomb = sealed(bytes(whole[:61]) + packed)
    assert refusal(bomb, 10_000) is ErrorCode.MESSAGE_TOO_LARGE
    read_batch(memoryview(bomb), 0, 100_000)
    assert refusal(sealed(bomb[:-20])) is ErrorCode.CORRUPT_MESSAGE


def gzipped(batch: bytes) -> bytes:
    return sealed(batch[:22] + bytes([batch[22] | 1]) + batch[23:61] + gzip.compress(batch[61:]))


def test_a_batch_is_unpacked_as_far_as_there_is_room():
    rows: list[Row] = [(1_000, None, bytes(1_000), [])] * 900
    data = gzipped(batch_of(rows))
    going_on = Reading(memoryview(data), 0, Limits(LIMIT, RECORDS_MAX))
    wanted = [going_on.wants]
    while (read := going_on.go_on(wanted[-1])) is None:
        assert going_on.go_on(wanted[-1]) is None, "it waits for its room"
        wanted.append(going_on.wants)
    assert len(read[1]) == len(rows)
    assert wanted[0] < 100_000
    assert all(more <= 2 * less for less, more in pairwise(wanted[:-1]))
    assert wanted[-1] >= 2 * 900_000, "what was unpacked, and the records"


def test_a_batch_that_is_not_compressed_takes_one_step():
    for count in (1, 100, 3_000):
        data = batch_of([(1_000, None, b"x" * 50, [])] * count)
        going_on = Reading(memoryview(data), 0, Limits(LIMIT, RECORDS_MAX))
        assert going_on.wants <= 2 * len(data)
        assert going_on.go_on(going_on.wants) is not None


def test_what_may_take_long_is_not_read_by_the_codec(monkeypatch: pytest.MonkeyPatch):
    """It holds the interpreter's lock for a whole record: 64 KB of gzip may be one with millions of headers."""
    asked: list[bool] = []
    as_lists = reading._as_lists

    def noted(*arguments: Any) -> Any:
        asked.append(True)
        return as_lists(*arguments)

    monkeypatch.setattr(reading, "_as_lists", noted)
    for header_bytes, few in ((0, True), (20, False)):
        rows: list[Row] = [(1, None, b"x", [("h", bytes(header_bytes))] * 9_000)]
        asked.clear()
        for data in (batch_of(rows), gzipped(batch_of(rows))):
            assert seen(combine([read_batch(memoryview(data), 0, LIMIT)[1]]).batch.to_pylist()) == expected(rows)
        assert asked == ([True] * 2 if few else [])


@pytest.mark.parametrize("few", [0, 100])
def test_records_and_headers_are_counted(monkeypatch: pytest.MonkeyPatch, few: int):
    monkeypatch.setattr(reading, "FEW_RECORDS", few)
    monkeypatch.setattr(reading, "CHUNK_RECORDS", 3)
    fine: Row = (1, None, b"x", [("h", b"")] * 10)
    limits = Limits(LIMIT, 100)

    def outcome(rows: list[Row]) -> ErrorCode:
        try:
            Reading(memoryview(batch_of(rows)), 0, limits).go_on(LIMIT)
        except LakelogError as error:
            return error.code
        return ErrorCode.NONE

    assert outcome([fine] * 10) is ErrorCode.NONE
    assert outcome([fine] * 10 + [(1, None, b"x", [("h", b"")])]) is ErrorCode.MESSAGE_TOO_LARGE
    assert outcome([(1, None, b"x", [])] * 100) is ErrorCode.NONE
    assert outcome([(1, None, b"x", [])] * 101) is ErrorCode.MESSAGE_TOO_LARGE


def test_the_smallest_records_take_little_beside_their_columns():
    count = 100_000
    data = memoryview(batch_of([(1_000, None, None, [])] * count))
    going_on = Reading(data, 0, Limits(LIMIT, count))
    tracemalloc.start()
    try:
        assert going_on.go_on(LIMIT) is not None
        assert tracemalloc.get_traced_memory()[1] < 120 * count
    finally:
        tracemalloc.stop()


def snappy_frame(blocks: Sequence[bytes]) -> bytes:
    packed = [pa.compress(block, codec="snappy", asbytes=True) for block in blocks]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(len(p).to_bytes(4, "big") + p for p in packed)


@pytest.mark.parametrize("framed", [True, False])
def test_snappy_comes_in_frames_from_java_and_plain_from_others(framed: bool):
    whole = bytearray(batch_of(ROWS))
    body = bytes(whole[61:])
    packed = snappy_frame([body[:300], body[300:]]) if framed else pa.compress(body, codec="snappy", asbytes=True)
    whole[22] |= 2
    _, records = read_batch(memoryview(sealed(bytes(whole[:61]) + packed)), 0, LIMIT)
    assert seen(combine([records]).batch.to_pylist()) == expected(ROWS)
    assert refusal(sealed(bytes(whole[:61]) + packed[:-5])) is ErrorCode.CORRUPT_MESSAGE


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_varints_in_columns_are_varints(numbers: list[int]):
    zigzags = zigzag(np.array(numbers, dtype=np.int64))
    width = widths(zigzags)
    rows = VarintRows(width)
    rows.varint(zigzags, width)
    column = rows.column().to_pylist()
    assert [read_varint(each, 0) for each in column] == [(n, len(c)) for n, c in zip(numbers, column, strict=True)]
    data = np.frombuffer(b"".join(column), dtype=np.uint8)
    starts = np.concatenate(([0], np.cumsum(width)[:-1])).astype(np.int64)
    values, after = read_varints(data, starts)
    assert values.tolist() == numbers
    assert after.tolist() == np.cumsum(width).tolist()


@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=2_000), st.sampled_from([1, 50, 5_000]))
def test_what_is_packed_unpacks_to_what_it_was(codec: str, data: bytes, times: int):
    packed = pack(memoryview(data * times), CODECS[codec])
    assert unpack(memoryview(packed), CODECS[codec], LIMIT) == data * times


def test_what_does_not_get_smaller_hardly_grows():
    data = random.Random(6).randbytes((4 << 20) + 70_000)
    for codec in CODECS.values():
        packed = pack(memoryview(data), codec)
        assert unpack(memoryview(packed), codec, LIMIT) == data
        assert len(packed) < len(data) + 10_000


def test_a_varint_without_an_end_is_refused():
    endless = b"\xff" * 11
    with pytest.raises(TooLong):
        read_varint(endless, 0)
    with pytest.raises(TooLong):
        read_varints(np.frombuffer(endless, dtype=np.uint8), np.zeros(1, dtype=np.int64))
