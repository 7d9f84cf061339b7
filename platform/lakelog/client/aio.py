"""The client for event loops: the same requests by httpx.AsyncClient, and pauses that let others run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx
import pyarrow as pa

from lakelog.client import requests
from lakelog.client.batching import BatchingOptions
from lakelog.client.consumer import AsyncConsumer
from lakelog.client.core import DEFAULT_URL, ClientCore, documented, merged
from lakelog.client.cursor import Cursor
from lakelog.client.errors import RequestFailed
from lakelog.client.fetched import Fetched, FetchedRecord
from lakelog.client.membership import Membership
from lakelog.client.producer import AsyncProducer
from lakelog.client.replies import Produced
from lakelog.client.requests import Acks, Call, Offset, Positions

P = ParamSpec("P")
T = TypeVar("T")


def _method(describe: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncLakelogClient, P], Coroutine[Any, Any, T]]:
    async def method(client: AsyncLakelogClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client.send(describe(*args, **kwargs))

    return documented(method, describe)


class AsyncLakelogClient:
    """As LakelogClient, in one event loop: each method is a coroutine, and streams are iterated with `async for`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        retry_timeout_s: float = 30.0,
        compression: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._core = ClientCore(url, retry_timeout_s=retry_timeout_s, compression=compression, headers=headers)
        self._http = httpx.AsyncClient(**self._core.http_options())

    @property
    def url(self) -> str:
        return self._core.url

    ping = _method(requests.ping)
    list_topics = _method(requests.list_topics)
    summarize_topics = _method(requests.summarize_topics)
    describe_topic = _method(requests.describe_topic)
    create_topic = _method(requests.create_topic)
    delete_topic = _method(requests.delete_topic)
    topic_configs = _method(requests.topic_configs)
    alter_config = _method(requests.alter_config)
    add_partitions = _method(requests.add_partitions)
    delete_records = _method(requests.delete_records)
    list_groups = _method(requests.list_groups)
    describe_group = _method(requests.describe_group)
    group_lag = _method(requests.group_lag)
    reset_group_offsets = _method(requests.reset_group_offsets)
    delete_group = _method(requests.delete_group)
    fetch = _method(requests.fetch)
    offsets_at = _method(requests.offsets_at)

    async def produce(
        self,
        topic: str,
        records: Any,
        *,
        partition: int | None = None,
        acks: Acks = "all",
        timeout_ms: int | None = None,
        expected_offsets: Mapping[int, int] | None = None,
    ) -> Produced:
        """Append records and return where they are, as LakelogClient.produce does."""
        parts: list[Produced] = []
        for table in self._core.pieces(records, whole=expected_offsets is not None):
            with self._core.produce_call(
                topic,
                table,
                partition=partition,
                acks=acks,
                timeout_ms=timeout_ms,
                expected_offsets=expected_offsets,
            ) as call:
                parts.append(await self.send(call))
        return merged(parts)

    def producer(self, topic: str, *, partition: int | None = None, **options: Any) -> AsyncProducer:
        """A producer that sends records of one topic in the background; for options see `BatchingOptions`."""

        async def append(table: pa.Table) -> Produced:
            with self._core.produce_call(topic, table, partition=partition) as call:
                return await self.send(call)

        return AsyncProducer(append, BatchingOptions(**options))

    def stream(
        self,
        topic: str,
        *,
        partition: int | None = None,
        offset: Offset = "latest",
        timestamp: datetime | int | None = None,
        positions: Positions | None = None,
        follow: bool = True,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> AsyncStream:
        """Records as they come. Without `follow` it ends where the topic ended when it began."""
        cursor = Cursor(
            topic,
            partition=partition,
            offset=offset,
            timestamp=timestamp,
            positions=positions,
            follow=follow,
            max_records=max_records,
            max_bytes=max_bytes,
        )
        return AsyncStream(self, cursor)

    def consumer(self, group: str, topics: str | Sequence[str] = (), **options: Any) -> AsyncConsumer:
        """A member of a group that reads topics, or all whose name fits `pattern`; see `Membership` for options.

        A partition that the group has committed nothing of begins at `offset_reset`. A consumer that is silent for
        longer than `session_timeout_s` loses its place; under an `instance_id` it gets the same partitions again.
        """
        return AsyncConsumer(self.send, Membership(group, topics, **options))

    async def send(self, call: Call[T]) -> T:
        """Send a request, again and again if need be, and read its reply."""
        attempts = self._core.attempts(call, time.monotonic())
        while True:
            try:
                response = await self._http.send(self._core.http_request(self._http, call))
                return call.read(response)
            except httpx.TransportError as error:
                failure = self._core.failure_of(error)
            except RequestFailed as error:
                failure = error
            await asyncio.sleep(attempts.pause_after(failure, time.monotonic()))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncStream:
    """Iterate over it for records, or over `batches()` for whole replies; it may be left and taken up again."""

    def __init__(self, client: AsyncLakelogClient, cursor: Cursor) -> None:
        self._client = client
        self._cursor = cursor

    @property
    def positions(self) -> dict[int, int]:
        """Right behind what was handed out: where to begin to go on from here."""
        return dict(self._cursor.positions)

    async def __aiter__(self) -> AsyncIterator[FetchedRecord]:
        async for fetched in self._replies():
            for record in self._cursor.one_by_one(fetched):
                yield record

    async def batches(self) -> AsyncIterator[Fetched]:
        """Replies that hold records."""
        async for fetched in self._replies():
            whole = self._cursor.whole(fetched)
            if len(whole):
                yield whole

    async def _replies(self) -> AsyncIterator[Fetched]:
        while (call := self._cursor.next_fetch()) is not None:
            yield self._cursor.arrived(await self._client.send(call))
