"""Segments as Parquet: the same rows back in every codec, in row groups that are small and say what they hold."""

from __future__ import annotations

import asyncio
import uuid
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config import TOPIC_ROWS, OneOf
from lakelog.delta.parquet import (
    ROW_GROUP_BYTES,
    SegmentFile,
    codec_for,
    encode_segment,
    rows_per_group,
    timestamp_range_us,
)
from lakelog.delta.store import Store, open_store
from lakelog.model.batch import STORED_SCHEMA

BYTES = st.none() | st.binary(max_size=20)
HEADER_LISTS = st.none() | st.lists(st.tuples(st.text(max_size=4), BYTES), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(0, 2**50), BYTES, BYTES, HEADER_LISTS), min_size=1, max_size=20)
CODECS = sorted(
    {codec_for(name, merged=merged) for name in ("producer", "none", "snappy", "gzip") for merged in (False, True)}
)


def stored(records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]], base: int = 0):
    times, keys, values, headers = zip(*records, strict=True)
    columns = [range(base, base + len(records)), times, keys, values, headers]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, STORED_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=STORED_SCHEMA)


def sized(count: int, value_bytes: int, base: int = 0) -> pa.RecordBatch:
    return stored([(n, b"k", bytes(value_bytes), None) for n in range(count)], base)


def read(data: pa.Buffer | bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data)).cast(STORED_SCHEMA)


@given(RECORDS, st.sampled_from(CODECS))
def test_rows_come_back_in_every_codec(records: list, codec: str):
    rows = stored(records)
    assert read(encode_segment(rows, codec)).equals(pa.Table.from_batches([rows]))


@given(RECORDS, st.lists(st.integers(0, 20), max_size=4), st.sampled_from(CODECS))
def test_a_file_written_piece_by_piece_holds_the_same_rows(records: list, cuts: list[int], codec: str):
    rows = stored(records)
    store = open_store(f"memory://{uuid.uuid4().hex}")
    file = SegmentFile(lambda: store.writer("t/file"), codec)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, end in pairwise(edges):
        file.write(rows.slice(start, end - start))
    size = file.close()
    data = finished(store, "t/file")
    assert data is not None
    assert size == len(data)
    assert read(data).equals(pa.Table.from_batches([rows]))


def finished(store: Store, path: str) -> bytes | None:
    return asyncio.run(store.get(path))


@pytest.mark.parametrize(("count", "value_bytes"), [(1, 10), (50_000, 100), (40, 300_000), (3, 3 * ROW_GROUP_BYTES)])
def test_row_groups_are_small_and_tell_their_ranges(count: int, value_bytes: int):
    rows = sized(count, value_bytes, base=1_000)
    metadata = pq.read_metadata(pa.BufferReader(encode_segment(rows, "none")))
    offset = 1_000
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        assert group.total_byte_size <= 2 * ROW_GROUP_BYTES or group.num_rows == 1
        by_name = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
        assert (by_name["offset"].statistics.min, by_name["offset"].statistics.max) == (
            offset,
            offset + group.num_rows - 1,
        )
        assert by_name["timestamp"].statistics.has_min_max
        # Bytes of keys and values in a footer would make it as large as the records.
        assert not by_name["value"].is_stats_set
        offset += group.num_rows
    assert offset == 1_000 + count
    whole = count * (value_bytes + 17)
    assert metadata.num_row_groups >= min(count, whole // (2 * ROW_GROUP_BYTES))


def test_a_streamed_file_has_row_groups_of_the_same_size():
    store = open_store(f"memory://{uuid.uuid4().hex}")
    file = SegmentFile(lambda: store.writer("t/file"), "none")
    for n in range(100):
        file.write(sized(1_000, 100, base=n * 1_000))
    file.close()
    metadata = pq.read_metadata(pa.BufferReader(finished(store, "t/file")))
    sizes = [metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)]
    assert max(sizes) <= 2 * ROW_GROUP_BYTES
    assert len(sizes) <= 12


def test_a_file_that_was_not_finished_is_not_there():
    store = open_store(f"memory://{uuid.uuid4().hex}")
    SegmentFile(lambda: store.writer("t/file"), "none").write(sized(ROW_GROUP_BYTES // 100, 100))
    assert finished(store, "t/file") is None


def test_every_compression_type_has_a_codec_that_parquet_knows():
    kind = TOPIC_ROWS["compression.type"].kind
    assert isinstance(kind, OneOf)
    for name in kind.values:
        for merged in (False, True):
            assert read(encode_segment(sized(3, 5), codec_for(name, merged=merged))).num_rows == 3


def test_the_tail_is_written_fast_and_what_stays_is_written_small():
    assert codec_for("producer", merged=False) == "lz4"
    assert codec_for("producer", merged=True) == "zstd"
    assert codec_for("gzip", merged=False) == codec_for("gzip", merged=True) == "gzip"


@given(RECORDS)
def test_the_range_of_times(records: list):
    times = [record[0] for record in records]
    assert timestamp_range_us(stored(records)) == (min(times), max(times))


def test_at_least_one_row_makes_a_group():
    assert rows_per_group(sized(1, 4 * ROW_GROUP_BYTES)) == 1
    assert rows_per_group(sized(10, 0)) == 10


def test_no_group_is_left_with_a_few_rows():
    assert rows_per_group(sized(1000, int(1.2 * ROW_GROUP_BYTES / 1000))) == 1000
    assert rows_per_group(sized(1000, int(2.2 * ROW_GROUP_BYTES / 1000))) == 500
