"""Ages are told by both hands of a clock: whichever of them stood still, what is old is not taken for new."""

from __future__ import annotations

import sys
import time

import pytest

from lakelog.clock import NEVER, Moment, SystemClock

HOUR_MS = 3_600_000


class TwoHands:
    """A clock whose hands are moved one by one."""

    def __init__(self) -> None:
        self.time_of_day_ms = 1_700_000_000_000
        self.running_ms = 5_000.0

    def now_ms(self) -> int:
        return self.time_of_day_ms

    def monotonic_ms(self) -> float:
        return self.running_ms


@pytest.mark.parametrize(
    ("time_of_day_ms", "running_ms", "ago_ms"),
    [
        (0, 0.5, 0.5),
        (HOUR_MS, 20.0, HOUR_MS),  # the machine was frozen by its host
        (10, HOUR_MS, HOUR_MS),
        (-HOUR_MS, 20.0, 20.0),  # somebody set the time of day back
    ],
)
def test_a_moment_is_as_long_ago_as_the_hand_says_that_went_further(
    time_of_day_ms: int, running_ms: float, ago_ms: float
) -> None:
    clock = TwoHands()
    moment = Moment.of(clock)
    clock.time_of_day_ms += time_of_day_ms
    clock.running_ms += running_ms
    assert moment.ago_ms(clock) == ago_ms


def test_never_is_longer_ago_than_anything() -> None:
    assert NEVER.ago_ms(TwoHands()) == float("inf")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this clock")
def test_the_clock_that_measures_ages_goes_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    read = time.clock_gettime_ns

    def noted(which: int) -> int:
        asked.append(which)
        return read(which)

    monkeypatch.setattr(time, "clock_gettime_ns", noted)
    first, second = SystemClock().monotonic_ms(), SystemClock().monotonic_ms()
    assert 0 < first <= second
    assert asked == [time.CLOCK_BOOTTIME, time.CLOCK_BOOTTIME]
