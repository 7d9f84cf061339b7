"""The programs that deployments are checked with, and what they say. A test whose program is not there skips."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TIMEOUT_S = 120


def program(name: str, hint: str) -> str:
    """One in .venv/bin, where the Makefile puts them, or else on the PATH."""
    beside_python = Path(sys.executable).parent
    found = shutil.which(name, path=os.pathsep.join([str(beside_python), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"{name} is not there: {hint}")
    return found


def said_by(command: list[str], *, cwd: Path = ROOT) -> str:
    """What a program says that succeeds. If it does not, what it says is the failure."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refusal_of(command: list[str], *, cwd: Path = ROOT) -> str:
    """What a program says that fails, as it should."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode != 0, "it went through"
    return done.stdout + done.stderr
