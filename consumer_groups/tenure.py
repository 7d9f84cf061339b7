"""One process's time as the coordinator of a warehouse: from its claim on the two tables until another's.

Owns the claim, what was loaded under it, and the writing of facts and offsets. Both tables are claimed before they are
read, so nothing that an earlier coordinator writes later can be missed: it does not get in. A tenure ends when another
process claims the tables, or when a write fails and it is not known any more what stands in them. Then everyone who
waits is told, and the next tenure starts from what the tables say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Self

import pyarrow as pa

from consumer_groups import fact_table, offset_table
from consumer_groups.assignors import TopicPartition
from consumer_groups.coordinator import Coordinator
from consumer_groups.gathering import Gathering
from consumer_groups.group_settings import GroupSettings
from consumer_groups.membership import Membership
from consumer_groups.offsets import OffsetBook, OffsetRow
from consumer_groups.state import Fact
from lakelog.broker import Broker
from lakelog.delta.ledger import Fenced, Ledger, plan_fold
from lakelog.errors import ErrorCode, LakelogError

log = logging.getLogger(__name__)

FILES_MAX = 64
FILES_PER_SECOND = 50
FILES_PER_SECOND_ON_OBJECT_STORE = 10


def fact_ledger(broker: Broker) -> Ledger:
    run = broker.produce_path.run
    return Ledger(broker.store, fact_table.NAME, fact_table.SCHEMA, broker.clock, run)


def offset_ledger(broker: Broker) -> Ledger:
    run = broker.produce_path.run
    return Ledger(broker.store, offset_table.NAME, offset_table.SCHEMA, broker.clock, run)


class Tenure:
    """`ended` says why it is over, once it is, and `ended_ms` since when by the clock that only goes on."""

    def __init__(self, broker: Broker, settings: GroupSettings, now_ms: Callable[[], int]) -> None:
        self.book = OffsetBook()
        # By the names of topics: one that was deleted and made again meanwhile is another topic. What happened before
        # this began is not known, and what the book says then is believed.
        self.table_ids: dict[str, str] = {}
        self.ended: LakelogError | None = None
        self.ended_ms = 0.0
        self._settings = settings
        self._now_ms = now_ms
        self._clock = broker.clock
        self._facts, self._offsets = fact_ledger(broker), offset_ledger(broker)
        per_second = FILES_PER_SECOND_ON_OBJECT_STORE if broker.store.on_object_store else FILES_PER_SECOND
        self._fact_writes = Gathering(self._write_facts, self._fail, self._clock, per_second)
        self._offset_writes = Gathering(self._write_rows, self._fail, self._clock, per_second)
        self._next_sequence = 0
        self._committed_us = 0
        self._upkeep: dict[str, asyncio.Task[None]] = {}

    async def begin(self) -> Self:
        """Claim the tables and load what they say."""
        await asyncio.gather(self._facts.claim(), self._offsets.claim())
        facts, offsets = await asyncio.gather(self._facts.read(), self._offsets.read())
        groups, rows = await asyncio.to_thread(lambda: (fact_table.groups_of(facts), offset_table.rows_of(offsets)))
        self.book.apply(rows)
        self._next_sequence = fact_table.next_sequence(facts)
        self._committed_us = rows[-1].committed_us if rows else 0
        self.membership = Membership(Coordinator(self._settings, groups), self, self._now_ms)
        self.membership.resume()
        return self

    @property
    def coordinator(self) -> Coordinator:
        return self.membership.coordinator

    def record(self, facts: Sequence[Fact]) -> asyncio.Future[None]:
        return self._fact_writes.put(facts)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, tuple[int, int, str]]) -> asyncio.Future[None]:
        """Write offsets; done when they are durable, and `book` says so. Many wait for the same: shield it."""
        return self._offset_writes.put(
            [
                OffsetRow(group_id, topic, partition, offset, leader_epoch, metadata, self._next_us())
                for (topic, partition), (offset, leader_epoch, metadata) in offsets.items()
            ]
        )

    def forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> asyncio.Future[None]:
        """Delete offsets, like a commit."""
        rows = [OffsetRow(group_id, topic, partition, None, -1, "", self._next_us()) for topic, partition in partitions]
        return self._offset_writes.put(rows)

    async def check(self) -> None:
        """End this if another process has claimed the tables, which otherwise only a write would tell."""
        try:
            await _unless_fenced(self._facts.check_claim())
        except LakelogError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            self._stop(error)

    async def settle(self) -> None:
        """Wait until all is written and nothing looks after the tables."""
        await self._fact_writes.drain()
        await self._offset_writes.drain()
        while self._upkeep:
            await asyncio.wait(list(self._upkeep.values()))

    async def end(self, reason: LakelogError) -> None:
        """Write what was taken in, and stop."""
        await self._fact_writes.drain()
        await self._offset_writes.drain()
        self._stop(reason)
        for task in self._upkeep.values():
            task.cancel()
        await asyncio.gather(*self._upkeep.values(), return_exceptions=True)

    def _stop(self, reason: LakelogError) -> None:
        if self.ended is None:
            self.ended, self.ended_ms = reason, self._clock.monotonic_ms()
            self.membership.close(reason)

    def _next_us(self) -> int:
        """Now, but later than any commit before, also where the clock is not: that says which one counts."""
        self._committed_us = max(self._committed_us + 1, self._clock.now_ms() * 1000)
        return self._committed_us

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, LakelogError):
            log.error("the coordinator stops", exc_info=error)
            error = LakelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the group's record failed: {error!r}")
        self._stop(error)

    # -- writing -----------------------------------------------------------------------------------------------

    async def _write_facts(self, facts: Sequence[Fact]) -> None:
        first = self._next_sequence
        self._next_sequence += len(facts)
        await _unless_fenced(self._facts.append(first, fact_table.table_of(facts, first, self._clock.now_ms())))
        self._keep_small(self._facts, fact_table.folded)

    async def _write_rows(self, rows: Sequence[OffsetRow]) -> None:
        await _unless_fenced(self._offsets.append(rows[0].committed_us, offset_table.table_of(rows)))
        self.book.apply(rows)
        self._keep_small(self._offsets, None)

    def _keep_small(self, ledger: Ledger, fold_all: Callable[[pa.Table], pa.Table] | None) -> None:
        """In the background, one at a time for each table. It may fail: what it leaves undone is done the next time."""
        if ledger.name not in self._upkeep:
            task = asyncio.get_running_loop().create_task(self._look_after(ledger, fold_all))
            self._upkeep[ledger.name] = task
            task.add_done_callback(lambda _: self._upkeep.pop(ledger.name, None))

    async def _look_after(self, ledger: Ledger, fold_all: Callable[[pa.Table], pa.Table] | None) -> None:
        try:
            files = ledger.files
            if fold_all is not None:
                if len(files) >= FILES_MAX:
                    await ledger.rewrite(files, fold_all)
            elif taken := plan_fold([file.rows for file in files], FILES_MAX):
                everything = taken == len(files)
                newest = files[-taken:]
                await ledger.rewrite(newest, lambda rows: offset_table.latest(rows, drop_deleted=everything))
            await ledger.cut_log()
        except (LakelogError, Fenced) as error:
            log.warning("upkeep of %s was put off: %s", ledger.name, error)
        except Exception:
            log.exception("upkeep of %s failed", ledger.name)


async def _unless_fenced(work: Awaitable[None]) -> None:
    try:
        await work
    except Fenced:
        raise LakelogError(
            ErrorCode.NOT_COORDINATOR, "another gateway coordinates the groups of this warehouse now"
        ) from None
