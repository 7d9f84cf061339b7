"""Runs and states of topics as tables on a terminal, and a progress bar where somebody watches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from compaction_jobs.context import Progress
from compaction_jobs.due import PartitionStatus
from compaction_jobs.journal import LastRun
from compaction_jobs.outcome import WHOLE_TOPIC, Outcome

# A table of a run needs this much. Where nobody's terminal says how wide it is, as in a log, it gets it.
PIPED_COLUMNS = 160
# On a narrow terminal a name is folded rather than cut, and never to less than this.
NAME_COLUMNS_MIN = 8


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

    def advance(self, done: int) -> None:
        self._bar.update(self._task, completed=done)

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
    console = _console()
    if not outcomes:
        console.print(f"{job}: nothing to do")
        return
    title = f"{job}: this is what it would take up" if dry_run else job
    table = _table(title, ("topic", "partition"), "files", "size", "records", "cleaned to", "log start", "seconds")
    table.add_column("why")
    table.add_column("error", style="red")
    for each in outcomes:
        arrow = " → " if not dry_run else None
        table.add_row(
            each.topic,
            _partition(each.partition),
            _change(str(each.before.files), str(each.after.files), arrow),
            _change(decimal(each.before.bytes), decimal(each.after.bytes), arrow),
            _change(str(each.before.records), str(each.after.records), arrow),
            _number(each.cleaned_up_to),
            _number(each.log_start),
            f"{each.seconds:.1f}",
            each.reason,
            each.error or "",
        )
    console.print(table)


def print_status(topics: Mapping[str, Sequence[PartitionStatus]], last: Mapping[tuple[str, str, int], LastRun]) -> None:
    table = _table(
        "", ("topic", "partition"), "files", "size", "records", "log start", "cleaned to", "dirty", "last runs"
    )
    table.add_column("due, and why")
    for name, partitions in topics.items():
        for each in partitions:
            due = [f"[bold]{job}[/bold]: {why}" for job, why in each.due.items()]
            table.add_row(
                name,
                _partition(each.partition),
                str(each.files),
                decimal(each.bytes),
                str(each.records),
                _number(each.log_start),
                _number(each.cleaned_up_to),
                "–" if each.dirty_ratio is None else f"{each.dirty_ratio:.2f}",
                "\n".join(_runs(name, each.partition, last)) or "–",
                "\n".join([*due, *([each.waiting] if each.waiting else [])]) or "–",
            )
    _console().print(table if any(topics.values()) else "There are no topics yet.")


def _runs(topic: str, partition: int, last: Mapping[tuple[str, str, int], LastRun]) -> list[str]:
    mine = [run for run in last.values() if run.topic == topic and run.partition in (partition, WHOLE_TOPIC)]
    return [
        f"{run.job} {run.started_at:%Y-%m-%d %H:%M}" + (f" [red]{run.error}[/red]" if run.error else "")
        for run in sorted(mine, key=lambda run: run.started_at)
    ]


def _table(title: str, left: Sequence[str], *right: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold cyan", box=None)
    for column in left:
        table.add_column(column, overflow="fold", min_width=NAME_COLUMNS_MIN)
    for column in right:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _change(before: str, after: str, arrow: str | None) -> str:
    return before if arrow is None else f"{before}{arrow}{after}"


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)


def _partition(number: int) -> str:
    return "all" if number == WHOLE_TOPIC else str(number)
