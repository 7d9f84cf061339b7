"""Topics that were deleted, which are met again and again: their folders stay, and every listing comes by.

Remembers at which version a table said so, so that one look for the next commit tells whether it still does. Bounded,
and forgetful: who is forgotten is only loaded once more.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from lakelog.clock import Clock, Moment
from lakelog.delta.store import Store
from lakelog.delta.table import STALE_AFTER_MS, Table, commit_path

DELETED_REMEMBERED_MAX = 10_000


@dataclass(slots=True)
class _Deleted:
    version: int
    seen: Moment


class DeletedTopics:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, _Deleted] = OrderedDict()

    def remember(self, table: Table) -> None:
        self._known[table.name] = _Deleted(table.state.version, table.seen)
        self._known.move_to_end(table.name)
        if len(self._known) > DELETED_REMEMBERED_MAX:
            self._known.popitem(last=False)

    async def has(self, name: str, *, max_age_ms: float) -> bool:
        """Whether the topic is known to be deleted, as of `max_age_ms` ago at most."""
        known, now = self._known.get(name), Moment.of(self._clock)
        if known is None:
            return False
        age_ms = known.seen.ago_ms(self._clock)
        if age_ms > max_age_ms:
            # After a long while the log may have gone on and been cut: then the next commit is not there either.
            if age_ms > STALE_AFTER_MS or await self._store.get(f"{name}/{commit_path(known.version + 1)}") is not None:
                self._known.pop(name, None)
                return False
            known.seen = now
        return True
