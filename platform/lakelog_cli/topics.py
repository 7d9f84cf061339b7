"""`lakelog topics`: create, list, describe, alter and delete topics, and let go of their records."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lakelog.client import DEFAULT_URL, TopicInfo
from lakelog.errors import ErrorCode, LakelogError
from lakelog_cli.output import (
    AsJson,
    TopicArgument,
    Url,
    complete_topic,
    connected,
    counted,
    delete_each,
    failure,
    human_bytes,
    human_time,
    note,
    print_json,
    print_table,
    split_pairs,
    split_positions,
)

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Configs = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A config, as retention.ms=86400000.")
]


@app.command()
def create(
    topic: Annotated[str, typer.Argument(help="The new topic's name.", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="How many; the gateway's num.partitions unless said."),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Be content with one that is there.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Create a topic."""
    configs = split_pairs(config or [], "a config")
    with connected(url) as client:
        try:
            info, created = client.create_topic(topic, partitions, configs), True
        except LakelogError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            info, created = client.describe_topic(topic), False
    if as_json:
        print_json(info)
    else:
        done = "is created" if created else "was there already"
        note(f"Topic {info.name} {done}, with {counted(len(info.partitions), 'partition')}.")


@app.command("list")
def list_topics(
    names: Annotated[bool, typer.Option("--names", "-q", help="Names only, one a line.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List topics."""
    with connected(url) as client:
        if names:
            _print_names(client.list_topics(), as_json=as_json)
            return
        topics = client.summarize_topics()
    if as_json:
        print_json(topics)
    elif not topics:
        note("There are no topics yet: `lakelog topics create NAME` makes one, and so does the first record.")
    else:
        columns = ["topic", "partitions", "records", "size"]
        rows = [[each.name, each.partitions, each.records, human_bytes(each.bytes)] for each in topics]
        print_table("", columns, rows, right=columns[1:])


def _print_names(names: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(names)
    else:
        typer.echo("".join(f"{name}\n" for name in names), nl=False)


@app.command()
def describe(
    topic: TopicArgument,
    all_configs: Annotated[
        bool, typer.Option("--all", "-a", help="Show configs that are at their defaults too.")
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show a topic's partitions and configuration."""
    with connected(url) as client:
        info = client.describe_topic(topic)
    if as_json:
        print_json(info)
        return
    _print_partitions(info)
    configs = [entry for entry in info.configs if all_configs or not entry.is_default]
    if configs:
        typer.echo()
        rows = [[entry.name, entry.value, entry.default, entry.doc] for entry in configs]
        print_table("", ["config", "value", "default", "what it does"], rows)
    else:
        note("\nEvery config is at its default; --all shows them.")


def _print_partitions(info: TopicInfo) -> None:
    columns = ["partition", "log start", "high watermark", "segments", "size", "oldest", "newest"]
    rows = [
        [
            each.partition,
            each.log_start_offset,
            each.high_watermark,
            each.segments,
            human_bytes(each.bytes),
            human_time(each.min_timestamp_ms),
            human_time(each.max_timestamp_ms),
        ]
        for each in info.partitions
    ]
    title = (
        f"{info.name}: {counted(info.records, 'record')}, {human_bytes(info.bytes)}, table version {info.table_version}"
    )
    print_table(title, columns, rows, right=columns[:5])


@app.command()
def alter(
    topic: TopicArgument,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a config.")] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Take a config back to its default.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Let the topic grow to so many.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Change a topic's configuration, or give it more partitions."""
    if not set_ and not unset and partitions is None:
        raise typer.BadParameter("nothing to change: say --set, --unset or --partitions")
    configs = split_pairs(set_ or [], "a config")
    with connected(url) as client:
        # The configs first: a wrong one refuses the whole change, and partitions can't be taken back.
        if configs or unset:
            client.alter_config(topic, configs, unset or [])
        if partitions is not None:
            client.add_partitions(topic, partitions)
        info = client.describe_topic(topic)
    if as_json:
        print_json(info)
    else:
        note(f"Topic {topic} is changed.")


@app.command()
def delete(
    topics: Annotated[
        list[str],
        typer.Argument(help="The topics.", autocompletion=complete_topic, show_default=False, metavar="TOPIC..."),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete topics with all their records."""
    with connected(url) as client:
        if not yes:
            if not sys.stdin.isatty():
                raise failure("deleting needs a yes: say --yes where nobody can be asked")
            records = sum(client.describe_topic(topic).records for topic in topics)
            typer.confirm(f"Delete {', '.join(topics)} with {counted(records, 'record')}?", abort=True, err=True)
        delete_each("Topic", topics, client.delete_topic, as_json=as_json)


@app.command("delete-records")
def delete_records(
    topic: TopicArgument,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="OFFSETS",
            help="The first offsets that stay, by partition, as 0:17,1:4; -1 lets go of all.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Let go of the oldest records of a topic."""
    offsets = split_positions(before)
    with connected(url) as client:
        starts = client.delete_records(topic, offsets)
    if as_json:
        print_json([{"partition": partition, "log_start_offset": offset} for partition, offset in starts.items()])
    else:
        for partition, offset in starts.items():
            note(f"Partition {partition} of {topic} begins at offset {offset}.")
