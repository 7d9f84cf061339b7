"""Compressed batches: packed for who fetches, and unpacked within a limit, as a few bytes may stand for very many."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeAlias

import pyarrow as pa

from lakelog.errors import ErrorCode, LakelogError

# What records are read from.
Body: TypeAlias = bytes | bytearray | memoryview

_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
# By their names in a topic's compression.type. What is not here is sent as it is.
CODECS = {"gzip": _GZIP, "snappy": _SNAPPY, "lz4": _LZ4, "zstd": _ZSTD}
_STREAMED = {_GZIP: "gzip", _LZ4: "lz4", _ZSTD: "zstd"}
# What the Java client puts around snappy's blocks: a magic word, two versions, then each block after its length.
_FRAMED_SNAPPY = b"\x82SNAPPY\x00"
_FRAME_HEADER_BYTES = 16
_STEP_BYTES = 1 << 20
# The Java client reads LZ4 frames whose blocks stand by themselves, which Arrow's own writer does not make. So this is
# the head of such a frame (version 1, blocks of up to 4 MiB, and the checksum of that); each block comes after its
# length.
_LZ4_HEAD = bytes.fromhex("04224d18607073")
_LZ4_BLOCK_BYTES_MAX = 4 << 20
_LZ4_AS_IT_IS = 1 << 31
_LZ4_END = bytes(4)


def pack(data: memoryview, codec: int) -> bytes | memoryview:
    """The records of a batch as clients of Kafka expect them under this codec."""
    if codec == _NONE:
        return data
    if codec == _SNAPPY:
        return bytes(pa.compress(pa.py_buffer(data), codec="snappy", asbytes=True))
    if codec == _LZ4:
        return _pack_lz4(data)
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, _STREAMED[codec]) as stream:
        stream.write(data)
    return memoryview(packed.getvalue())


def _pack_lz4(data: memoryview) -> bytes:
    codec, pieces = pa.Codec("lz4_raw"), [_LZ4_HEAD]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES_MAX):
        block = data[start : start + _LZ4_BLOCK_BYTES_MAX]
        packed = codec.compress(pa.py_buffer(block), asbytes=True)
        if len(packed) < len(block):
            pieces += [len(packed).to_bytes(4, "little"), packed]
        else:
            pieces += [(len(block) | _LZ4_AS_IT_IS).to_bytes(4, "little"), bytes(block)]
    return b"".join([*pieces, _LZ4_END])


def unpacking(data: memoryview, codec: int, bytes_max: int, room: int) -> Generator[int, None, Body]:
    """The records of a batch as they were before the producer compressed them. How much that will be nobody knows: so
    it is done by and by, into `room` bytes at first, and each yield says how many it takes to go on.
    """
    if codec == _NONE:
        return data
    try:
        if codec == _SNAPPY:
            return (yield from _unpacking_snappy(data, bytes_max))
        if codec in _STREAMED:
            return (yield from _unpacking_stream(data, _STREAMED[codec], bytes_max, room))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise LakelogError(ErrorCode.CORRUPT_MESSAGE, f"the batch can't be decompressed: {error}") from None
    raise LakelogError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {codec}")


def _unpacking_stream(data: memoryview, codec: str, bytes_max: int, room: int) -> Generator[int, None, Body]:
    body = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        while piece := stream.read(min(_STEP_BYTES, room - len(body))):
            body += piece
            _check(len(body), bytes_max)
            if len(body) == room:
                room = min(2 * room, bytes_max + 1)
                yield room
    return body


def _unpacking_snappy(data: memoryview, bytes_max: int) -> Generator[int, None, Body]:
    size = sum(map(_snappy_size, _snappy_blocks(data)))
    _check(size, bytes_max)
    yield size
    body = bytearray()
    for block in _snappy_blocks(data):
        body += pa.decompress(block, _snappy_size(block), "snappy", asbytes=True)
    return body


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if bytes(data[: len(_FRAMED_SNAPPY)]) != _FRAMED_SNAPPY:
        yield data
        return
    at = _FRAME_HEADER_BYTES
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise ValueError("a block ends past the end")
        yield data[at + 4 : end]
        at = end


def _snappy_size(block: memoryview) -> int:
    size = 0
    for place, byte in enumerate(block[:5]):  # a block begins with its length, as a plain varint
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return size


def _check(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise LakelogError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch is larger than {bytes_max} bytes once it is decompressed"
        )
