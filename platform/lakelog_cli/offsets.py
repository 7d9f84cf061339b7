"""`lakelog offsets`: where the partitions of a topic begin and end, and where a time lies in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from lakelog.client import DEFAULT_URL
from lakelog_cli.output import AsJson, TopicArgument, Url, connected, parse_time, print_json, print_table


def offsets(
    topic: TopicArgument,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="Also the first offset of this time or later: ISO 8601, ms, or 5m ago."
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the offsets of a topic's partitions."""
    time = None if at is None else parse_time(at, datetime.now(UTC))
    with connected(url) as client:
        info = client.describe_topic(topic)
        found = {} if time is None else client.offsets_at(topic, time)
    rows = [
        {
            "partition": each.partition,
            "log_start_offset": each.log_start_offset,
            "high_watermark": each.high_watermark,
            "records": each.records,
            **({} if time is None else {"offset_at": found.get(each.partition)}),
        }
        for each in info.partitions
    ]
    if as_json:
        print_json(rows)
        return
    columns = ["partition", "log start", "high watermark", "records", *([] if at is None else [f"at {at}"])]
    print_table("", columns, [list(row.values()) for row in rows], right=columns)


def register(app: typer.Typer) -> None:
    app.command()(offsets)
