"""Where a reader stands in a topic, and what it asks for next. Pure: a stream is one of these and a way to send.

A stream is a chain of fetches, each of which waits at the gateway until there is something. So it needs no connection
that stays: it goes on from its positions on whatever connection there is, and records travel as Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from lakelog.client import requests
from lakelog.client.fetched import Fetched, FetchedRecord
from lakelog.client.requests import Call, Offset, Positions

# Below the time that proxies commonly give a silent connection.
POLL_MS = 20_000


class Cursor:
    """`positions` lie right behind the last record that was handed out; a new stream can begin there."""

    def __init__(
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
    ) -> None:
        self.positions: dict[int, int] = {}
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._timestamp = timestamp
        self._start = positions
        self._follow = follow
        self._records_left = max_records
        self._max_bytes = max_bytes
        self._ends: dict[int, int] | None = None

    def next_fetch(self) -> Call[Fetched] | None:
        """The next request, or None when everything that was asked for was handed out."""
        if self._records_left == 0:
            return None
        if self._ends is None:
            # Answered at once, so that `latest` and a time stand for fixed offsets before anything can go wrong.
            return requests.fetch(
                self._topic,
                partition=self._partition,
                offset=self._offset,
                timestamp=self._timestamp,
                positions=self._start,
                max_bytes=self._max_bytes,
            )
        if not self._follow and all(self.positions[p] >= end for p, end in self._ends.items()):
            return None
        # A partition that is added later is read from its first record on, wherever the others began.
        return requests.fetch(
            self._topic,
            partition=self._partition,
            offset="earliest",
            positions=self.positions,
            max_bytes=self._max_bytes,
            timeout_ms=POLL_MS,
        )

    def arrived(self, fetched: Fetched) -> Fetched:
        """A reply has come; returns as much of it as is wanted."""
        if self._ends is None:
            self._ends = dict(fetched.high_watermarks)
            first_offsets = dict(fetched.next_positions)
            first_offsets.update(fetched.first_offsets())
            self.positions = first_offsets
        if self._records_left is not None:
            fetched = fetched.head(self._records_left)
        return fetched

    def whole(self, fetched: Fetched) -> Fetched:
        """Hand out a reply at once."""
        self._count(len(fetched))
        self.positions.update(fetched.next_positions)
        return fetched

    def one_by_one(self, fetched: Fetched) -> Iterator[FetchedRecord]:
        """Hand out the records of a reply; a reader may stop at any of them."""
        for record in fetched:
            self._count(1)
            self.positions[record.partition] = record.offset + 1
            yield record
        self.positions.update(fetched.next_positions)

    def _count(self, records: int) -> None:
        if self._records_left is not None:
            self._records_left -= records
