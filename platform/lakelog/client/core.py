"""What both clients are made of, beside the sending itself: address, patience, identities, and how a method is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx
import pyarrow as pa

from lakelog.client import requests
from lakelog.client.errors import RequestFailed, interrupted, unreachable
from lakelog.client.identity import Identity, IdentityPool
from lakelog.client.records import split, to_ipc, to_table
from lakelog.client.replies import OffsetRange, Produced
from lakelog.client.requests import Acks, Call
from lakelog.client.retries import Attempts
from lakelog.errors import ErrorCode, LakelogError

DEFAULT_URL = "http://localhost:8082"
# What one request carries: large enough that its commit costs little, small enough that it fits between others.
REQUEST_BYTES = 8 * 1024 * 1024
# Beside the time that a request itself asks for.
REPLY_TIMEOUT_S = 65.0
CONNECT_TIMEOUT_S = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class ClientCore:
    """Everything about a client that is not I/O. Its methods may be called from any thread."""

    def __init__(
        self,
        url: str,
        *,
        retry_timeout_s: float,
        compression: str | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        self.url = _checked_url(url)
        self.compression = compression
        self._retry_timeout_s = retry_timeout_s
        self._identities = IdentityPool()
        self._headers = dict(headers or {})

    def http_options(self) -> dict[str, Any]:
        return {
            "base_url": self.url,
            "headers": self._headers,
            "timeout": httpx.Timeout(REPLY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=None),
            # Reading the certificates of the system takes longer than a request, and plain HTTP has no use for them.
            "verify": self.url.startswith("https:"),
        }

    def http_request(self, http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
        timeout = httpx.Timeout(REPLY_TIMEOUT_S + call.wait_ms / 1000, connect=CONNECT_TIMEOUT_S, pool=None)
        return http.build_request(
            call.method, call.path, params=call.params, headers=call.headers, content=call.body, timeout=timeout
        )

    def attempts(self, call: Call[Any], now_s: float) -> Attempts:
        return Attempts(now_s, self._retry_timeout_s, repeatable=call.repeatable)

    def failure_of(self, error: httpx.TransportError) -> RequestFailed:
        reason = str(error) or type(error).__name__
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return unreachable(self.url, reason)
        return interrupted(self.url, reason)

    @contextmanager
    def produce_call(
        self,
        topic: str,
        table: pa.Table,
        *,
        partition: int | None = None,
        acks: Acks = "all",
        timeout_ms: int | None = None,
        expected_offsets: Mapping[int, int] | None = None,
    ) -> Iterator[Call[Produced]]:
        """A request for the records of a table. The block sends it; an error in it retires the identity."""
        # As in Kafka, only who waits for the commit can be told of an earlier one.
        identity: Identity | None = self._identities.take(topic) if acks == "all" else None
        yield requests.produce(
            topic,
            to_ipc(table, self.compression),
            table.num_rows,
            identity=identity,
            partition=partition,
            acks=acks,
            timeout_ms=timeout_ms,
            expected_offsets=expected_offsets,
        )
        if identity is not None:
            self._identities.give_back(topic, identity.after(table.num_rows))

    def pieces(self, records: Any, *, whole: bool) -> Iterator[pa.Table]:
        """Records as tables of the size of a request."""
        table = to_table(records)
        if not whole:
            yield from split(table, REQUEST_BYTES)
        elif table.num_rows:
            yield table


def merged(parts: Iterable[Produced]) -> Produced:
    """What several requests stored; ranges that touch become one."""
    records = 0
    ranges: list[OffsetRange] = []
    last: dict[int, int] = {}
    for part in parts:
        records += part.records
        for each in part.ranges:
            index = last.get(each.partition)
            if index is not None and ranges[index].end_offset == each.start_offset:
                ranges[index] = OffsetRange(each.partition, ranges[index].start_offset, each.end_offset)
            else:
                last[each.partition] = len(ranges)
                ranges.append(each)
    return Produced(records, tuple(ranges))


def documented(
    method: Callable[Concatenate[Any, P], T], describe: Callable[P, Call[Any]]
) -> Callable[Concatenate[Any, P], T]:
    """A method with the name, arguments and words of the request that it sends."""
    method.__name__, method.__doc__ = describe.__name__, describe.__doc__
    method.__qualname__ = describe.__qualname__
    signature = inspect.signature(describe)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    result = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself, *signature.parameters.values()], return_annotation=result
    )
    return method


def _checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url if "://" in url else f"http://{url}")
    except httpx.InvalidURL as error:
        raise LakelogError(ErrorCode.INVALID_REQUEST, f"{url!r} is not the address of a gateway: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise LakelogError(
            ErrorCode.INVALID_REQUEST, f"{url!r} is not the address of a gateway; write it like {DEFAULT_URL}"
        )
    return str(parsed).rstrip("/")
