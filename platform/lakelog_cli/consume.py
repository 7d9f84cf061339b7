"""`lakelog consume`: the records of a topic on stdout, up to its end or as they come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import pyarrow as pa
import typer

from lakelog.client import DEFAULT_URL, FetchedRecord, Stream
from lakelog_cli.json_lines import to_line
from lakelog_cli.output import TopicArgument, Url, connected, human_time, parse_time, split_positions


class Format(Enum):
    TEXT = "text"
    JSON = "json"
    BINARY = "binary"
    ARROW = "arrow"


def consume(
    topic: TopicArgument,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", "-b", help="Begin at the first record.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="OFFSET",
            help="Begin here: a number, earliest, latest, or 0:17,1:4 (other partitions at their first record).",
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time", "-t", metavar="TIME", help="Begin at this time: ISO 8601, ms, or how long ago (5m)."
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Of this partition only.")] = None,
    max_messages: Annotated[int | None, typer.Option("--max-messages", "-n", min=0, help="End after so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with records as they come.")] = False,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="text: values; json: a line each; binary: the same in base64; arrow: an IPC stream."
        ),
    ] = Format.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", metavar="TEXT", help="In text: the key and this before the value."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="In text: partition, offset and time too.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print records: all there are, or with --follow the new ones as they come."""
    start = _start(from_beginning, offset, from_time, partition, follow)
    with connected(url, patient=True) as client:
        stream = client.stream(topic, partition=partition, follow=follow, max_records=max_messages, **start)
        if form is Format.ARROW:
            # An empty topic has columns too, and who reads along hears of them at once.
            columns = client.fetch(topic, partition=partition, offset="latest", max_bytes=1).to_arrow().schema
            _write_arrow(stream, columns)
            return
        write = sys.stdout.buffer.write
        line_of = _lines(form, topic, key_separator, verbose)
        for batch in stream.batches():
            for record in batch:
                write(line_of(record) + b"\n")
            # Once a reply: a follower sees records as they come, and a pipe is not written to record by record.
            sys.stdout.buffer.flush()


def _start(
    from_beginning: bool, offset: str | None, from_time: str | None, partition: int | None, follow: bool
) -> dict[str, Any]:
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise typer.BadParameter("--from-beginning, --offset and --from-time exclude each other")
    if from_time is not None:
        return {"timestamp": parse_time(from_time, datetime.now(UTC))}
    if offset is None:
        # As `tail -f` and `cat` do: who follows wants what is new, who does not wants what is there.
        return {"offset": "latest" if follow and not from_beginning else "earliest"}
    if offset in ("earliest", "latest"):
        return {"offset": offset}
    if ":" in offset:
        positions = split_positions(offset)
        if partition is not None and set(positions) != {partition}:
            raise typer.BadParameter(f"--offset {offset} is of other partitions than --partition {partition}")
        return {"positions": positions, "offset": "earliest"}
    try:
        number = int(offset)
    except ValueError:
        raise typer.BadParameter(f"{offset!r} is no offset: write a number, earliest, latest, or 0:17,1:4") from None
    if partition is None:
        raise typer.BadParameter("an offset is one of a partition: say --partition too, or write --offset 0:17,1:4")
    return {"offset": number}


def _lines(form: Format, topic: str, key_separator: str | None, verbose: bool) -> Callable[[FetchedRecord], bytes]:
    if form is not Format.TEXT:
        return lambda record: to_line(topic, record, exact=form is Format.BINARY)
    separator = None if key_separator is None else key_separator.encode()

    def line(record: FetchedRecord) -> bytes:
        text = record.value if record.value is not None else b""
        if separator is not None:
            text = (record.key or b"") + separator + text
        if verbose:
            text = f"{record.partition}:{record.offset}\t{human_time(record.timestamp_ms)}\t".encode() + text
        return text

    return line


def _write_arrow(stream: Stream, columns: pa.Schema) -> None:
    with pa.ipc.new_stream(sys.stdout.buffer, columns) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([], columns))  # the columns go with the first batch, not before
        sys.stdout.buffer.flush()
        for batch in stream.batches():
            writer.write_table(batch.to_arrow())
            sys.stdout.buffer.flush()


def register(app: typer.Typer) -> None:
    app.command()(consume)
