"""Which files of a topic's folder nobody needs any more. Pure.

A file that the table names is needed. One that left the table is needed for file.delete.delay.ms by those who read an
older snapshot. One that was never in it may be on its way there: it is given as much time, and never less than a commit
may take; files of a run that is at work are not touched at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lakelog.delta.store import StoredFile

# No append waits longer for its commit, by far.
ON_ITS_WAY_MS = 900_000


def dispensable(
    files: Iterable[StoredFile],
    live: Collection[str],
    removed_ms: Mapping[str, int],
    leased: Collection[str],
    delete_delay_ms: int,
    now_ms: int,
) -> list[StoredFile]:
    """`files` have paths inside the table; `removed_ms` says when those left it that did so lately."""
    found: list[StoredFile] = []
    for file in files:
        if file.path in live or any(lease in file.path for lease in leased):
            continue
        if file.path in removed_ms:
            is_old = now_ms - removed_ms[file.path] >= delete_delay_ms
        else:
            is_old = now_ms - file.modified_ms >= max(delete_delay_ms, ON_ITS_WAY_MS)
        if is_old:
            found.append(file)
    return found
