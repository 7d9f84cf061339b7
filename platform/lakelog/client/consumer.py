"""Members of groups: one that blocks, and one for event loops. What they ask and keep is in `membership`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from types import TracebackType
from typing import Protocol, Self, TypeVar

from lakelog.client.cursor import POLL_MS
from lakelog.client.errors import RequestFailed
from lakelog.client.fetched import ConsumedRecord, Polled
from lakelog.client.membership import Membership
from lakelog.client.requests import Call

T = TypeVar("T")


class Send(Protocol):
    def __call__(self, call: Call[T]) -> T: ...


class SendAsync(Protocol):
    def __call__(self, call: Call[T]) -> Awaitable[T]: ...


class Consumer:
    """Shares the partitions of its topics with the other consumers of its group. Close it, or use it in a `with`.

    Iterate over it for records, or over `batches()`; or `poll()` and `commit()` by hand. With `auto_commit` what was
    handed out is committed every few seconds, and when it is closed. For use by one thread.
    """

    def __init__(self, send: Send, membership: Membership) -> None:
        self._send = send
        self._membership = membership

    def poll(self, timeout_ms: int = 1_000, *, max_records: int | None = None) -> Polled:
        """Records as soon as there are some, or none after `timeout_ms`. They count as handed out."""
        self._commit_if_due()
        rest = self._membership.rest(max_records)
        return rest if rest is not None else self._membership.handed_out(self._poll(timeout_ms, max_records))

    def commit(self) -> None:
        """Commit all that was handed out. Raises if some of it has gone to other consumers, who will do it again."""
        member = self._membership
        if member.uncommitted:
            try:
                self._send(member.commit())
            except RequestFailed as failure:
                member.passed_on(failure)
                raise
            member.committed(time.monotonic())

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Read on from these offsets, by topic and partition."""
        self._join()
        self._send(self._membership.seek(offsets))
        self._membership.sought(offsets)

    def assignment(self) -> list[tuple[str, int]]:
        """The topics and partitions that it reads now."""
        self._join()
        return self._send(self._membership.assignment())

    def batches(self) -> Iterator[Polled]:
        """Polls that bring records, on and on."""
        while True:
            if len(polled := self.poll(POLL_MS)):
                yield polled

    def __iter__(self) -> Iterator[ConsumedRecord]:
        member = self._membership
        while True:
            while (record := member.next_record()) is not None:
                yield record
            self._commit_if_due()
            member.take_apart(self._poll(POLL_MS, None))

    def close(self) -> None:
        """Leave the group, so that the others go on with its partitions at once. As in Kafka, one with an instance id
        keeps them until its session is over: it may be back.
        """
        member = self._membership
        member.close()
        try:
            self._commit_if_due(last=True)
        finally:
            if member.exists:
                self._send(member.delete())

    def __enter__(self) -> Self:
        self._join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self) -> None:
        member = self._membership
        if not member.joined:
            self._send(member.create())
            self._send(member.subscribe())
            member.has_joined()

    def _poll(self, timeout_ms: int, max_records: int | None) -> Polled:
        while True:
            try:
                self._join()
                polled = self._send(self._membership.poll(timeout_ms, max_records))
            except RequestFailed as failure:
                if not self._membership.lost(failure):
                    raise
            else:
                self._membership.has_answered()
                return polled

    def _commit_if_due(self, *, last: bool = False) -> None:
        member = self._membership
        if member.commits_now(time.monotonic(), last=last):
            try:
                self._send(member.commit())
                member.committed(time.monotonic())
            except RequestFailed as failure:
                if not member.passed_on(failure):
                    raise


class AsyncConsumer:
    """As Consumer, in one event loop: each method is a coroutine, and records are iterated with `async for`."""

    def __init__(self, send: SendAsync, membership: Membership) -> None:
        self._send = send
        self._membership = membership

    async def poll(self, timeout_ms: int = 1_000, *, max_records: int | None = None) -> Polled:
        """Records as soon as there are some, or none after `timeout_ms`. They count as handed out."""
        await self._commit_if_due()
        rest = self._membership.rest(max_records)
        return rest if rest is not None else self._membership.handed_out(await self._poll(timeout_ms, max_records))

    async def commit(self) -> None:
        """Commit all that was handed out. Raises if some of it has gone to other consumers, who will do it again."""
        member = self._membership
        if member.uncommitted:
            try:
                await self._send(member.commit())
            except RequestFailed as failure:
                member.passed_on(failure)
                raise
            member.committed(time.monotonic())

    async def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Read on from these offsets, by topic and partition."""
        await self._join()
        await self._send(self._membership.seek(offsets))
        self._membership.sought(offsets)

    async def assignment(self) -> list[tuple[str, int]]:
        """The topics and partitions that it reads now."""
        await self._join()
        return await self._send(self._membership.assignment())

    async def batches(self) -> AsyncIterator[Polled]:
        """Polls that bring records, on and on."""
        while True:
            if len(polled := await self.poll(POLL_MS)):
                yield polled

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        member = self._membership
        while True:
            while (record := member.next_record()) is not None:
                yield record
            await self._commit_if_due()
            member.take_apart(await self._poll(POLL_MS, None))

    async def close(self) -> None:
        """Leave the group, so that the others go on with its partitions at once. As in Kafka, one with an instance id
        keeps them until its session is over: it may be back.
        """
        member = self._membership
        member.close()
        try:
            await self._commit_if_due(last=True)
        finally:
            if member.exists:
                await self._send(member.delete())

    async def __aenter__(self) -> Self:
        await self._join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _join(self) -> None:
        member = self._membership
        if not member.joined:
            await self._send(member.create())
            await self._send(member.subscribe())
            member.has_joined()

    async def _poll(self, timeout_ms: int, max_records: int | None) -> Polled:
        while True:
            try:
                await self._join()
                polled = await self._send(self._membership.poll(timeout_ms, max_records))
            except RequestFailed as failure:
                if not self._membership.lost(failure):
                    raise
            else:
                self._membership.has_answered()
                return polled

    async def _commit_if_due(self, *, last: bool = False) -> None:
        member = self._membership
        if member.commits_now(time.monotonic(), last=last):
            try:
                await self._send(member.commit())
                member.committed(time.monotonic())
            except RequestFailed as failure:
                if not member.passed_on(failure):
                    raise
