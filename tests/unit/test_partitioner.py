import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.log.partitioner import murmur2, partition_by_key


def scalar_murmur2(key: bytes) -> int:
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail := key[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def column(keys: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(keys, type=pa.binary())


KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
}


@pytest.mark.parametrize(("key", "expected"), KAFKA_VECTORS.items())
def test_kafkas_own_vectors(key: bytes, expected: int):
    assert murmur2(column([key])).tolist() == [expected]
    assert scalar_murmur2(key) == expected


def test_kafkas_own_vectors_side_by_side():
    assert murmur2(column(list(KAFKA_VECTORS))).tolist() == list(KAFKA_VECTORS.values())


KEYS = st.lists(st.none() | st.binary(max_size=50))


@given(KEYS, st.integers(0, 20), st.integers(0, 20), st.integers(1, 10_000))
def test_as_the_scalar_hash_says(keys: list[bytes | None], skip: int, drop: int, partitions: int):
    keyless = partitions + 7
    sliced = column(keys)[skip : max(skip, len(keys) - drop)]
    chosen = partition_by_key(sliced, partitions, keyless)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [
        keyless if key is None else (scalar_murmur2(key) & 0x7FFFFFFF) % partitions for key in sliced.to_pylist()
    ]


@pytest.mark.parametrize("long_keys", [1, 39, 40, 100])
def test_long_keys_among_short_ones_over_several_blocks(long_keys: int):
    rng = random.Random(long_keys)
    keys: list[bytes | None] = [rng.randbytes(rng.randrange(30)) for _ in range(20_000)]
    for _ in range(long_keys):
        keys[rng.randrange(len(keys))] = rng.randbytes(rng.randrange(250, 3000))
    assert murmur2(column(keys)).tolist() == [scalar_murmur2(key) for key in keys if key is not None]


def test_a_key_of_a_megabyte():
    key = random.Random(1).randbytes(2**20 + 3)
    assert murmur2(column([b"a", key, b"b"])).tolist() == [scalar_murmur2(k) for k in (b"a", key, b"b")]


def test_nulls_that_hide_bytes_do_not_shift_their_neighbours():
    offsets, data = np.array([0, 2, 5, 8], dtype=np.int32), b"21xxxabc"
    valid = pa.py_buffer(bytes([0b101]))
    keys = pa.Array.from_buffers(pa.binary(), 3, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])
    hashes = murmur2(keys)
    assert (hashes[0], hashes[2]) == (-973932308, 479470107)
    assert partition_by_key(keys, 1, keyless=5).tolist() == [0, 5, 0]


def test_columns_without_a_single_byte():
    assert murmur2(column([])).tolist() == []
    assert partition_by_key(column([]), 3, keyless=0).tolist() == []
    assert murmur2(column([b"", b""])).tolist() == [275646681, 275646681]
    assert partition_by_key(pa.nulls(3, pa.binary()), 4, keyless=2).tolist() == [2, 2, 2]


def test_other_columns_are_refused():
    with pytest.raises(TypeError, match="int64"):
        murmur2(pa.array([1, 2]))
