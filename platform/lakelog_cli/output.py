"""How commands speak: tables for people, JSON for scripts, and failures in one line with an exit code.

Owns stdout and stderr, and the options that every command shares. What is said is for the commands to know.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from lakelog.client import DEFAULT_URL, LakelogClient, RequestFailed
from lakelog.errors import LakelogError

URL_VARIABLE = "LAKELOG_URL"

Url = Annotated[str, typer.Option("--url", envvar=URL_VARIABLE, help="The gateway's address.", metavar="URL")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

_DURATION = r"(\d{1,9})([smhd])"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that a half-written name may stand for. A shell that asks gets an answer or none, but no error."""
    url = context.params.get("url") or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        with LakelogClient(url, retry_timeout_s=0) as client:
            return [name for name in client.list_topics() if name.startswith(incomplete)]
    except LakelogError:
        return []


TopicArgument = Annotated[
    str, typer.Argument(help="The topic's name.", autocompletion=complete_topic, show_default=False, metavar="TOPIC")
]


@contextmanager
def connected(url: str, *, patient: bool = False) -> Iterator[LakelogClient]:
    """A client of the gateway, which has to be there. A patient one bears with it when it goes away for a while."""
    with LakelogClient(url, retry_timeout_s=0) as client:
        if not patient:
            yield client
            return
        client.ping()
    with LakelogClient(url) as client:
        yield client


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """As for what is written without rich: `Commands` knows what it means."""
        raise BrokenPipeError


def stdout() -> Console:
    # Without rich's own idea of what is worth a colour: numbers in a sentence are not.
    return _Stdout(highlight=False)


def stderr() -> Console:
    return Console(stderr=True)


def note(text: str) -> None:
    """A word for the person at the terminal; stdout is for what was asked for."""
    typer.echo(text, err=True)


def failure(message: str, exit_code: int = 1) -> typer.Exit:
    note(f"lakelog: {message}")
    return typer.Exit(exit_code)


def delete_each(kind: str, names: Sequence[str], delete: Callable[[str], object], *, as_json: bool) -> None:
    """One after the other. If one can't be deleted, those before it are told all the same."""
    deleted: list[str] = []
    try:
        for name in names:
            delete(name)
            deleted.append(name)
            if not as_json:
                note(f"{kind} {name} is deleted.")
    finally:
        if as_json:
            print_json(deleted)


def print_json(value: Any) -> None:
    text = msgspec.json.encode(value)
    if sys.stdout.isatty():
        text = msgspec.json.format(text)
    typer.echo(text.decode())


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[str] = ()
) -> None:
    """A table; columns named in `right` are numbers and stand to the right. Names are printed as they are."""
    table = Table(
        title=Text(title), title_justify="left", title_style="bold", header_style="bold cyan", box=None, pad_edge=False
    )
    for column in columns:
        table.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("–" if cell is None else str(cell)) for cell in row))
    stdout().print(table)


def human_bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_time(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")


def parse_duration_ms(text: str) -> int:
    """How long: 90s, 5m, 2h, 1d."""
    found = re.fullmatch(_DURATION, text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 5m, 2h or 1d")
    return int(timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds() * 1000)


def parse_time(text: str, now: datetime) -> datetime:
    """A time as people and programs write it: ISO 8601, milliseconds since 1970, or how long ago (90s, 5m, 2h, 1d)."""
    try:
        if re.fullmatch(_DURATION, text):
            return now - timedelta(milliseconds=parse_duration_ms(text))
        if re.fullmatch(r"\d{1,15}", text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-01-31T12:00:00Z, milliseconds since 1970, or 90s, 5m, 2h, 1d ago"
        ) from None


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def split_positions(text: str) -> dict[int, int]:
    """Offsets by partition, as 0:17,1:4."""
    try:
        pairs = [(int(partition), int(offset)) for partition, offset in (item.split(":") for item in text.split(","))]
    except ValueError:
        raise typer.BadParameter(f"{text!r} are no offsets by partition; write them as 0:17,1:4") from None
    positions = dict(pairs)
    if len(positions) < len(pairs):
        raise typer.BadParameter(f"{text!r} names a partition twice")
    return positions


def split_pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """Options of the form NAME=VALUE."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not {what}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def _advice(error: LakelogError) -> str:
    """What a person can do about it, where that is not plain from what happened."""
    if isinstance(error, RequestFailed) and error.unreachable:
        return f"; start one with `lakelog serve`, or say where it is with --url or {URL_VARIABLE}"
    return ""


class Commands(TyperGroup):
    """The root of the commands. They end with 0, 1 for an error and 2 for a wrong use, and never with a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except LakelogError as error:
            raise failure(error.message + _advice(error)) from None
        except OSError as error:
            # What is left in the buffer goes nowhere, or the interpreter would complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                # Whoever read has had enough (`| head`): that is no error.
                raise typer.Exit(0) from None
            raise failure(str(error)) from None
