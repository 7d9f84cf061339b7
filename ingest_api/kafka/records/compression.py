"""Compressed batches: packed for who fetches, and unpacked within a limit, as a few bytes may stand for very many."""

from __future__ import annotations

import pyarrow as pa

from lakelog.errors import ErrorCode, LakelogError

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


def unpack(data: memoryview, codec: int, bytes_max: int) -> bytes | memoryview:
    """The records of a batch as they were before the producer compressed them."""
    if codec == _NONE:
        return data
    try:
        if codec == _SNAPPY:
            return _unpack_snappy(data, bytes_max)
        if codec in _STREAMED:
            return _unpack_stream(data, _STREAMED[codec], bytes_max)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise LakelogError(ErrorCode.CORRUPT_MESSAGE, f"the batch can't be decompressed: {error}") from None
    raise LakelogError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {codec}")


def _unpack_stream(data: memoryview, codec: str, bytes_max: int) -> bytes:
    pieces, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        while piece := stream.read(_STEP_BYTES):
            size += len(piece)
            _check(size, bytes_max)
            pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unpack_snappy(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[: len(_FRAMED_SNAPPY)]) != _FRAMED_SNAPPY:
        return _snappy_block(data, bytes_max)
    pieces, size, at = [], 0, _FRAME_HEADER_BYTES
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise ValueError("a block ends past the end")
        piece = _snappy_block(data[at + 4 : end], bytes_max - size)
        size += len(piece)
        pieces.append(piece)
        at = end
    return b"".join(pieces)


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    size = 0
    for place, byte in enumerate(block[:5]):  # a block begins with its length, as a plain varint
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    _check(size, bytes_max)
    return bytes(pa.decompress(pa.py_buffer(block), size, "snappy"))


def _check(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise LakelogError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch is larger than {bytes_max} bytes once it is decompressed"
        )
