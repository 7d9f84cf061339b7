"""The scheduler that keeps the topics of a gateway's warehouse clean: a process beside the gateway, and of its life.

It is given a pipe, which ends with the gateway whatever ends that, and the scheduler ends with the pipe.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from compaction_jobs.surroundings import EVERY_SECONDS, options_variable

STOP_TIMEOUT_S = 20.0

__all__ = ["EVERY_SECONDS", "scheduler"]


@contextmanager
def scheduler(
    warehouse: str,
    options: Mapping[str, str],
    *,
    every_seconds: float,
    io_bytes_per_second: float,
    fsync: bool,
    offsets_retention_minutes: int,
) -> Iterator[None]:
    """Runs while in the block. A warehouse in memory is in no other process's reach, and has none."""
    if warehouse.startswith("memory:"):
        yield
        return
    command = [sys.executable, "-m", "compaction_jobs", "schedule", "--until-stdin-ends", "--warehouse", warehouse]
    command += ["--every-seconds", str(every_seconds), "--io-bytes-per-second", str(io_bytes_per_second)]
    command += ["--offsets-retention-minutes", str(offsets_retention_minutes)]
    command += ["--fsync"] if fsync else []
    # A session of its own: Ctrl-C is for the gateway, which drains first.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=sys.stderr,
        env={**os.environ, **options_variable(options)},
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
