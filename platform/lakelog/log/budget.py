"""The commit budget: how often a busy topic may write small files.

Files are what a commit costs: disk blocks, PUT requests, log entries. A token bucket counts the small ones. A burst
goes through at the latency of one commit; after it, a topic writes `files_per_second` small files and gathers more
records into each. Files of SMALL_FILE_BYTES and more cost what their bytes cost and are not counted.
"""

from __future__ import annotations

BURST_FILES = 512
SMALL_FILE_BYTES = 1024 * 1024


class CommitBudget:
    """A token bucket that may fall below zero: a commit of many files is paid off before the next one."""

    __slots__ = ("_filled_ms", "_tokens", "files_per_second")

    def __init__(self, files_per_second: float, now_ms: float) -> None:
        self.files_per_second = files_per_second
        self._tokens = float(BURST_FILES)
        self._filled_ms = now_ms

    def wait_ms(self, now_ms: float) -> float:
        """How long the next commit has to wait; 0 when it may go now."""
        self._fill(now_ms)
        if self._tokens >= 1:
            return 0.0
        return (1 - self._tokens) * 1000 / self.files_per_second

    def spend(self, small_files: int, now_ms: float) -> None:
        self._fill(now_ms)
        self._tokens -= small_files

    def _fill(self, now_ms: float) -> None:
        gained = (now_ms - self._filled_ms) * self.files_per_second / 1000
        self._tokens = min(float(BURST_FILES), self._tokens + gained)
        self._filled_ms = now_ms
