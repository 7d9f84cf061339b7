"""Arrow bodies, read within a limit on what they come to.

A few bytes of Arrow can stand for very many: buffers may be compressed, rows may all point to one long value. So what a
body would come to is added up from what it says of itself, before anything of that size is made, and whoever reads it
finds room for that first. Arrow's reader tells nothing of compression, hence the look into its messages, whose layout
is in Arrow's `Message.fbs`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest_api.bodies import too_large
from ingest_api.errors import HttpError

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
# Where the fields stand that are of use here: in Message, DictionaryBatch and RecordBatch.
_HEADER_TYPE, _HEADER = 1, 2
_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
_VIEW_BYTES = 16


def reading_arrow(body: bytes, bytes_max: int) -> Generator[int, None, pa.Table]:
    """Each yield says how many bytes are made beside the body when it goes on."""
    try:
        packed = _packed_bytes(pa.py_buffer(body), bytes_max)
        if packed:
            yield packed
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            table = stream.read_all()
        # A body may say anything of its own buffers: nothing looks into them before this has.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, OverflowError, struct.error) as error:
        raise HttpError(400, f"the body is not an Arrow stream: {error}") from None
    size = sum(_expanded_bytes(chunk) for column in table.columns for chunk in column.chunks)
    if size > bytes_max:
        raise too_large(bytes_max)
    if size > len(body) + packed:
        yield size - len(body) - packed
    return table


def _packed_bytes(body: pa.Buffer, bytes_max: int) -> int:
    """What the compressed buffers of all messages come to."""
    reader = pa.BufferReader(body)
    size = 0
    while reader.tell() < body.size:
        try:
            message = pa.ipc.read_message(reader)
        except EOFError:  # the mark at the end of a stream
            break
        if message.body is not None:
            size += _unpacked_bytes(memoryview(message.metadata), memoryview(message.body))
        if size > bytes_max:
            raise too_large(bytes_max)
    return size


def _unpacked_bytes(metadata: memoryview, body: memoryview) -> int:
    """The bytes of a message's buffers once they are unpacked, as each of them says at its beginning."""
    message = _u32(metadata, 0)
    kind, batch = _field(metadata, message, _HEADER_TYPE), _follow(metadata, _field(metadata, message, _HEADER))
    if kind is None or batch is None or metadata[kind] not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return 0
    if metadata[kind] == _DICTIONARY_BATCH:
        batch = _follow(metadata, _field(metadata, batch, _DATA))
    if batch is None or _field(metadata, batch, _COMPRESSION) is None:
        return 0
    buffers = _follow(metadata, _field(metadata, batch, _BUFFERS))
    if buffers is None:
        return 0
    size = 0
    for index in range(_u32(metadata, buffers)):
        start, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * index)
        if length >= 8:
            (unpacked,) = struct.unpack_from("<q", body, start)
            size += max(unpacked, 0)  # -1 for one that was left as it is
    return size


def _u32(data: memoryview, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Where a table of a flatbuffer has one of its fields, or None if it does not have it."""
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    place = 4 + 2 * number
    (size,) = struct.unpack_from("<H", data, fields)
    (distance,) = struct.unpack_from("<H", data, fields + place) if place < size else (0,)
    return table + int(distance) if distance else None


def _follow(data: memoryview, place: int | None) -> int | None:
    return None if place is None else place + _u32(data, place)


def _expanded_bytes(array: pa.Array) -> int:
    """What an array comes to when each row has its value to itself."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        if not _is_plain(kind.value_type):
            raise HttpError(422, f"dictionaries of {kind.value_type} are not taken")
        lengths = pc.binary_length(array.dictionary)
        return int(pc.sum(lengths.cast(pa.int64()).take(array.indices)).as_py() or 0)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _viewed_bytes(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return int(array.nbytes) + _expanded_bytes(array.flatten() if not pa.types.is_map(kind) else array.values)
    if pa.types.is_struct(kind):
        return sum(map(_expanded_bytes, array.flatten()))
    if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        raise HttpError(422, f"columns of {kind} are not taken")
    return int(array.nbytes)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _viewed_bytes(array: pa.Array) -> int:
    """A view begins with its length."""
    if array.null_count == len(array):
        return 0
    views = np.frombuffer(array.buffers()[1], dtype=np.int32)[:: _VIEW_BYTES // 4]
    lengths = views[array.offset : array.offset + len(array)].astype(np.int64)
    return int(lengths[pc.is_valid(array).to_numpy(zero_copy_only=False)].sum())
