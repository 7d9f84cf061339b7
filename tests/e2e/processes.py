"""Real processes for tests: started, listened to, told to stop, killed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Far more than anything takes: it only says when a test has failed.
PATIENCE_S = 60


@dataclass(slots=True)
class Writer:
    """A `writer_process`, and what it wrote down."""

    process: subprocess.Popen[str]
    journal: Path

    def await_acknowledgements(self, count: int) -> list[int]:
        """The moments, in nanoseconds of the system's monotonic clock, of the next ones. Blocks on the pipe."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(count)]
        assert all(lines), f"the writer ended with {self.process.wait(PATIENCE_S)}"
        return [int(line) for line in lines]

    def request(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("append\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def stop(self) -> None:
        """Let it finish what it has begun."""
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0

    def acknowledged(self) -> list[dict[str, Any]]:
        """What the journal holds. A process that is killed while it writes leaves a piece of a line at the end."""
        lines = self.journal.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]


def start_writer(warehouse: Path, topic: str, name: str, *flags: str) -> Writer:
    journal = warehouse.with_name(f"{name}.journal")
    arguments = [str(warehouse), topic, name, str(journal), *flags]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.writer_process", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Writer(process, journal)
