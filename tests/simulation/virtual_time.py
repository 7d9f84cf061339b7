"""Time that moves only when everything is waiting.

An event loop that jumps to its next timer where another one would sleep, so that hours pass in no time and the same
program takes the same course every time. Work for threads is done in place, since a thread is the one thing that such
a loop could not order; whoever waits for it hears of it later, as of a thread's.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Some moment: the virtual clock's zero, as the records and the store see it.
START_MS = 1_700_000_000_000
TICKS_PER_MS = 1024
THREAD_TAKES_S = 0.001


class Deadlock(Exception):
    """Everything waits and nothing is due: in real time this would hang for ever."""


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise Deadlock
        self.now_s += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()

        def tell(result: T | None, error: Exception | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        try:
            self.call_later(THREAD_TAKES_S, tell, func(*args), None)
        except Exception as error:
            self.call_later(THREAD_TAKES_S, tell, None, error)
        return done


class VirtualClock:
    """A `lakelog.clock.Clock` on the running loop. `skew_ms` is how far its time of day is off, as a server's is."""

    def __init__(self, *, skew_ms: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return START_MS + self._skew_ms + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> float:
        # In steps that floats add and subtract without a rest: one that is too short to move the time never ends.
        return int(self._loop.time() * 1000 * TICKS_PER_MS) / TICKS_PER_MS


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """An asynchronous test as a plain one that runs in virtual time."""

    @functools.wraps(test)
    def in_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return in_time
