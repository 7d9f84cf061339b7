"""The command names itself as its caller can call it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lakelog_cli.called import own_command


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command was started from."""
    command = tmp_path / "a folder" / ".venv" / "bin" / "lakelog"
    command.parent.mkdir(parents=True)
    command.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(command), "serve"])
    monkeypatch.setenv("PATH", "/usr/bin")
    return command


def test_by_its_name_where_the_shell_finds_it(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(started.parent))
    assert own_command() == "lakelog"


def test_by_the_path_from_here(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(started.parents[2])
    assert own_command() == ".venv/bin/lakelog"
    monkeypatch.setattr(sys, "argv", [".venv/bin/lakelog", "serve"])
    assert own_command() == ".venv/bin/lakelog"


def test_by_its_whole_path_from_elsewhere(started: Path) -> None:
    assert own_command() == f"'{started}'"


def test_by_its_own_path_where_python_started_it(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/lakelog_cli/main.py", "serve"])
    monkeypatch.setattr(sys, "executable", str(started.with_name("python")))
    assert own_command() == f"'{started}'"
