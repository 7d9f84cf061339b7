"""A real gateway process for tests, and the commands of the command line as real processes.

    with gateway(tmp_path) as server:
        httpx.get(f"{server.url}/topics")

The process is `lakelog serve` on a port of its own, with nothing but the settings that the test gives. Leaving the
block stops it, unless the test has ended it itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakelog_cli.local_gateway import LocalGateway

# A command that takes this long has failed.
PATIENCE_S = 60.0


@contextmanager
def gateway(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[LocalGateway]:
    """Its warehouse is `folder / "warehouse"`. It may be killed, and started again at the same address."""
    with LocalGateway(folder / "warehouse", folder / "gateway.log", settings) as server:
        yield server


def command(*arguments: str) -> list[str]:
    """The command line as a process that has all of it: `lakelog topics list` is command("topics", "list")."""
    return [sys.executable, "-m", "lakelog_cli.main", *arguments]


def environment(url: str) -> dict[str, str]:
    """What the command line sees: the address, a wide terminal's width, and no setting of the surroundings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKELOG_")}
    return {**kept, "LAKELOG_URL": url, "COLUMNS": "200"}


def run(
    url: str, arguments: Sequence[str], *, stdin: bytes = b"", timeout_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end. Its exit code is for the test to look at."""
    return subprocess.run(
        command(*arguments), env=environment(url), input=stdin, capture_output=True, timeout=timeout_s, check=False
    )
