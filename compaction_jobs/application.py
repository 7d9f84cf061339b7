"""A program in a process of its own, with everything that it starts: ended when its time is over, its last words kept.

Spark is a program that starts others, and each of them may hang. They are a group of processes, which is told to end
and then made to. That they all have ended shows in the pipe for what they say, which then has no more writers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

READ_BYTES = 65_536
KEPT_BYTES = 4_000
# From being told to end to being killed: Spark takes its files away. Whoever stops the scheduler waits longer.
GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """`code` is None if it was made to end, because its time was over."""

    code: int | None
    last_words: str


async def run_application(
    command: Sequence[str], environment: Mapping[str, str], *, limit_s: float, grace_s: float = GRACE_S
) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    kept = bytearray()
    ending = asyncio.create_task(_until_all_have_ended(process, process.stdout, kept))
    try:
        await asyncio.wait({ending}, timeout=limit_s)
        in_time = ending.done()
    finally:
        if not ending.done():
            await _end(process.pid, ending, grace_s)
    return Ended(process.returncode if in_time else None, kept.decode(errors="replace"))


async def _until_all_have_ended(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, kept: bytearray
) -> None:
    while chunk := await output.read(READ_BYTES):
        kept += chunk
        del kept[:-KEPT_BYTES]
    await process.wait()


async def _end(group: int, ending: asyncio.Task[None], grace_s: float) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(group, sign)
        await asyncio.wait({ending}, timeout=grace_s)
        if ending.done():
            return
    ending.cancel()  # what not even that ends, as a process that waits for a disk, is left to the system
