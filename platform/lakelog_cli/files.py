"""The rows of an Arrow, Parquet or CSV file, and what they are as records."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer

from lakelog.client import rows_as_records
from lakelog.errors import LakelogError
from lakelog.model.batch import from_arrow
from lakelog_cli.output import failure

# Rows that are read, turned into records and sent at a time.
FILE_ROWS = 65_536


class FileKind(Enum):
    ARROW = "arrow"
    PARQUET = "parquet"
    CSV = "csv"


_KINDS = {
    ".arrow": FileKind.ARROW,
    ".arrows": FileKind.ARROW,
    ".feather": FileKind.ARROW,
    ".ipc": FileKind.ARROW,
    ".parquet": FileKind.PARQUET,
    ".csv": FileKind.CSV,
}

# Where a fetch found a record. It is sent to another place.
_PLACE = frozenset({"topic", "offset"})


class Rows(NamedTuple):
    """The rows of a file, piece by piece. How many there are is not known of every kind of file."""

    total: int | None
    pieces: Iterator[pa.Table]


def open_rows(path: Path, kind: FileKind | None) -> Rows:
    kind = kind or _KINDS.get(path.suffix.lower())
    if kind is None:
        raise typer.BadParameter(f"{path.name} does not tell what it is: say --file-format arrow, parquet or csv")
    try:
        if kind is FileKind.PARQUET:
            parquet = pa.parquet.ParquetFile(path)
            return Rows(parquet.metadata.num_rows, _pieces(parquet.iter_batches(FILE_ROWS), path))
        if kind is FileKind.CSV:
            return Rows(None, _pieces(iter(pa.csv.open_csv(path)), path))
        return _open_arrow(path)
    except (pa.ArrowException, OSError) as error:
        raise failure(f"{path} can't be read as {kind.value}: {error}") from None


def are_records(schema: pa.Schema) -> bool:
    """Whether rows are records already, as a fetch gives them, by every one of their columns and its type."""
    if "value" not in schema.names:
        return False
    try:
        from_arrow(_sendable(schema.empty_table()))
    except LakelogError:
        return False
    return True


def as_records(piece: pa.Table, *, key: str | None, value: str | None, first_row: int) -> pa.Table:
    """With neither a column for the key nor one for the value, records stay what they are."""
    if key is None and value is None and are_records(piece.schema):
        return _sendable(piece)
    return rows_as_records(piece, key=key, value=value, first_row=first_row)


def _sendable(table: pa.Table) -> pa.Table:
    """Without the place that the records had; a partition beside no offset is where they are to go."""
    left_out = _PLACE | {"partition"} if "offset" in table.column_names else _PLACE
    return table.select([index for index, name in enumerate(table.column_names) if name not in left_out])


def _open_arrow(path: Path) -> Rows:
    source = pa.memory_map(str(path))
    try:
        reader = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return Rows(None, _pieces(iter(pa.ipc.open_stream(source)), path))
    batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
    return Rows(reader.count_rows(), _pieces(batches, path))


def _pieces(batches: Iterator[pa.RecordBatch], path: Path) -> Iterator[pa.Table]:
    try:
        for batch in batches:
            # Whoever wrote the file may have put all of it into one batch.
            for start in range(0, batch.num_rows, FILE_ROWS):
                yield pa.Table.from_batches([batch.slice(start, FILE_ROWS)])
    except (pa.ArrowException, OSError) as error:
        raise failure(f"{path} can't be read to its end: {error}") from None
