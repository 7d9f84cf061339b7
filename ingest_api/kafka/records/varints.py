"""Zigzag varints in columns: as many as there are records, in a few passes over arrays.

Owns the arithmetic alone. What the numbers mean, and whether a position lies where it should, must not be known here:
`read_varints` reads whatever stands at a position, the last byte for one that is beyond the end, and never goes back.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelog.model.batch import Int32s, Int64s

Bytes: TypeAlias = npt.NDArray[np.uint8]

_BITS_MOST = 63


class TooLong(ValueError):
    """A number goes on past 64 bits."""


def read_varints(data: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """The number at each position, and the position after it."""
    first = data.take(at, mode="clip")
    raw = first.astype(np.int64)
    after = at + 1
    if len(first) and first.max() >= 0x80:
        raw &= 0x7F
        longer = np.flatnonzero(first >= 0x80)
        shift = 7
        while len(longer):
            if shift > _BITS_MOST:
                raise TooLong
            byte = data.take(after[longer], mode="clip")
            raw[longer] |= (byte & 0x7F).astype(np.int64) << shift
            after[longer] += 1
            longer = longer[byte >= 0x80]
            shift += 7
    # Unsigned for the shift, or the sign would be drawn in from the left.
    halves = (raw.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return halves ^ -(raw & 1), after


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """One number; IndexError where the bytes end."""
    raw, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
        if shift > _BITS_MOST:
            raise TooLong


def zigzag(numbers: Int64s) -> npt.NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def widths(zigzags: npt.NDArray[np.uint64]) -> Int32s:
    """How many bytes each number takes."""
    found = np.ones(len(zigzags), dtype=np.int32)
    most = int(zigzags.max()) if len(zigzags) else 0
    shift = 7
    while most >> shift:
        found += zigzags >= np.uint64(1 << shift)
        shift += 7
    return found


class VarintRows:
    """Rows that each begin empty and get one number after the other; they end up as a binary column."""

    def __init__(self, row_bytes: Int32s) -> None:
        """`row_bytes` is how long each row will be."""
        self._offsets = np.zeros(len(row_bytes) + 1, dtype=np.int32)
        np.cumsum(row_bytes, out=self._offsets[1:])
        self._at = self._offsets[:-1].astype(np.int64)
        self._bytes: Bytes = np.empty(int(self._offsets[-1]), dtype=np.uint8)

    def byte(self, value: int) -> None:
        self._bytes[self._at] = value
        self._at += 1

    def varint(self, zigzags: npt.NDArray[np.uint64], width: Int32s) -> None:
        most = int(width.max()) if len(width) else 0
        if most == 1:
            self._bytes[self._at] = zigzags
        elif len(width) and most == width.min():
            rest = zigzags.copy()
            for place in range(most):
                more = 0x80 if place < most - 1 else 0
                self._bytes[self._at + place] = (rest & np.uint64(0x7F)) | np.uint64(more)
                rest >>= np.uint64(7)
        else:
            rest, at, left = zigzags, self._at, width
            while len(rest):
                self._bytes[at] = (rest & np.uint64(0x7F)) | np.where(left > 1, np.uint64(0x80), np.uint64(0))
                going_on = left > 1
                rest, at, left = rest[going_on] >> np.uint64(7), at[going_on] + 1, left[going_on] - 1
        self._at += width

    def column(self) -> pa.Array:
        return pa.Array.from_buffers(
            pa.binary(), len(self._offsets) - 1, [None, pa.py_buffer(self._offsets), pa.py_buffer(self._bytes)]
        )
