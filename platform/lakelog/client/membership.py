"""A member of a group on the client's side: what it asks of the gateway next, and what it has handed out. Pure.

The gateway keeps the consumer, and this knows how to make it again: after the gateway was started anew, or when it was
idle for too long, the next poll meets nobody and makes another one, which reads on from what the group has committed. A
poll has a number, so that one whose reply was lost brings the same records when it is sent again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from httpx import Response

from lakelog.client import replies
from lakelog.client.errors import RequestFailed
from lakelog.client.fetched import ConsumedRecord, Polled
from lakelog.client.requests import ARROW_STREAM, Call
from lakelog.errors import ErrorCode, LakelogError

Reset: TypeAlias = Literal["earliest", "latest", "none"]

NO_SUCH_CONSUMER = 40403
ALREADY_EXISTS = 40902
NOT_AS_IT_STANDS = 40903

NOTHING = Polled(pa.table({"topic": pa.array([], pa.string()), "partition": pa.array([], pa.int32())}))


class Membership:
    """`uncommitted` are the last offsets that were handed out, by topic and partition."""

    def __init__(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        pattern: str | None = None,
        offset_reset: Reset = "latest",
        auto_commit: bool = True,
        auto_commit_interval_s: float = 5.0,
        session_timeout_s: float | None = None,
        instance_id: str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        named = [topics] if isinstance(topics, str) else list(topics)
        if bool(named) == (pattern is not None):
            raise LakelogError(ErrorCode.INVALID_REQUEST, "a consumer reads either topics or what fits a pattern")
        self._subscription: dict[str, Any] = {"topics": named} if named else {"topic_pattern": pattern}
        self._group = f"/consumers/{quote(group, safe='')}"
        self._options: dict[str, Any] = {"format": "arrow", "auto.offset.reset": offset_reset}
        # Only who hands the records out knows which of them were taken.
        self._options["auto.commit.enable"] = False
        if session_timeout_s is not None:
            self._options["session.timeout.ms"] = int(session_timeout_s * 1000)
        if instance_id is not None:
            self._options["group.instance.id"] = instance_id
        self._auto_commit = auto_commit
        self._auto_commit_interval_s = auto_commit_interval_s
        self._max_bytes = max_bytes
        self._name = ""
        self._joined = False
        self._closed = False
        self._number = 0
        self._last: ConsumedRecord | None = None
        self.take_apart(NOTHING)
        self._committed_at_s: float | None = None
        self.uncommitted: dict[tuple[str, int], int] = {}

    @property
    def exists(self) -> bool:
        """Whether there may be a consumer at the gateway."""
        return bool(self._name)

    @property
    def joined(self) -> bool:
        """Whether it is there and has its subscription, as far as is known."""
        return self._joined

    def create(self) -> Call[None]:
        if self._closed:
            raise LakelogError(ErrorCode.INVALID_REQUEST, "the consumer is closed; make another one")
        # Under the name of an attempt that failed on its way: who made another one would leave a member behind, which
        # may have the subscription and keeps its partitions from the others until its session is over.
        self._name = self._name or f"client-{uuid.uuid4()}"
        # Sent once more, it may meet itself: the name is nobody else's.
        return self._call("POST", self._group, {"name": self._name, **self._options}, harmless=ALREADY_EXISTS)

    def subscribe(self) -> Call[None]:
        """The second step, after which it `has_joined`."""
        return self._call("POST", f"{self._path}/subscription", self._subscription)

    def poll(self, timeout_ms: int, max_records: int | None) -> Call[Polled]:
        """Under the number of the poll before, until that `has_answered`: then it brings the same records again."""
        params: dict[str, str | int] = {"timeout": timeout_ms}
        if self._max_bytes is not None:
            params["max_bytes"] = self._max_bytes
        if max_records is not None:
            params["max_records"] = max_records
        headers = {"Accept": ARROW_STREAM, "Lakelog-Poll": str(self._number + 1)}
        return Call("GET", f"{self._path}/records", replies.polled, params, headers, wait_ms=timeout_ms)

    def commit(self) -> Call[None]:
        """Commit what was handed out. Forget it when it is done.

        Of topics that are gone there is nothing to commit, and it must not keep the others from being committed.
        """
        offsets = [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in self.uncommitted.items()
        ]
        call = self._call("POST", f"{self._path}/offsets", {"offsets": offsets})
        return replace(call, params={"skip_missing": "true"})

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> Call[None]:
        places = [
            {"topic": topic, "partition": partition, "offset": offset} for (topic, partition), offset in offsets.items()
        ]
        return self._call("POST", f"{self._path}/positions", {"offsets": places})

    def assignment(self) -> Call[list[tuple[str, int]]]:
        return Call("GET", f"{self._path}/assignments", replies.assigned)

    def delete(self) -> Call[None]:
        path = self._path
        self._forget()
        return self._call("DELETE", path, None, harmless=NO_SUCH_CONSUMER)

    def has_joined(self) -> None:
        self._joined = True

    def close(self) -> None:
        """From now on it can't join."""
        self._closed = True

    def has_answered(self) -> None:
        """The reply to a poll is here. To the gateway the next number says so."""
        self._number += 1

    # What was handed out.

    def handed_out(self, polled: Polled) -> Polled:
        """A whole reply."""
        self.uncommitted.update(polled.last_offsets())
        return polled

    def take_apart(self, polled: Polled) -> None:
        """From now on its records are asked for one by one."""
        self._reply, self._taken, self._records = polled, 0, iter(polled)

    def next_record(self) -> ConsumedRecord | None:
        """The next of the reply that was taken apart. It counts as handed out when the one after it is asked for: until
        then it may not have been done.
        """
        self._count_last()
        self._last = next(self._records, None)
        self._taken += self._last is not None
        return self._last

    def rest(self, max_records: int | None = None) -> Polled | None:
        """What nobody has asked for of a reply that was taken apart. Who stopped in the middle of it goes on there."""
        self._count_last()
        rest = Polled(self._reply.table.slice(self._taken))
        if not len(rest):
            return None
        given = Polled(rest.table.slice(0, max_records))
        self.take_apart(Polled(rest.table.slice(len(given))))
        return self.handed_out(given)

    def _count_last(self) -> None:
        if self._last is not None:
            self.uncommitted[self._last.topic, self._last.partition] = self._last.offset
            self._last = None

    def committed(self, now_s: float) -> None:
        self.uncommitted.clear()
        self._committed_at_s = now_s

    def sought(self, places: Mapping[tuple[str, int], int]) -> None:
        rest = self._reply.table.slice(self._taken)
        for topic, partition in places:
            self.uncommitted.pop((topic, partition), None)
            rest = rest.filter((pc.field("topic") != topic) | (pc.field("partition") != partition))
        if self._last is not None and (self._last.topic, self._last.partition) in places:
            self._last = None
        self.take_apart(Polled(rest))

    def commits_now(self, now_s: float, *, last: bool = False) -> bool:
        """Whether it is time to commit without being asked; before it is deleted, for the last time."""
        if self._committed_at_s is None:
            self._committed_at_s = now_s
        due = last or now_s - self._committed_at_s >= self._auto_commit_interval_s
        return self._auto_commit and due and bool(self.uncommitted) and self.exists

    def lost(self, failure: RequestFailed) -> bool:
        """Whether the consumer is gone; then another one begins where the group has committed."""
        if failure.error_code != NO_SUCH_CONSUMER:
            return False
        self._forget()
        return True

    def passed_on(self, failure: RequestFailed) -> bool:
        """Whether what was to be committed went to others, who will do it again."""
        if failure.error_code == NOT_AS_IT_STANDS:
            self.uncommitted.clear()
            return True
        return self.lost(failure)

    def _forget(self) -> None:
        """It is gone from the gateway, and what it read is for whoever comes next."""
        self._name, self._joined = "", False
        self.uncommitted.clear()
        self._last = None
        self.take_apart(NOTHING)

    @property
    def _path(self) -> str:
        return f"{self._group}/instances/{self._name}"

    def _call(self, method: str, path: str, content: Any, *, harmless: int | None = None) -> Call[None]:
        def read(reply: Response) -> None:
            try:
                replies.check(reply)
            except RequestFailed as failure:
                if harmless is None or failure.error_code != harmless:
                    raise

        body = None if content is None else msgspec.json.encode(content)
        headers = {} if body is None else {"Content-Type": "application/json"}
        return Call(method, path, read, headers=headers, body=body)
