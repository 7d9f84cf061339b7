"""`lakelog produce`: lines from stdin, or the rows of a file, into a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lakelog.client import DEFAULT_URL, LakelogClient, Record
from lakelog.errors import LakelogError
from lakelog_cli.files import FileKind, Rows, as_records, open_rows
from lakelog_cli.json_lines import from_line
from lakelog_cli.output import (
    AsJson,
    TopicArgument,
    Url,
    connected,
    counted,
    failure,
    note,
    print_json,
    split_pairs,
    stderr,
)


def produce(
    topic: TopicArgument,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", metavar="TEXT", help="Split each line into key and value here."),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help='Lines are JSON: {"value": …, "key": …, "headers": {…}, "timestamp": ms, "partition": n}.',
        ),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", exists=True, dir_okay=False, help="Send the rows of an Arrow, Parquet or CSV file."
        ),
    ] = None,
    file_kind: Annotated[
        FileKind | None, typer.Option("--file-format", help="If the file's name does not tell.")
    ] = None,
    key_column: Annotated[str | None, typer.Option("--key-column", help="The column that holds the keys.")] = None,
    value_column: Annotated[
        str | None,
        typer.Option(
            "--value-column",
            help="The column that holds the values. Without one a row becomes JSON, unless its columns are those of a "
            "record: value (text or bytes), and maybe key, headers, timestamp and partition.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header for each line's record.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send all to this one, whatever they say.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Send records: one for each line of stdin, or for each row of a file."""
    if key_separator == "":
        raise typer.BadParameter("the key separator is empty")
    if json_lines and key_separator is not None:
        raise typer.BadParameter("--json-lines and --key-separator exclude each other")
    if file is not None and (json_lines or key_separator is not None or header):
        raise typer.BadParameter("--json-lines, --key-separator and --header are for lines, not for a --file")
    if file is None and (key_column or value_column or file_kind):
        raise typer.BadParameter("--key-column, --value-column and --file-format are for a --file")
    headers = tuple(split_pairs(header or [], "a header").items())
    with connected(url, patient=True) as client:
        if file is not None:
            rows = open_rows(file, file_kind)
            sent = _send_file(client, topic, file.name, rows, key_column, value_column, partition)
        else:
            records = _records(json_lines, key_separator, headers)
            sent = _send_lines(client, topic, records, partition)
    if as_json:
        print_json({"topic": topic, "records": sent})
    else:
        note(f"{counted(sent, 'record')} → {topic}")


def _send_lines(client: LakelogClient, topic: str, records: Iterator[tuple[int, Record]], partition: int | None) -> int:
    if sys.stdin.isatty():
        note("Each line becomes a record; Ctrl-D ends.")
    sent = 0
    with client.producer(topic, partition=partition) as producer:
        try:
            for number, record in records:
                try:
                    delivery = producer.send_record(record if partition is None else replace(record, partition=None))
                except LakelogError as error:
                    raise _NoRecord(number, error.message) from None
                sent += 1
                # A refusal is told at the next line, and not after the last of a million.
                if delivery.done():
                    delivery.result()
                elif sys.stdin.isatty():
                    producer.flush()
        except _NoRecord as line:
            producer.flush()  # if that fails, it is what there is to tell
            sent_before = f"what stands before it was sent, so go on from line {line.number}"
            before = sent_before if sent else "nothing was sent"
            raise failure(f"line {line.number} is not a record: {line.reason}; {before}") from None
    return sent


class _NoRecord(Exception):
    """A line that can't be sent."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(number, reason)
        self.number = number
        self.reason = reason


def _records(
    json_lines: bool, separator: str | None, headers: tuple[tuple[str, str], ...]
) -> Iterator[tuple[int, Record]]:
    """With the number of the line that each one stands in."""
    split_at = separator.encode() if separator is not None else None
    for number, line in enumerate(sys.stdin.buffer, start=1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if json_lines:
            if not text.strip():
                continue
            try:
                record = from_line(text)
            except ValueError as error:
                raise _NoRecord(number, str(error)) from None
            both = (*headers, *record.headers)
            yield number, Record(record.value, record.key, both, record.timestamp, record.partition)
        elif split_at is None:
            yield number, Record(text, None, headers)
        else:
            key, found, value = text.partition(split_at)
            if not found:
                raise _NoRecord(number, f"there is no {separator!r} between key and value")
            yield number, Record(value, key, headers)


def _send_file(
    client: LakelogClient,
    topic: str,
    name: str,
    rows: Rows,
    key: str | None,
    value: str | None,
    partition: int | None,
) -> int:
    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeRemainingColumn(),
    ]
    sent = 0
    with Progress(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(name, total=rows.total)
        for piece in rows.pieces:
            try:
                records = as_records(piece, key=key, value=value, first_row=sent + 1)
            except LakelogError as error:
                before = f"the first {counted(sent, 'row')} were sent" if sent else "nothing was sent"
                raise failure(f"{error.message}; {before}") from None
            if partition is not None and "partition" in records.column_names:
                records = records.drop_columns("partition")
            sent += client.produce(topic, records, partition=partition).records
            progress.update(task, completed=sent)
    return sent


def register(app: typer.Typer) -> None:
    app.command()(produce)
