"""The coordinator in an event loop: its time runs, its facts are put on record, its replies wait for that.

Owns the order of things. A request is decided at once; its facts go to the journal in the order in which they were
decided; and whoever is told of it (the caller, those whose requests were parked, members who wait for news) is told
when the facts, and all before them, are on record. So nobody acts on what a crash could take back. If the journal
fails, everyone who waits gets its error, and the owner must make another of these from the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from consumer_groups.coordinator import Coordinator
from consumer_groups.requests import JoinReply, Outcome, Parked, Reply, Request, SyncReply
from consumer_groups.state import Fact, MemberLeft, MemberReplaced
from lakelog.errors import ErrorCode, LakelogError

R = TypeVar("R", bound=Reply)


class Journal(Protocol):
    def record(self, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """Done when these facts, and all that were handed in before them, outlive the process."""


class Membership:
    def __init__(self, coordinator: Coordinator, journal: Journal, now_ms: Callable[[], int]) -> None:
        self.coordinator = coordinator
        self._journal = journal
        self._now_ms = now_ms
        self._parked: dict[int, asyncio.Future[JoinReply | SyncReply]] = {}
        self._news: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._closed: LakelogError | None = None

    async def ask(self, request: Request, kind: type[R]) -> R:
        """The reply to a request, once it may be known; some wait for the other members of the group."""
        if self._closed is not None:
            raise self._closed
        outcome = self.coordinator.handle(request, self._now_ms())
        waiting: asyncio.Future[JoinReply | SyncReply] | None = None
        if isinstance(outcome.reply, Parked):
            waiting = asyncio.get_running_loop().create_future()
            self._parked[outcome.reply.ticket] = waiting
        await asyncio.shield(self._settle(outcome))
        reply = await waiting if waiting is not None else outcome.reply
        assert isinstance(reply, kind)
        return reply

    def next_news(self, group_id: str, member_id: str) -> asyncio.Future[None]:
        """Done when a heartbeat of this served member would bring something new. Ask before you send one."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = group_id, member_id
        waiters = self._news.setdefault(key, set())
        waiters.add(waiter)

        def forget(_: asyncio.Future[None]) -> None:
            waiters.discard(waiter)
            if not waiters and self._news.get(key) is waiters:
                del self._news[key]

        waiter.add_done_callback(forget)
        group = self.coordinator.groups.get(group_id)
        if self._closed is not None or group is None or member_id not in group.members:
            waiter.set_result(None)  # the heartbeat will say what is wrong
        return waiter

    async def topics_changed(self, partition_counts: dict[str, int]) -> None:
        """These are the topics now; see the coordinator."""
        await asyncio.shield(self._settle(self.coordinator.topics_changed(partition_counts, self._now_ms())))

    async def tick(self) -> None:
        """Do now what is due. Timers of its own do it without being asked."""
        await asyncio.shield(self._settle(self.coordinator.tick(self._now_ms())))

    def resume(self) -> None:
        """Let the time of groups that were replayed run again."""
        self.coordinator.resume(self._now_ms())
        self._set_timer()

    def close(self, error: LakelogError) -> None:
        """Answer everyone who waits, and everyone who comes from now on, with this error."""
        self._closed = error
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._parked.values():
            _fail(waiting, error)
        self._parked.clear()
        for key in list(self._news):
            self._wake(key)

    def _settle(self, outcome: Outcome) -> asyncio.Future[None]:
        recorded = self._journal.record(outcome.facts)
        recorded.add_done_callback(partial(self._deliver, outcome))
        self._set_timer()
        return recorded

    def _deliver(self, outcome: Outcome, recorded: asyncio.Future[None]) -> None:
        error = recorded.exception() if not recorded.cancelled() else None
        for ticket, reply in outcome.released:
            waiting = self._parked.pop(ticket, None)
            if waiting is None or waiting.done():
                continue  # its client is gone; the session will tell
            if error is not None or recorded.cancelled():
                _fail(waiting, error or LakelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                waiting.set_result(reply)
        for key in outcome.woken:
            self._wake(key)
        for fact in outcome.facts:
            if isinstance(fact, MemberLeft | MemberReplaced):
                self._wake((fact.group_id, fact.member_id))

    def _wake(self, key: tuple[str, str]) -> None:
        for waiter in list(self._news.get(key, ())):
            if not waiter.done():
                waiter.set_result(None)

    def _set_timer(self) -> None:
        """A timer that is set already and not too late stays: heartbeats put deadlines off all the time."""
        due_ms = self.coordinator.next_deadline()
        if due_ms is None or self._closed is not None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0, due_ms - self._now_ms()) / 1000
        self._timer, self._timer_due_ms = asyncio.get_running_loop().call_later(delay, self._tick), due_ms

    def _tick(self) -> asyncio.Future[None]:
        self._timer = None
        return self._settle(self.coordinator.tick(self._now_ms()))


def _fail(waiting: asyncio.Future[JoinReply | SyncReply], error: BaseException) -> None:
    if not waiting.done():
        waiting.set_exception(error)
        waiting.exception()  # whoever waited may be gone; then this is nobody's news
