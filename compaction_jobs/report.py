"""Runs and states of topics as tables on a terminal, and a progress bar where somebody watches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from compaction_jobs.context import Progress
from compaction_jobs.due import PartitionStatus
from compaction_jobs.journal import LastRun
from compaction_jobs.outcome import Outcome, partition_name

# Where nobody's terminal says how wide it is, as in a log, tables get this much.
PIPED_COLUMNS = 160


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_COLUMNS
    return console


class ProgressBar(Progress):
    """On stderr, and only on a terminal. Shows itself while in the block."""

    def __init__(self) -> None:
        detail = TextColumn("{task.fields[detail]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), detail)
        console = Console(stderr=True)
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None, visible=False, detail="")

    def begin(self, what: str, total: int) -> None:
        self._bar.reset(self._task, description=what, total=total, visible=total > 0)

    def advance(self) -> None:
        self._bar.advance(self._task)

    def detail(self, text: str) -> None:
        self._bar.update(self._task, detail=text)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def print_outcomes(job: str, outcomes: Sequence[Outcome], *, dry_run: bool) -> None:
    """Figures in a table, a line a partition; in words below it, where there is room, why, and what became of it."""
    console = _console()
    if not outcomes:
        console.print(f"{job}: nothing to do")
        return
    title = f"{job}: this is what it would take up" if dry_run else job
    table = _table(title, "files", "size", "records", "seconds")
    for each in outcomes:
        arrow = " → " if not dry_run else None
        table.add_row(
            partition_name(each.topic, each.partition),
            _change(str(each.before.files), str(each.after.files), arrow),
            _change(decimal(each.before.bytes), decimal(each.after.bytes), arrow),
            _change(str(each.before.records), str(each.after.records), arrow),
            f"{each.seconds:.1f}",
        )
    console.print(table)
    for each in outcomes:
        name = partition_name(each.topic, each.partition)
        if each.error is not None:
            _line(console, f"[red]{name} failed:[/red]", each.error)
        else:
            _line(console, f"{name}:", "; ".join(_told(each)))


def _told(outcome: Outcome) -> Iterator[str]:
    yield outcome.reason
    if outcome.cleaned_up_to is not None:
        yield f"clean up to {outcome.cleaned_up_to}"
    if outcome.log_start is not None:
        yield f"the log starts at {outcome.log_start}"


def print_status(topics: Mapping[str, Sequence[PartitionStatus]], last: Mapping[tuple[str, str, int], LastRun]) -> None:
    console = _console()
    lines = [
        (partition_name(topic, each.partition), each) for topic, partitions in topics.items() for each in partitions
    ]
    if not lines:
        console.print("There are no topics yet.")
        return
    table = _table("", "files", "size", "records", "log start", "cleaned to", "dirty")
    for name, each in lines:
        table.add_row(
            name,
            str(each.files),
            decimal(each.bytes),
            str(each.records),
            _number(each.log_start),
            _number(each.cleaned_up_to),
            "–" if each.dirty_ratio is None else f"{each.dirty_ratio:.2f}",
        )
    console.print(table)
    for name, each in lines:
        for job, why in each.due.items():
            _line(console, f"[bold]{job}[/bold] of {name} is due:", why)
        if each.waiting:
            _line(console, f"{name}:", each.waiting)
    _print_last_runs(console, [run for run in last.values() if run.topic in topics])


def _print_last_runs(console: Console, runs: Sequence[LastRun]) -> None:
    if not runs:
        return
    table = _table("last runs", "job", "at")
    table.add_column("error", style="red")
    for run in sorted(runs, key=lambda run: (run.topic, run.partition, run.started_at)):
        when = f"{run.started_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(partition_name(run.topic, run.partition), run.job, when, escape(run.error or ""))
    console.print(table)


def _line(console: Console, about: str, text: str) -> None:
    """However long it is: on a terminal that wraps, and in a file that is searched it is one line."""
    console.print(f"{about} {escape(text)}", soft_wrap=True)


def _table(title: str, *right: str) -> Table:
    """Partitions on the left, whose names are never cut, and figures on the right."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold cyan", box=None)
    table.add_column("partition", no_wrap=True)
    for column in right:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _change(before: str, after: str, arrow: str | None) -> str:
    return before if arrow is None else f"{before}{arrow}{after}"


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)
