"""The types of Kafka's protocol, read from bytes and written to them.

Owns the layouts of numbers, texts, arrays and tagged fields, and the bounds that hold while bytes are read that
anybody may have sent: nothing is made that is larger than the bytes that stand for it, and an array is no longer than
what is left of the request. What the fields mean must not be known here.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

# Reads a value at a position; gives it and the position after it.
Read: TypeAlias = Callable[["Cursor"], Any]
# Adds a value's bytes to the pieces of a message.
Write: TypeAlias = Callable[[list[bytes | memoryview], Any], None]

# The elements of all arrays of one request. A fetch of every partition of a large cluster stays below.
ELEMENTS_MAX = 100_000
_VARINT_BITS_MOST = 28
_NO_UUID = bytes(16)


class Malformed(Exception):
    """The bytes are not what they should be: there is nobody to answer, the connection ends."""


class Cursor:
    """A place in the bytes of a request."""

    __slots__ = ("at", "data", "elements_left")

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.data = memoryview(data)
        self.at = at
        self.elements_left = ELEMENTS_MAX

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise Malformed(f"{size} bytes are announced and {len(self.data) - self.at} are left")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def unsigned_varint(self) -> int:
        value, shift = 0, 0
        while True:
            if self.at >= len(self.data):
                raise Malformed("a number goes on past the end")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > _VARINT_BITS_MOST:
                raise Malformed("a number goes on past 32 bits")

    def elements(self, count: int) -> int:
        """How many elements follow, if there can be so many. Each takes a byte at the least."""
        if count > len(self.data) - self.at or count > self.elements_left:
            raise Malformed(f"an array of {count} elements in {len(self.data) - self.at} bytes")
        self.elements_left -= count
        return count


def _fixed(layout: str) -> tuple[Read, Write]:
    packed = struct.Struct(">" + layout)
    size, unpack_from, pack = packed.size, packed.unpack_from, packed.pack

    def read(cursor: Cursor) -> Any:
        at = cursor.at
        if at + size > len(cursor.data):
            raise Malformed("the request ends in the middle of a number")
        cursor.at = at + size
        return unpack_from(cursor.data, at)[0]

    def write(pieces: list[bytes | memoryview], value: Any) -> None:
        pieces.append(pack(value))

    return read, write


def write_unsigned_varint(pieces: list[bytes | memoryview], value: int) -> None:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    pieces.append(bytes(out))


read_int16, write_int16 = _fixed("h")
read_int32, write_int32 = _fixed("i")


def _bytes(*, flexible: bool, length: tuple[Read, Write]) -> tuple[Read, Write]:
    """Bytes after their length, which is one more in the compact form, so that 0 says null."""
    read_length, write_length = length

    def read(cursor: Cursor) -> memoryview | None:
        size = cursor.unsigned_varint() - 1 if flexible else read_length(cursor)
        return None if size == -1 else cursor.take(size)

    def write(pieces: list[bytes | memoryview], value: bytes | memoryview | list[bytes | memoryview] | None) -> None:
        many = value if isinstance(value, list) else [] if value is None else [value]
        size = -1 if value is None else sum(map(len, many))
        if flexible:
            write_unsigned_varint(pieces, size + 1)
        else:
            write_length(pieces, size)
        pieces.extend(many)

    return read, write


def _text(raw: tuple[Read, Write]) -> tuple[Read, Write]:
    read_bytes, write_bytes = raw

    def read(cursor: Cursor) -> str | None:
        found = read_bytes(cursor)
        try:
            return None if found is None else str(found, "utf-8")
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def write(pieces: list[bytes | memoryview], value: str | None) -> None:
        write_bytes(pieces, None if value is None else value.encode())

    return read, write


def _read_uuid(cursor: Cursor) -> uuid.UUID | None:
    raw = bytes(cursor.take(16))
    return None if raw == _NO_UUID else uuid.UUID(bytes=raw)


def _write_uuid(pieces: list[bytes | memoryview], value: uuid.UUID | None) -> None:
    pieces.append(_NO_UUID if value is None else value.bytes)


_INT32, _INT64 = _fixed("i"), _fixed("q")
# By kio's names of types. Times and spans of time are their milliseconds, errors their numbers.
_NUMBERS: dict[str, tuple[Read, Write]] = {
    "bool": _fixed("?"),
    "int8": _fixed("b"),
    "int16": _fixed("h"),
    "int32": _INT32,
    "int64": _INT64,
    "uint8": _fixed("B"),
    "uint16": _fixed("H"),
    "uint32": _fixed("I"),
    "uint64": _fixed("Q"),
    "float64": _fixed("d"),
    "error_code": _fixed("h"),
    "timedelta_i32": _INT32,
    "timedelta_i64": _INT64,
    "datetime_i64": _INT64,
    "uuid": (_read_uuid, _write_uuid),
}
_COMPACT_BYTES = _bytes(flexible=True, length=_INT32)
_LEGACY_BYTES = _bytes(flexible=False, length=_INT32)
_COMPACT_TEXT = _text(_COMPACT_BYTES)
LEGACY_TEXT = _text(_bytes(flexible=False, length=_fixed("h")))


def primitive(kind: str, *, flexible: bool, nullable: bool) -> tuple[Read, Write]:
    if kind in _NUMBERS:
        return _NUMBERS[kind]
    if kind == "string":
        pair = _COMPACT_TEXT if flexible else LEGACY_TEXT
    else:  # bytes, records
        pair = _COMPACT_BYTES if flexible else _LEGACY_BYTES
    return pair if nullable else (_required(pair[0]), pair[1])


def _required(read: Read) -> Read:
    def checked(cursor: Cursor) -> Any:
        value = read(cursor)
        if value is None:
            raise Malformed("null where a value has to be")
        return value

    return checked


def array(element: tuple[Read, Write], *, flexible: bool, nullable: bool) -> tuple[Read, Write]:
    read_element, write_element = element

    def read(cursor: Cursor) -> list[Any] | None:
        count = cursor.unsigned_varint() - 1 if flexible else read_int32(cursor)
        if count < 0:
            if count == -1 and nullable:
                return None
            raise Malformed(f"an array of {count} elements")
        return [read_element(cursor) for _ in range(cursor.elements(count))]

    def write(pieces: list[bytes | memoryview], values: Any) -> None:
        count = -1 if values is None else len(values)
        if flexible:
            write_unsigned_varint(pieces, count + 1)
        else:
            write_int32(pieces, count)
        for value in values or ():
            write_element(pieces, value)

    return read, write
