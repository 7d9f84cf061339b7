"""The envelope of a record batch: its 61 bytes of header, checked and made.

Owns where each field stands and what may be said of a batch before its records are looked at.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from lakelog.errors import ErrorCode, LakelogError

MAGIC = 2
NO_PRODUCER = -1
NO_TIMESTAMP = -1
# base offset, length, leader epoch, magic, crc | attributes, last offset delta, base and max timestamp, producer id,
# producer epoch, base sequence, record count
_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiib")
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21
# The length in the header counts from here on.
_LENGTH_FROM = 12

_CODEC_BITS = 0x07
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a batch that was sent says of itself."""

    codec: int
    base_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


def open_batch(data: memoryview) -> tuple[Envelope, memoryview]:
    """The envelope of the one batch that a producer sends to a partition, and the bytes of its records."""
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] < MAGIC:
        raise LakelogError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"messages of format {data[_MAGIC_AT]}; only record batches (format {MAGIC}, since Kafka 0.11) are taken",
        )
    if len(data) < HEADER_BYTES:
        raise LakelogError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {len(data)} bytes")
    (_, length, _, magic, crc, attributes, last_delta, base_ms, _, producer_id, epoch, sequence, count) = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC:
        raise LakelogError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"messages of format {magic}, which nobody knows")
    end = _LENGTH_FROM + length
    if length < HEADER_BYTES - _LENGTH_FROM or end > len(data):
        raise LakelogError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(data)} bytes says that it has {end}")
    if end < len(data):
        raise LakelogError(ErrorCode.INVALID_RECORD, "more than one record batch for a partition in one request")
    if crc32c(data[_CRC_FROM:]) != crc:
        raise LakelogError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
    if attributes & (_TRANSACTIONAL | _CONTROL):
        raise LakelogError(ErrorCode.INVALID_RECORD, "transactions are not supported")
    if count <= 0 or last_delta != count - 1:
        raise LakelogError(ErrorCode.INVALID_RECORD, f"{count} records, and the last one is number {last_delta}")
    if producer_id != NO_PRODUCER and (sequence < 0 or epoch < 0):
        raise LakelogError(ErrorCode.INVALID_RECORD, "a producer id without an epoch and a sequence")
    envelope = Envelope(attributes & _CODEC_BITS, base_ms, producer_id, epoch, sequence, count)
    return envelope, data[HEADER_BYTES:]


def plain_header(envelope: Envelope, body_bytes: int) -> bytes:
    """What stands before records that are not compressed, or no longer, for who reads them and checks nothing."""
    length, last_delta, base_ms = (
        HEADER_BYTES - _LENGTH_FROM + body_bytes,
        envelope.count - 1,
        envelope.base_timestamp_ms,
    )
    return _HEADER.pack(0, length, 0, MAGIC, 0, 0, last_delta, base_ms, base_ms, NO_PRODUCER, -1, -1, envelope.count)


def is_compressed(data: memoryview) -> bool:
    """Whether there may be far more in a batch than its bytes, as far as can be told before it is checked."""
    return len(data) >= HEADER_BYTES and data[_CRC_FROM + 1] & _CODEC_BITS != 0


def seal_batch(
    records: bytes | memoryview,
    *,
    base_offset: int,
    last_offset: int,
    count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    leader_epoch: int = 0,
    codec: int = 0,
) -> list[bytes | memoryview]:
    """A batch around records, which are compressed by `codec`, in pieces that make it up one after the other."""
    after_crc = _AFTER_CRC.pack(
        codec, last_offset - base_offset, base_timestamp_ms, max_timestamp_ms, NO_PRODUCER, -1, -1, count
    )
    crc = crc32c(records, crc32c(after_crc))
    length = HEADER_BYTES - _LENGTH_FROM + len(records)
    before = _BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC)
    return [before + crc.to_bytes(4, "big") + after_crc, records]
