"""Fetched records to bodies.

JSON is put together column by column in Arrow's own code: the constant parts of a record, the offsets as text, the keys
and values as they are embedded. A column's values are one buffer there, so a body of many records is a slice of it.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest_api.encoding.utf8 import is_utf8
from ingest_api.errors import HttpError
from ingest_api.media import Embedded
from lakelog.fetch import Fetched
from lakelog.model.batch import STORED_SCHEMA

NULL = b"null"
PAD = ord("=")
STEP_RECORDS = 8192

# What a value lacks to be made of whole threes of bytes, as base64 wants it.
_FILLINGS = pa.array([b"", b"\0", b"\0\0"], pa.binary())
_NOTHING = Fetched("", 0, STORED_SCHEMA.empty_table(), 0)
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


def json_list(replies: Sequence[Fetched], embedded: Embedded) -> bytes:
    """One JSON list of the records of all replies, in their order."""
    parts = [_joined(some, embedded, b"", b",") for reply in replies for some in _by_steps(reply)]
    # The last one's comma stays out. Everything is copied once, into the body.
    return b"".join((b"[", *parts[:-1], *(part[:-1] for part in parts[-1:]), b"]"))


def _by_steps(reply: Fetched) -> Iterator[Fetched]:
    """A reply piece by piece: what is made on the way to its text is several times its size."""
    for start in range(0, reply.rows.num_rows, STEP_RECORDS):
        yield replace(reply, rows=reply.rows.slice(start, STEP_RECORDS))


def json_lines(reply: Fetched, embedded: Embedded) -> memoryview:
    return _joined(_on_one_line(reply, embedded), embedded, b"", b"\n")


def events(reply: Fetched, embedded: Embedded, event_ids: pa.Array | None = None) -> memoryview:
    """Server-sent events, one a record, with an id each if there are some."""
    one_line = _on_one_line(reply, embedded)
    prefix: bytes | pa.Array = b"data: "
    if event_ids is not None:
        prefix = pc.binary_join_element_wise(_bytes("id: "), event_ids, _bytes("\ndata: "), _bytes(""))
    return _joined(one_line, embedded, prefix, b"\n\n")


def arrow_stream(replies: Sequence[Fetched], *, with_topics: bool = False) -> pa.Buffer:
    """One Arrow stream of the records of all replies; a column says of which partition each is, and of which topic."""
    names = list(dict.fromkeys(reply.topic for reply in replies)) if with_topics else None
    tables = [_with_place(reply, names) for reply in replies if reply.rows.num_rows]
    table = pa.concat_tables(tables) if tables else _with_place(_NOTHING, None if names is None else [])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _with_place(reply: Fetched, names: list[str] | None) -> pa.Table:
    count = reply.rows.num_rows
    partitions = pa.repeat(pa.scalar(reply.partition, pa.int32()), count)
    rows = reply.rows.add_column(0, pa.field("partition", pa.int32(), nullable=False), partitions)
    if names is None:
        return rows
    # All topics of the body are one dictionary: a record costs a number, however long its topic's name is.
    number = names.index(reply.topic) if count else 0
    indices = pa.repeat(pa.scalar(number, pa.int32()), count)
    topics = pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
    return rows.add_column(0, pa.field("topic", topics.type, nullable=False), topics)


def _joined(reply: Fetched, embedded: Embedded, prefix: bytes | pa.Array, suffix: bytes) -> memoryview:
    rows = reply.rows.combine_chunks()
    offsets = rows.column("offset").combine_chunks()
    milliseconds = pc.divide(rows.column("timestamp").combine_chunks().cast(pa.int64()), 1000)
    topic = msgspec.json.encode(reply.topic)
    parts: list[Any] = [
        prefix,
        b'{"topic":%b,"key":' % topic,
        _embed(reply, "key", embedded),
        b',"value":',
        _embed(reply, "value", embedded),
        b',"partition":%d,"offset":' % reply.partition,
        offsets.cast(pa.string()).cast(pa.binary()),
        b',"timestamp":',
        milliseconds.cast(pa.string()).cast(pa.binary()),
        *_headers(rows.column("headers").combine_chunks()),
        b"}" + suffix,
    ]
    arrays = [part if isinstance(part, pa.Array) else _bytes(part) for part in parts]
    lines = pc.binary_join_element_wise(*arrays, _bytes(b""))
    return _all_bytes(lines)


def _all_bytes(lines: pa.Array) -> memoryview:
    """The values of a binary array, one after the other: they are one run of its buffer."""
    ends = _ends(lines)
    return memoryview(lines.buffers()[2])[ends[0] : ends[-1]]


def _ends(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where each value of a binary array begins in its buffer, and where the last one ends."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _bytes(constant: bytes | str) -> pa.Scalar:
    return pa.scalar(constant.encode() if isinstance(constant, str) else constant, pa.binary())


def _embed(reply: Fetched, column: str, embedded: Embedded) -> pa.Array:
    array = reply.rows.column(column).combine_chunks()
    if array.null_count == len(array):
        return pa.repeat(_bytes(NULL), len(array))
    if embedded is Embedded.BINARY:
        return _base64_texts(array)
    if embedded is Embedded.TEXT:
        _check_utf8(array, reply, column)
        return _each(array, lambda value: msgspec.json.encode(value.decode()))
    _check_utf8(array, reply, column)
    _check_json(array, reply, column)
    return pc.fill_null(array, _bytes(NULL)) if array.null_count else array


def _each(array: pa.Array, encode: Callable[[bytes], bytes]) -> pa.Array:
    return pa.array([NULL if value is None else encode(value) for value in array.to_pylist()], pa.binary())


def _base64_texts(array: pa.Array) -> pa.Array:
    """All values are encoded as one: filled up to whole threes, each has its own stretch of the text."""
    values = pc.fill_null(array, _bytes(b"")) if array.null_count else array
    lacking = -np.diff(_ends(values)) % 3
    filled = pc.binary_join_element_wise(values, _FILLINGS.take(pa.array(lacking)), _bytes(b""))
    starts = _ends(filled)
    text = bytearray(b2a_base64(_all_bytes(filled), newline=False))
    ends = (starts - starts[0]) // 3 * 4
    characters = np.frombuffer(text, np.uint8)
    characters[ends[1:][lacking >= 1] - 1] = PAD
    characters[ends[1:][lacking == 2] - 2] = PAD
    encoded = pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(text)])
    quoted = pc.binary_join_element_wise(_bytes(b'"'), encoded, _bytes(b'"'), _bytes(b""))
    return pc.if_else(array.is_valid(), quoted, _bytes(NULL)) if array.null_count else quoted


def _headers(headers: pa.Array) -> list[Any]:
    if headers.null_count == len(headers):
        return []
    texts = [b"" if not pairs else b',"headers":' + _header_list(pairs) for pairs in headers.to_pylist()]
    return [pa.array(texts, pa.binary())]


def _header_list(pairs: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode([{"key": pair["key"], "value": pair["value"]} for pair in pairs])


def _check_utf8(array: pa.Array, reply: Fetched, column: str) -> None:
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        raise _cannot_embed(array, reply, column, "text", is_utf8) from None


def _check_json(array: pa.Array, reply: Fetched, column: str) -> None:
    """Whether each value is JSON by itself: the list of all of them has to fall into the same pieces."""
    values = array.drop_null()
    joined = _all_bytes(pc.binary_join_element_wise(values, _bytes(b","), _bytes(b"")))
    try:
        pieces = _raw_list.decode(b"[" + joined[:-1] + b"]")
        if len(pieces) == len(values) and [len(piece) for piece in pieces] == pc.binary_length(values).to_pylist():
            return
    except (msgspec.DecodeError, RecursionError):
        pass
    # Values with white space around them fall into shorter pieces, and are JSON all the same.
    if not all(_is_json(value) for value in values.to_pylist()):
        raise _cannot_embed(array, reply, column, "JSON", _is_json)


def _is_json(value: bytes) -> bool:
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _cannot_embed(array: pa.Array, reply: Fetched, column: str, form: str, fits: Callable[[bytes], bool]) -> HttpError:
    values = array.to_pylist()
    row = next(row for row, value in enumerate(values) if value is not None and not fits(value))
    place = f"{reply.topic}-{reply.partition} at offset {reply.rows.column('offset')[row].as_py()}"
    other = "text or binary" if form == "JSON" else "binary"
    return HttpError(406, f"the {column} of {place} is not {form}; ask for {other}")


def _on_one_line(reply: Fetched, embedded: Embedded) -> Fetched:
    """JSON is stored as it was sent, maybe over several lines; where lines mean something it is written on one."""
    if embedded is not Embedded.JSON:
        return reply
    rows = reply.rows
    for name in ("key", "value"):
        column = rows.column(name).combine_chunks()
        if column.null_count < len(column) and pc.any(pc.match_substring_regex(column, "[\r\n]")).as_py():
            _check_utf8(column, reply, name)
            _check_json(column, reply, name)
            compact = [None if value is None else msgspec.json.format(value, indent=-1) for value in column.to_pylist()]
            rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(compact, pa.binary()))
    return Fetched(reply.topic, reply.partition, rows, reply.next_offset)
