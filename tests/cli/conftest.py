"""One gateway for all tests of the command line; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from typer.testing import CliRunner, Result

from lakelog_cli.local_gateway import LocalGateway
from lakelog_cli.main import app
from tests.gateway_process import gateway

# Wide enough that no sentence is broken over two lines, and in one colour.
TERMINAL = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}

Lakelog: TypeAlias = Callable[..., str]
Refused: TypeAlias = Callable[..., str]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), {"access_log": "off"}) as running:
        yield running


def invoke(url: str, *arguments: str, stdin: bytes = b"") -> Result:
    """A command in this process, as typer runs it."""
    return CliRunner(env={**TERMINAL, "LAKELOG_URL": url}).invoke(app, arguments, input=stdin)


@pytest.fixture
def lakelog(server: LocalGateway) -> Lakelog:
    """Runs a command that has to succeed, and gives what it printed."""

    def command(*arguments: str, stdin: bytes = b"") -> str:
        done = invoke(server.url, *arguments, stdin=stdin)
        assert (done.exit_code, done.exception) == (0, None), done.stderr
        return done.stdout

    return command


@pytest.fixture
def refused(server: LocalGateway) -> Refused:
    """Runs a command that has to fail with an exit code, and gives what it said about that."""

    def command(*arguments: str, exit_code: int, stdin: bytes = b"") -> str:
        done = invoke(server.url, *arguments, stdin=stdin)
        assert done.exit_code == exit_code, done.output
        assert isinstance(done.exception, SystemExit), done.exception
        assert done.stdout == ""
        return done.stderr

    return command
