"""Records that two systems are given alike: the same bytes as lines for the one, and as columns for the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelog.model.batch import Records, from_arrow
from tests.bench.report import sample_records

KEY_BYTES = 8
VALUE_BYTES = 100
RECORD_BYTES = KEY_BYTES + VALUE_BYTES
PIECE = 100_000

Bytes2d = npt.NDArray[np.uint8]


class Lines:
    """So many records, whose keys are drawn from `keys` different ones, or which have none. The same at every turn."""

    def __init__(self, count: int, *, keys: int = 0) -> None:
        self.count = count
        self._keys = keys

    def records(self) -> Iterator[Records]:
        for keys, values in self._pieces():
            columns = {"key": _column(keys)} if self._keys else {}
            yield from_arrow(pa.record_batch({**columns, "value": _column(values)}))

    def lines(self) -> Iterator[bytes]:
        """Key, tabulator, value, end of line; without keys the value alone."""
        for keys, values in self._pieces():
            parts = [keys, _constant(len(values), "\t")] if self._keys else []
            yield np.hstack([*parts, values, _constant(len(values), "\n")]).tobytes()

    def _pieces(self) -> Iterator[tuple[Bytes2d, Bytes2d]]:
        random = np.random.default_rng(7)
        values = np.frombuffer(sample_records(PIECE).batch.column("value").buffers()[2], dtype=np.uint8)
        table = values[: PIECE * VALUE_BYTES].reshape(PIECE, VALUE_BYTES)
        for start in range(0, self.count, PIECE):
            size = min(PIECE, self.count - start)
            yield _digits(random.integers(0, max(1, self._keys), size)), table[random.permutation(PIECE)[:size]]


def _digits(numbers: npt.NDArray[np.int64]) -> Bytes2d:
    powers = 10 ** np.arange(KEY_BYTES - 1, -1, -1)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def _constant(count: int, character: str) -> Bytes2d:
    return np.full((count, 1), ord(character), dtype=np.uint8)


def _column(rows: Bytes2d) -> pa.Array:
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
