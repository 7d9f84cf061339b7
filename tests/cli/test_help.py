"""Every command explains itself, and so does each of its options; a shell completes names of topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from lakelog_cli.local_gateway import LocalGateway
from lakelog_cli.main import app
from lakelog_cli.output import complete_topic
from tests.cli.conftest import Lakelog


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all that are under it, with the words that call them."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ROOT = typer.main.get_command(app)
ALL = list(commands(ROOT))


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) or "lakelog" for path, _ in ALL])
def test_every_command_and_each_of_its_options_is_explained(
    lakelog: Lakelog, path: tuple[str, ...], command: Any
) -> None:
    shown = lakelog(*path, "--help")
    assert command.help
    assert command.help.splitlines()[0] in shown
    unexplained = [each.name for each in command.params if not getattr(each, "help", None)]
    assert unexplained == []


def test_a_shell_completes_the_names_of_topics(lakelog: Lakelog, server: LocalGateway) -> None:
    lakelog("topics", "create", "completed-orders")
    context = typer.Context(ROOT)
    context.params = {"url": server.url}
    assert complete_topic(context, "completed-") == ["completed-orders"]
    context.params = {"url": "http://127.0.0.1:1"}
    assert complete_topic(context, "completed-") == []
