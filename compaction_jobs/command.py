"""The jobs' own command line: `lakelog jobs …`, and `python -m compaction_jobs …` for spark-submit and schedules.

Ends with 0 if every partition went well, with 1 if one failed or nothing could be done at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from compaction_jobs.surroundings import (
    EVERY_SECONDS,
    FSYNC_VARIABLE,
    JOB_NAMES,
    OFFSETS_RETENTION_MINUTES,
    RETENTION_VARIABLE,
    WAREHOUSE_VARIABLE,
    options_of,
)

# The jobs themselves are loaded by the commands: that takes longer than other commands of the same program run.
if TYPE_CHECKING:
    from compaction_jobs.context import Context

T = TypeVar("T")

log = logging.getLogger(__name__)

# Whoever appends and reads on the same machine goes first.
NICENESS = 10

app = typer.Typer(
    help="Keep topics clean: expire, compact, merge and vacuum their files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Warehouse = Annotated[
    str, typer.Option("--warehouse", envvar=WAREHOUSE_VARIABLE, help="Where the topics are: a directory or a URL.")
]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic, of several; all if none is named.")]
StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="An option of the object store; the environment's are taken as they are."
    ),
]
IoLimit = Annotated[
    float,
    typer.Option("--io-bytes-per-second", min=0, help="The most that is read and written together; 0 is no limit."),
]
Fsync = Annotated[
    bool,
    typer.Option("--fsync", envvar=FSYNC_VARIABLE, help="Flush files to the disk, as the gateways do if so set."),
]
OffsetsRetention = Annotated[
    int,
    typer.Option(
        "--offsets-retention-minutes",
        envvar=RETENTION_VARIABLE,
        min=1,
        help="How long offsets outlive their group, as the gateways have it.",
    ),
]


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=f"Jobs: {', '.join(JOB_NAMES)}, or all.")],
    warehouse: Warehouse = "./data",
    topic: Topics = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Compact also what is not due yet.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Pass over named topics that are not there.")] = False,
    io_bytes_per_second: IoLimit = 0.0,
    fsync: Fsync = False,
    offsets_retention_minutes: OffsetsRetention = OFFSETS_RETENTION_MINUTES,
    option: StoreOptions = None,
) -> None:
    """Run jobs, one after the other, also after one that failed. Safe to run twice, at once, and beside gateways."""
    from compaction_jobs.commits import FAILURES, told
    from compaction_jobs.outcome import Outcomes
    from compaction_jobs.report import ProgressBar, print_outcomes
    from compaction_jobs.runner import run_job

    jobs = list(JOB_NAMES) if names == ["all"] else names
    unknown = [name for name in jobs if name not in JOB_NAMES]
    if unknown:
        raise typer.BadParameter(f"there is no job {unknown[0]!r}; there are {', '.join(JOB_NAMES)}, and all")

    async def work(context: Context) -> bool:
        failed = False
        for job in jobs:
            outcomes, stopped = Outcomes(), True
            try:
                with ProgressBar() as bar:
                    context.progress = bar
                    await run_job(context, job, topic or (), outcomes)
                stopped = False
            except FAILURES as error:
                typer.echo(f"lakelog: {job}: {told(error)}", err=True)
            except Exception:
                log.exception("%s failed", job)
            if outcomes or not stopped:  # what was done before it stopped is done
                print_outcomes(job, list(outcomes), dry_run=dry_run)
            failed |= stopped or any(outcome.error is not None for outcome in outcomes)
        return failed

    how = {
        "dry_run": dry_run,
        "force": force,
        "if_exists": if_exists,
        "io_bytes_per_second": io_bytes_per_second,
        "offsets_retention_minutes": offsets_retention_minutes,
    }
    if _with_context(warehouse, option, work, fsync=fsync, **how):
        raise typer.Exit(1)


@app.command()
def status(
    warehouse: Warehouse = "./data",
    topic: Topics = None,
    offsets_retention_minutes: OffsetsRetention = OFFSETS_RETENTION_MINUTES,
    option: StoreOptions = None,
) -> None:
    """Show sizes, dirty ratios, the last runs, and what is due and why."""
    from compaction_jobs.due import partition_status
    from compaction_jobs.jobs import offsets
    from compaction_jobs.journal import Journal
    from compaction_jobs.report import print_status
    from compaction_jobs.runner import open_topics
    from consumer_groups import offset_table

    async def work(context: Context) -> bool:
        topics, missing = await open_topics(context, topic or ())
        for name, why in missing.items():
            typer.echo(f"lakelog: {name}: {why}", err=True)
        now_ms = context.now_ms
        statuses = {
            each.name: [partition_status(each.state, number, now_ms) for number in range(len(each.state.partitions))]
            for each in topics
        }
        if not topic:
            statuses[offset_table.NAME] = await offsets.status(context)
        last = await Journal(context.broker.store, context.broker.clock).last_runs()
        if statuses or not missing:
            print_status(statuses, last)
        return bool(missing)

    if _with_context(warehouse, option, work, offsets_retention_minutes=offsets_retention_minutes):
        raise typer.Exit(1)


@app.command()
def schedule(
    warehouse: Warehouse = "./data",
    every_seconds: Annotated[float, typer.Option("--every-seconds", min=1, help="How often to look.")] = EVERY_SECONDS,
    io_bytes_per_second: IoLimit = 0.0,
    fsync: Fsync = False,
    offsets_retention_minutes: OffsetsRetention = OFFSETS_RETENTION_MINUTES,
    option: StoreOptions = None,
    until_stdin_ends: Annotated[
        bool, typer.Option("--until-stdin-ends", help="Stop when standard input does, as it does with its process.")
    ] = False,
) -> None:
    """Look again and again for jobs that are due, and run them. Spark is started only for those that need it."""
    from compaction_jobs.scheduler import keep_clean

    os.nice(NICENESS)

    async def work(context: Context) -> None:
        await keep_clean(context, every_seconds, sys.stdin if until_stdin_ends else None)

    how = {"io_bytes_per_second": io_bytes_per_second, "offsets_retention_minutes": offsets_retention_minutes}
    _with_context(warehouse, option, work, fsync=fsync, **how)


def _with_context(
    warehouse: str,
    options: list[str] | None,
    work: Callable[[Context], Awaitable[T]],
    *,
    fsync: bool = False,
    **how: float | bool,
) -> T:
    """Run some work on a warehouse. What goes wrong with all of it is told in one line."""
    from compaction_jobs.commits import FAILURES, told
    from compaction_jobs.context import Context
    from lakelog.broker import Broker
    from lakelog.config import ServerSettings

    given = {**options_of(os.environ), **_pairs(options or [])}

    async def opened() -> T:
        async with Broker.open(warehouse, ServerSettings(fsync=fsync), given) as broker:
            return await work(Context(broker, warehouse, given, **how))  # type: ignore[arg-type]

    try:
        return asyncio.run(opened())
    except FAILURES as error:
        typer.echo(f"lakelog: {told(error)}", err=True)
        raise typer.Exit(1) from None


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not an option of the store: write NAME=VALUE")
        pairs[name] = value
    return pairs
