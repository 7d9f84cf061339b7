"""Work that does not wait has no limit; work that waits is cut off, hears of it, and may still answer."""

from __future__ import annotations

import asyncio

import pytest

from ingest_api.patience import within

SOON_S, LATE_S = 0.01, 60


async def at_once() -> str:
    return "done"


async def failing() -> str:
    raise ValueError("no")


async def after(event: asyncio.Event, heard: list[str] | None = None) -> str:
    try:
        await event.wait()
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if heard is not None:
            heard.append("cancelled")
        raise
    return "done"


async def test_work_that_does_not_wait_is_done_whatever_the_limit() -> None:
    assert await within(0, at_once()) == "done"


async def test_errors_come_through_before_and_after_a_wait() -> None:
    with pytest.raises(ValueError, match="no"):
        await within(LATE_S, failing())

    async def fail_later() -> str:
        await asyncio.sleep(0)
        return await failing()

    with pytest.raises(ValueError, match="no"):
        await within(LATE_S, fail_later())


async def test_work_that_waits_ends_with_what_it_waits_for() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(within(LATE_S, after(event)))
    await asyncio.sleep(0)
    event.set()
    assert await waiting == "done"


async def test_work_that_waits_too_long_is_cut_off_and_hears_of_it() -> None:
    heard: list[str] = []
    with pytest.raises(TimeoutError):
        await within(SOON_S, after(asyncio.Event(), heard))
    assert heard == ["cancelled"]


async def test_who_is_cancelled_while_it_waits_passes_it_on() -> None:
    heard: list[str] = []
    waiting = asyncio.create_task(within(LATE_S, after(asyncio.Event(), heard)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert heard == ["cancelled"]


async def test_work_may_answer_a_cancellation() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "in time all the same"
        raise AssertionError

    assert await within(SOON_S, stubborn()) == "in time all the same"
