"""The time, as something that is handed in.

Owns the one place where the system clock is read. Decisions take `now_ms` as a value; the paths ask a `Clock`,
so that a test moves time by hand.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch: what records and commits are stamped with."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back: what ages, budgets and timeouts are measured with."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000
