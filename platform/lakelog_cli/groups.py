"""`lakelog groups`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from lakelog.client import DEFAULT_URL
from lakelog_cli.output import (
    AsJson,
    Url,
    connected,
    counted,
    delete_each,
    failure,
    note,
    parse_duration_ms,
    parse_time,
    print_json,
    print_table,
)

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(help="The group's id.", show_default=False, metavar="GROUP")]


@app.command("list")
def list_groups(as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """List groups and their states."""
    with connected(url) as client:
        groups = client.list_groups()
    if as_json:
        print_json(groups)
    elif not groups:
        note("There are no groups yet: a consumer that joins one makes it.")
    else:
        rows = [[each.group_id, each.state, each.protocol_type or None] for each in groups]
        print_table("", ["group", "state", "protocol"], rows)


@app.command()
def describe(
    group: GroupArgument,
    members: Annotated[bool, typer.Option("--members", "-m", help="Show the members, too.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show how far a group is, partition by partition, and who reads what."""
    with connected(url) as client:
        described, lags = client.describe_group(group), client.group_lag(group)
    if as_json:
        print_json({"group": described, "partitions": lags})
        return
    title = f"{group}: {described.state}, {counted(len(described.members), 'member')}"
    if described.members:
        title += f", generation {described.generation}, {described.protocol}"
    columns = ["topic", "partition", "committed", "current", "log start", "high watermark", "end", "lag", "member"]
    rows: list[list[Any]] = [
        [
            each.topic,
            each.partition,
            each.committed,
            each.current,
            each.log_start_offset,
            each.high_watermark,
            each.end_offset,
            each.lag,
            each.member_id or None,
        ]
        for each in lags
    ]
    print_table(title, columns, rows, right=columns[1:-1])
    if members and described.members:
        typer.echo()
        rows = [
            [
                each.member_id,
                each.instance_id,
                each.client_id or None,
                each.client_host or None,
                len(each.assignment),
                ", ".join(each.topics),
            ]
            for each in described.members
        ]
        columns = ["member", "instance", "client", "host", "partitions", "topics"]
        print_table("", columns, rows, right=["partitions"])


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:PARTITION,...]",
            help="What to reset, as orders or orders:0,3; may be said often. All that the group has committed unless "
            "said.",
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest records.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Past the newest records.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To where it is, moved to what there is still to read.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", metavar="TIME", help="To the first record of this time or later: ISO 8601, or ms."
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="TIME", help="To the first record of so long ago: 90s, 5m, 2h, 1d."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="So many offsets forward; back if it is negative.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it, and do not only say what would be done.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Move a group to another place. Without --execute it is a dry run."""
    places = {"earliest": to_earliest, "latest": to_latest, "current": to_current}
    targets: list[dict[str, Any]] = [{"to": place} for place, named in places.items() if named]
    if to_offset is not None:
        targets.append({"offset": to_offset})
    if to_datetime is not None:
        time = parse_time(to_datetime, datetime.now(UTC))
        targets.append({"timestamp_ms": int(time.timestamp() * 1000)})
    if by_duration is not None:
        targets.append({"duration_ms": parse_duration_ms(by_duration)})
    if shift_by is not None:
        targets.append({"shift": shift_by})
    if len(targets) != 1:
        raise typer.BadParameter(
            "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration "
            "or --shift-by"
        )
    topics = dict(_topic_and_partitions(text) for text in topic) if topic else None
    with connected(url) as client:
        changes = client.reset_group_offsets(group, targets[0], topics, dry_run=not execute)
    if as_json:
        print_json(changes)
        return
    columns = ["topic", "partition", "before", "after"]
    rows = [[each.topic, each.partition, each.before, each.after] for each in changes]
    print_table("", columns, rows, right=columns[1:])
    done = f"Group {group} is reset." if execute else "This was a dry run: --execute does it."
    note(done if changes else "There is nothing to reset: name topics with --topic.")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(help="The groups.", show_default=False, metavar="GROUP...")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete groups without members, with the offsets that they committed."""
    with connected(url) as client:
        if not yes:
            if not sys.stdin.isatty():
                raise failure("deleting needs a yes: say --yes where nobody can be asked")
            typer.confirm(f"Delete {', '.join(groups)} with all committed offsets?", abort=True, err=True)
        delete_each("Group", groups, client.delete_group, as_json=as_json)


def _topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    name, colon, numbers = text.partition(":")
    if not colon:
        return name, None
    try:
        return name, [int(number) for number in numbers.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} names no partitions; write it as orders or orders:0,3") from None
