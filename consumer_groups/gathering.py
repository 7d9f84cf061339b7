"""Group commit for rows: what many requests write while a commit is under way goes into the next one together.

Owns the order and the pace. Rows are written in the order in which they were handed in; a request that finds nobody
writing is written at once; under load the commit budget says when the next commit goes, so that a busy table writes few
larger files. Where rows are written, and what they mean, must not be known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from lakelog.clock import Clock
from lakelog.log.budget import CommitBudget

Row = TypeVar("Row")


class Gathering(Generic[Row]):
    """`write` makes rows durable. When it fails once, nothing is written any more: `on_failure` hears of it, and
    everyone who waits gets the error. What stands in the table then has to be read again.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Row]], Awaitable[None]],
        on_failure: Callable[[Exception], None],
        clock: Clock,
        files_per_second: int,
    ) -> None:
        self._write = write
        self._on_failure = on_failure
        self._clock = clock
        self._budget = CommitBudget(files_per_second, clock.monotonic_ms())
        self._rows: list[Row] = []
        self._latest = _done()  # of the last commit that there is to be
        self._failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    def put(self, rows: Sequence[Row]) -> asyncio.Future[None]:
        """Done when these rows, and all that were handed in before them, are durable. Many share it: shield it."""
        if self._failure is not None:
            return _done(self._failure)
        if rows:
            if not self._rows:
                self._latest = asyncio.get_running_loop().create_future()
            self._rows.extend(rows)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._write_all())
        return self._latest

    async def drain(self) -> None:
        """Wait until all that was handed in is durable, or has failed."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _write_all(self) -> None:
        try:
            while self._rows:
                wait_ms = self._budget.wait_ms(1, self._clock.monotonic_ms())
                if wait_ms > 0:
                    await asyncio.sleep(wait_ms / 1000)
                rows, durable, self._rows = self._rows, self._latest, []
                try:
                    await self._write(rows)
                except Exception as error:
                    self._fail(error, durable)
                    return
                self._budget.spend(1, self._clock.monotonic_ms())
                durable.set_result(None)
        finally:
            self._task = None

    def _fail(self, error: Exception, durable: asyncio.Future[None]) -> None:
        self._failure, self._rows = error, []
        for each in {durable, self._latest}:
            each.set_exception(error)
            each.exception()  # nobody may be waiting
        self._on_failure(error)


def _done(error: Exception | None = None) -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()
    return done
