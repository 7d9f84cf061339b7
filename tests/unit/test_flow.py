"""Room for bytes: nobody waits without need or for ever, and no more than one is beyond the limit."""

from __future__ import annotations

import asyncio
import random

import pytest

from lakelog.errors import ErrorCode, LakelogError
from lakelog.flow import Room, Share

LATE_MS, SOON_MS = 60_000, 10


async def turns() -> None:
    """Let everybody get as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def two_in_line() -> tuple[Room, asyncio.Task[None], asyncio.Task[None]]:
    """A room of 10 bytes with 8 of them taken, and who waits for 9 and for 1."""
    room = Room(10, LATE_MS, "room")
    await room.enter(8)
    large, small = asyncio.create_task(room.enter(9)), asyncio.create_task(room.enter(1))
    await turns()
    return room, large, small


async def test_who_finds_no_room_waits_in_line() -> None:
    room, large, small = await two_in_line()
    assert not large.done()
    assert not small.done(), "it came later"
    room.leave(8)
    await large
    await small
    assert room.bytes == 10


async def test_one_that_is_larger_than_the_room_goes_alone() -> None:
    room = Room(10, SOON_MS, "room")
    await room.enter(50)
    with pytest.raises(LakelogError, match="room=10") as caught:
        await room.enter(1)
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    room.leave(50)
    await room.enter(1)


async def test_who_gives_up_lets_others_by() -> None:
    room, large, small = await two_in_line()
    large.cancel()
    await small
    assert room.bytes == 9


async def test_shares_that_fill_the_room_together_become_whole_one_after_the_other() -> None:
    room = Room(10, LATE_MS, "room")
    shares = [Share(room) for _ in range(5)]
    for share in shares:
        await share.take(2)
    growing = [asyncio.create_task(share.take(3)) for share in shares]
    await turns()
    assert [task.done() for task in growing] == [True, False, False, False, False]
    await shares[0].take(3)  # the one that is beyond goes on
    assert room.bytes == 16
    for share, task in zip(shares, growing, strict=True):
        await task
        share.keep(0)
    assert room.bytes == 0


async def test_who_has_nothing_yet_comes_after_those_who_have_some() -> None:
    room = Room(10, LATE_MS, "room")
    first, second, third = Share(room), Share(room), Share(room)
    await first.take(5)
    await second.take(5)
    await first.take(1)
    newcomer, growing = asyncio.create_task(third.take(1)), asyncio.create_task(second.take(4))
    await turns()
    assert not newcomer.done()
    assert not growing.done()
    first.keep(0)
    await growing
    await newcomer
    assert room.bytes == 10


async def test_a_share_that_is_refused_has_what_it_had_and_gives_it_back() -> None:
    room = Room(10, SOON_MS, "room")
    stalled, refused = Share(room), Share(room)
    await stalled.take(6)
    await refused.take(4)
    await stalled.take(1)
    with pytest.raises(LakelogError, match="room=10"):
        await refused.take(1)
    assert refused.bytes == 4
    refused.keep(0)
    assert room.bytes == 7


async def test_the_place_beyond_the_limit_passes_on_when_its_holder_is_cancelled() -> None:
    room = Room(10, LATE_MS, "room")
    shares = [Share(room) for _ in range(3)]
    for share in shares[:2]:
        await share.take(5)
    await shares[0].take(5)
    waiting, cancelled = (asyncio.create_task(shares[1].take(5)) for _ in range(2))
    await turns()
    cancelled.cancel()
    shares[0].keep(0)
    await waiting
    assert room.bytes == shares[1].bytes == 10


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_they_take_all_become_whole_within_the_room_and_one(seed: int) -> None:
    rng, most, size_max = random.Random(seed), 0, 40
    room = Room(50, LATE_MS, "room")

    async def one(size: int) -> None:
        nonlocal most
        share = Share(room)
        try:
            while share.bytes < size:
                await share.take(min(rng.randint(1, 5), size - share.bytes))
                most = max(most, room.bytes)
                for _ in range(rng.randint(0, 3)):
                    await asyncio.sleep(0)
            share.keep(rng.randint(0, size))
            await asyncio.sleep(0)
        finally:
            share.keep(0)

    tasks = [asyncio.create_task(one(rng.randint(1, size_max))) for _ in range(60)]
    await turns()
    for task in rng.sample(tasks, 10):
        task.cancel()
    await asyncio.wait(tasks)
    assert room.bytes == 0
    assert 50 < most <= 50 + size_max


async def test_nothing_is_taken_without_a_wait() -> None:
    room = Room(10, SOON_MS, "room")
    share = Share(room)
    await share.take(10)
    await share.take(0)
    await Share(room).take(0)
    assert room.bytes == 10


async def test_who_goes_while_it_stands_in_line_leaves_its_place_beyond_to_others() -> None:
    room = Room(10, SOON_MS, "room")
    beyond, gone, stays = Share(room), Share(room), Share(room)
    for share, size in ((beyond, 4), (gone, 2), (stays, 4)):
        await share.take(size)
    await beyond.take(1)  # the one that may go beyond
    waiting = asyncio.create_task(gone.take(8))
    await turns()
    waiting.cancel()  # and before it hears of that all is given back, as when both connections break
    gone.keep(0)
    beyond.keep(0)
    await asyncio.gather(waiting, return_exceptions=True)
    assert room.bytes == 4
    await stays.take(20)
