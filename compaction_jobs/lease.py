"""A run's claim to files that it has written and not yet committed, so that no vacuum takes them for orphans.

One small file per run, touched again and again while the run lasts. A claim that was not touched for LEASE_MS is void:
its run is dead, and so it must not commit any more.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from types import TracebackType
from typing import Self

from lakelog.clock import Clock
from lakelog.delta.store import Store, StoreRefused, StoreUnavailable

LEASE_FOLDER = "__maintenance/_leases"
LEASE_MS = 900_000
TOUCH_MS = 60_000


class LeaseLost(Exception):
    """The claim was not renewed in time: what the run has written may be gone."""


class Lease:
    """Held while in the block. `id` marks the names of the files that it protects."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.id = secrets.token_hex(8)
        self._store = store
        self._clock = clock
        self._path = f"{LEASE_FOLDER}/{self.id}"
        self._touched_ms = float("-inf")
        self._toucher: asyncio.Task[None] | None = None

    def require(self) -> None:
        """Raise unless the claim is good, with half of its time in hand for the commit."""
        if self._clock.monotonic_ms() - self._touched_ms > LEASE_MS / 2:
            raise LeaseLost("the run stood still for too long, and a vacuum may have taken its files; run it again")

    async def __aenter__(self) -> Self:
        await self._touch()
        self._toucher = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._toucher is not None
        self._toucher.cancel()
        await asyncio.gather(self._toucher, return_exceptions=True)
        with suppress(StoreUnavailable, StoreRefused):  # a claim that stays behind is void soon
            await self._store.delete([self._path])

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(TOUCH_MS / 1000)
            try:
                await self._touch()
            except (StoreUnavailable, StoreRefused):
                continue  # there is time for more tries, and `require` tells when there is not

    async def _touch(self) -> None:
        started_ms = self._clock.monotonic_ms()
        await self._store.put(self._path, b"")
        self._touched_ms = started_ms


async def leases(store: Store, now_ms: int) -> tuple[list[str], list[str]]:
    """The ids of the claims that hold, and the paths of those that are void."""
    held, void = [], []
    for file in await store.files(LEASE_FOLDER):
        if now_ms - file.modified_ms < LEASE_MS:
            held.append(file.path.rsplit("/", 1)[-1])
        else:
            void.append(file.path)
    return held, void
