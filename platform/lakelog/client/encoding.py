"""The bytes of keys and values: of single ones, of the cells of a column, and of whole rows as JSON.

What has no such form is refused as INVALID_RECORD; in a table it is named by its column and row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from lakelog.errors import ErrorCode, LakelogError


def encode(value: Any) -> bytes | None:
    """Bytes go as they are, text as UTF-8, None as none, anything else as its JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    try:
        return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        form = "UTF-8" if isinstance(value, str) else "JSON"
        raise LakelogError(ErrorCode.INVALID_RECORD, f"{type(value).__name__} has no {form}: {error}") from None


def encode_column(table: pa.Table, name: str, first_row: int) -> pa.Array | pa.ChunkedArray:
    """The cells of one column, each as `encode` has it."""
    try:
        return table.column(name).cast(pa.binary())
    except pa.ArrowException:
        return _encode_each(table.select([name]), lambda row: encode(row[name]), first_row)


def encode_rows(table: pa.Table, first_row: int) -> pa.Array:
    """Each row as a JSON object."""
    return _encode_each(table, encode, first_row)


def _encode_each(table: pa.Table, encode_row: Callable[[dict[str, Any]], bytes | None], first_row: int) -> pa.Array:
    table = _in_microseconds(table)
    try:
        return pa.array([encode_row(row) for row in table.to_pylist()], type=pa.binary())
    except (LakelogError, ValueError, OverflowError) as error:
        raise LakelogError(ErrorCode.INVALID_RECORD, _first_misfit(table, first_row) or str(error)) from None


def _first_misfit(table: pa.Table, first_row: int) -> str | None:
    """Looked for cell by cell only once it is known that there is one."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        for row, cell in enumerate(column, first_row):
            try:
                encode(cell.as_py())
            except LakelogError as error:
                return f"column {name!r}, row {row}: {error.message}"
            except (ValueError, OverflowError) as error:
                return f"column {name!r}, row {row}: this {cell.type} is out of range ({error})"
    return None


def _in_microseconds(table: pa.Table) -> pa.Table:
    """Python's own times, and so JSON's, are no finer."""
    schema = pa.schema([field.with_type(_coarser(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema, safe=False)


def _coarser(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_coarser(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_coarser(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_coarser(kind.value_type)))
    return kind
