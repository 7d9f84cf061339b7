"""A time limit for what hardly ever has to wait.

Most bodies are here when they are asked for and most replies leave at once, and then a timer costs more than what it
guards. So the first step is taken without one, and only who has to wait after it waits under a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of the work. Raises TimeoutError if it has to wait, and for longer than so many seconds."""
    try:
        waiting_for = work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    async with asyncio.timeout(seconds):
        return await _Rest(work, waiting_for)


class _Rest(Generic[T]):
    """What is left of a coroutine that has taken its first step and waits for something."""

    def __init__(self, work: Coroutine[Any, Any, T], waiting_for: Any) -> None:
        self._work = work
        self._waiting_for = waiting_for

    def __await__(self) -> Generator[Any, Any, T]:
        waiting_for = self._waiting_for
        try:
            while True:
                try:
                    answer = yield waiting_for
                except BaseException as error:  # a cancellation above all: the work has to hear of it
                    waiting_for = self._work.throw(error)
                else:
                    waiting_for = self._work.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
