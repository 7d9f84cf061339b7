"""The limit on a job's reading and writing, so that live readers and writers keep their share of the store. Pure."""

from __future__ import annotations


class Throttle:
    """Bytes against time: after so many bytes, wait until they were due. Nothing is saved up over a pause."""

    def __init__(self, bytes_per_second: float, now_ms: float) -> None:
        self._ms_per_byte = 1000 / bytes_per_second if bytes_per_second > 0 else 0.0
        self._paid_ms = now_ms

    def wait_ms(self, size: int, now_ms: float) -> float:
        """How long to wait after `size` bytes were moved."""
        self._paid_ms = max(self._paid_ms, now_ms) + size * self._ms_per_byte
        return self._paid_ms - now_ms if self._ms_per_byte else 0.0
