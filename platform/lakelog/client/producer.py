"""Producers: records go in one by one, and to the gateway in batches, one batch at a time and in order.

What goes when is decided in `batching`; here is only who waits for what, once for threads and once for event loops. A
producer promises that records arrive in the order in which they were sent, each once, or that its delivery, the next
`flush` and `close` say why not. After a failure it goes on with the records that follow.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeAlias

import pyarrow as pa

from lakelog.client.batching import BatchingOptions, BatchQueue
from lakelog.client.records import Headers, Record
from lakelog.client.replies import Produced
from lakelog.errors import ErrorCode, LakelogError

Delivery: TypeAlias = concurrent.futures.Future[Produced]
AsyncDelivery: TypeAlias = asyncio.Future[Produced]


def _now_ms() -> float:
    return time.monotonic() * 1000


def _closed() -> LakelogError:
    return LakelogError(ErrorCode.INVALID_REQUEST, "the producer is closed")


def _new_delivery() -> Delivery:
    """One that nobody can cancel: all records of a batch share it, and those of the others are on their way."""
    delivery: Delivery = concurrent.futures.Future()
    delivery.set_running_or_notify_cancel()
    return delivery


def _of_one_sender(delivery: AsyncDelivery) -> AsyncDelivery:
    """To be cancelled without a word to the others: who no longer waits does so for itself alone."""
    own = asyncio.shield(delivery)
    own.add_done_callback(_taken_note_of)
    return own


def _taken_note_of(delivery: AsyncDelivery) -> None:
    """A failure is raised by flush, so nobody has to look at it here."""
    if not delivery.cancelled():
        delivery.exception()


class Producer:
    """Sends from a thread of its own. `send` may be called by several threads; it waits when the buffer is full."""

    def __init__(self, append: Callable[[pa.Table], Produced], options: BatchingOptions, *, name: str) -> None:
        self._append = append
        self._queue: BatchQueue[Delivery] = BatchQueue(options, _new_delivery)
        self._changed = threading.Condition()
        self._closing = False
        self._failure: LakelogError | None = None
        # A daemon: a program that ends without closing its producer ends, as it would with any open file.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def send(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers = (),
        timestamp: datetime | int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Hand a record over. The delivery is that of its batch: it says where the batch was stored.

        It can't be cancelled, but nobody has to wait for it.
        """
        return self.send_record(Record(value, key, headers, timestamp, partition))

    def send_record(self, record: Record) -> Delivery:
        with self._changed:
            self._changed.wait_for(lambda: self._queue.has_room or self._closing)
            if self._closing:
                raise _closed()
            delivery, changed = self._queue.add(record, _now_ms())
            if changed:
                self._changed.notify_all()
        return delivery

    def flush(self) -> None:
        """Wait until all that was sent is stored; raises the first failure since the last time."""
        with self._changed:
            self._queue.hurry()
            under_way = self._queue.deliveries()
            self._changed.notify_all()
        concurrent.futures.wait(under_way)
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Flush, and stop."""
        with self._changed:
            self._closing = True
            self._queue.hurry()
            self._changed.notify_all()
        self._thread.join()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (wait_ms := self._queue.wait_ms(_now_ms())) != 0:
                    if wait_ms is None and self._closing:
                        return
                    self._changed.wait(None if wait_ms is None else wait_ms / 1000)
                batch = self._queue.take()
            failure: Exception | None = None
            try:
                produced = self._append(batch.records.to_table())
            except Exception as error:
                # Whatever it is, it is told to those who wait: a thread that ended would leave them waiting.
                failure = error
            with self._changed:
                self._queue.settled()
                if failure is not None and self._failure is None:
                    self._failure = _as_lakelog_error(failure)
                self._changed.notify_all()
            if failure is None:
                batch.delivery.set_result(produced)
            else:
                batch.delivery.set_exception(failure)


class AsyncProducer:
    """Sends from a task of the running event loop. `send` returns when there was room in the buffer."""

    def __init__(self, append: Callable[[pa.Table], Awaitable[Produced]], options: BatchingOptions) -> None:
        self._append = append
        loop = asyncio.get_running_loop()
        self._queue: BatchQueue[AsyncDelivery] = BatchQueue(options, loop.create_future)
        self._sent = asyncio.Event()  # something for the task to look at
        self._settled = asyncio.Condition()
        self._closing = False
        self._failure: LakelogError | None = None
        self._task = loop.create_task(self._run())

    async def send(
        self,
        value: Any,
        key: Any = None,
        *,
        headers: Headers = (),
        timestamp: datetime | int | None = None,
        partition: int | None = None,
    ) -> AsyncDelivery:
        """Hand a record over. The delivery is that of its batch: await it to hear where the batch was stored.

        To cancel it is to wait no longer; the record goes all the same.
        """
        return await self.send_record(Record(value, key, headers, timestamp, partition))

    async def send_record(self, record: Record) -> AsyncDelivery:
        if not self._queue.has_room:
            async with self._settled:
                await self._settled.wait_for(lambda: self._queue.has_room or self._closing)
        if self._closing:
            raise _closed()
        delivery, changed = self._queue.add(record, _now_ms())
        if changed:
            self._sent.set()
        return _of_one_sender(delivery)

    async def flush(self) -> None:
        """Wait until all that was sent is stored; raises the first failure since the last time."""
        self._queue.hurry()
        self._sent.set()
        if under_way := self._queue.deliveries():
            await asyncio.wait(under_way)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush, and stop."""
        self._closing = True
        self._queue.hurry()
        self._sent.set()
        # Who gives up waiting for the end must not take the records that are still to go with it.
        await asyncio.shield(self._task)
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self) -> None:
        while True:
            while (wait_ms := self._queue.wait_ms(_now_ms())) != 0:
                if wait_ms is None and self._closing:
                    return
                self._sent.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                        await self._sent.wait()
            batch = self._queue.take()
            failure: Exception | None = None
            try:
                produced = await self._append(batch.records.to_table())
            except Exception as error:
                # Whatever it is, it is told to those who wait: a task that ended would leave them waiting.
                failure = error
            self._queue.settled()
            if failure is None:
                batch.delivery.set_result(produced)
            else:
                self._failure = self._failure or _as_lakelog_error(failure)
                batch.delivery.set_exception(failure)
            async with self._settled:
                self._settled.notify_all()


def _as_lakelog_error(error: Exception) -> LakelogError:
    return error if isinstance(error, LakelogError) else LakelogError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
