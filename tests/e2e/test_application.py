"""A program that is started for a while: heard to its end, and ended with all that it started when its time is over."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from compaction_jobs.application import KEPT_BYTES, Ended, run_application
from tests.e2e.processes import PATIENCE_S

pytestmark = pytest.mark.e2e

# As Spark's driver, which has its work done by others. Neither of the two listens when it is told to end, and both hold
# the pipe for as long as they live.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pipe = os.open(sys.argv[1], os.O_WRONLY)
os.fork()
os.write(pipe, b".")
signal.pause()
"""


async def run(program: str, *, limit_s: float = PATIENCE_S) -> Ended:
    return await run_application([sys.executable, "-c", program], os.environ, limit_s=limit_s, grace_s=PATIENCE_S)


async def test_what_it_says_last_is_kept_and_no_more() -> None:
    talkative = f"print('x' * {10 * KEPT_BYTES}); print('the last words'); raise SystemExit(3)"
    ended = await run(talkative)
    assert ended.code == 3
    assert len(ended.last_words) == KEPT_BYTES
    assert ended.last_words.endswith("the last words\n")
    assert await run("") == Ended(0, "")


async def test_a_program_whose_time_is_over_is_ended() -> None:
    assert await run("import signal; signal.pause()", limit_s=0) == Ended(None, "")


async def test_what_does_not_listen_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", STUBBORN, str(pipe)]
    running = asyncio.create_task(run_application(command, os.environ, limit_s=PATIENCE_S, grace_s=0))
    with await asyncio.to_thread(pipe.open, "rb") as alive:
        assert await asyncio.to_thread(alive.read, 2) == b".."
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(alive.read) == b"", "nobody holds it any more"
