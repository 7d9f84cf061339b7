"""The time, as something that is handed in.

Owns the one place where the system clock is read. Decisions take `now_ms` as a value; the paths ask a `Clock`,
so that a test moves time by hand.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

# Linux has a clock that goes on while the machine is suspended; that of `time.monotonic` stands still.
_GOES_ON: int | None = getattr(time, "CLOCK_BOOTTIME", None)


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
        return (time.monotonic_ns() if _GOES_ON is None else time.clock_gettime_ns(_GOES_ON)) / 1_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """A time by both hands of a clock: for ages that must not be taken for less than they are.

    The monotonic hand may stand still while the process does (a machine that sleeps, or one that its host froze); the
    time of day goes on, but somebody may set it back.
    """

    now_ms: float
    monotonic_ms: float

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.now_ms(), clock.monotonic_ms())

    def ago_ms(self, clock: Clock) -> float:
        """By the hand that went further. So it may be too much, where somebody set the time of day forward."""
        return max(clock.now_ms() - self.now_ms, clock.monotonic_ms() - self.monotonic_ms)


NEVER = Moment(float("-inf"), float("-inf"))
