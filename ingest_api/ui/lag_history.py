"""How far behind groups were lately: sampled while the gateway runs, kept for a while, bounded in partitions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias

from consumer_groups.lag import PartitionLag
from consumer_groups.service import GroupService
from lakelog.clock import Clock
from lakelog.errors import LakelogError

log = logging.getLogger(__name__)

INTERVAL_MS = 10_000
SAMPLES = 180
PARTITIONS_MAX = 5_000

Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    time_ms: int
    lags: Mapping[str, Mapping[Place, int]] = field(default_factory=dict)  # by group, then by topic and partition


class LagHistory:
    """Use it as an async context manager: it samples inside of it."""

    def __init__(self, groups: GroupService, clock: Clock) -> None:
        self._groups = groups
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._task: asyncio.Task[None] | None = None

    def of(self, group_id: str) -> tuple[list[int], dict[Place, list[int | None]]]:
        """The times of the samples, and for every partition its lag at each of them; None where there was none."""
        places = {place for sample in self._samples for place in sample.lags.get(group_id, ())}
        series = {
            place: [sample.lags.get(group_id, {}).get(place) for sample in self._samples] for place in sorted(places)
        }
        return [sample.time_ms for sample in self._samples], series

    async def sample(self) -> None:
        """Only where the groups are: to look is no reason to take them over from another gateway."""
        if not self._groups.coordinates:
            return
        taken: dict[str, dict[Place, int]] = {}
        room = PARTITIONS_MAX
        for group in await self._groups.list_groups():
            lags = await self._lags(group.group_id)
            taken[group.group_id] = {
                (each.topic, each.partition): each.lag for each in lags[:room] if each.lag is not None
            }
            room -= len(taken[group.group_id])
        self._samples.append(Sample(self._clock.now_ms(), taken))

    async def _lags(self, group_id: str) -> list[PartitionLag]:
        """None of a group that was deleted meanwhile, or went with all groups to another gateway."""
        if self._groups.coordinates:
            with suppress(LakelogError):
                return await self._groups.lag(group_id)
        return []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._keep_sampling())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _keep_sampling(self) -> None:
        while True:
            try:
                await self.sample()
            except LakelogError as error:
                log.warning("how far behind the groups are is not known at the moment: %s", error)
            await asyncio.sleep(INTERVAL_MS / 1000)
