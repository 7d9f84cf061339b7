"""The commit budget: how often a busy topic may write small files.

Files are what a commit costs: disk blocks, PUT requests, log entries. A token bucket counts the small ones. A burst
goes through at the latency of one commit; after it, a topic writes `files_per_second` small files and gathers more
records into each. Files of SMALL_FILE_BYTES and more cost what their bytes cost and are not counted.

On a disk a file counts the less the more it holds: a client that waits for a few replies at a time sends no more until
they come, so to wait for more would make it slower and its files no larger. On an object store every file is a paid
request, and counts.
"""

from __future__ import annotations

BURST_FILES = 512
SMALL_FILE_BYTES = 1024 * 1024
# Up to this size a file counts in full wherever it is; one of eight times the size counts an eighth on a disk.
FULL_PRICE_BYTES = 8 * 1024


def price(file_bytes: float, *, every_file_is_paid: bool) -> float:
    """As how many small files one of this size counts."""
    if file_bytes >= SMALL_FILE_BYTES:
        return 0.0
    return 1.0 if every_file_is_paid else min(1.0, FULL_PRICE_BYTES / max(1.0, file_bytes))


def cheaper_from(file_bytes: float, *, every_file_is_paid: bool) -> int:
    """From which size on a file would cost half of what one of this size does, or nothing."""
    if every_file_is_paid:
        return SMALL_FILE_BYTES
    return min(SMALL_FILE_BYTES, 2 * max(FULL_PRICE_BYTES, int(file_bytes)))


class CommitBudget:
    """A token bucket that may fall below zero: a commit that cost more than was thought is paid off before the next."""

    __slots__ = ("_filled_ms", "_tokens", "files_per_second")

    def __init__(self, files_per_second: float, now_ms: float) -> None:
        self.files_per_second = files_per_second
        self._tokens = float(BURST_FILES)
        self._filled_ms = now_ms

    def wait_ms(self, files: float, now_ms: float) -> float:
        """How long a commit that will cost as much as so many small files has to wait; 0 when it may go now."""
        self._fill(now_ms)
        missing = min(files, BURST_FILES) - self._tokens
        return missing * 1000 / self.files_per_second if files and missing > 0 else 0.0

    def spend(self, files: float, now_ms: float) -> None:
        """A commit was made that cost as much as so many small files."""
        self._fill(now_ms)
        self._tokens -= files

    def _fill(self, now_ms: float) -> None:
        gained = (now_ms - self._filled_ms) * self.files_per_second / 1000
        self._tokens = min(float(BURST_FILES), self._tokens + gained)
        self._filled_ms = now_ms
