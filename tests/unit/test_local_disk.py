"""A disk that makes one wait is written to from threads, and one that is quick is not."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakelog.delta import store as store_module
from lakelog.delta.store import (
    IN_PLACE_BYTES,
    SLOW_APART_SECONDS,
    SLOW_FOR_SECONDS,
    SLOW_WRITE_SECONDS,
    VERY_SLOW_WRITE_SECONDS,
    LocalDisk,
)

QUICK, SLOW, VERY_SLOW = SLOW_WRITE_SECONDS / 2, SLOW_WRITE_SECONDS * 2, VERY_SLOW_WRITE_SECONDS * 2


class Disk:
    """Each write takes as long as it is told, by a clock that moves only then."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        self._takes_s = 0.0
        self._written_by: list[int] = []
        self._disk = LocalDisk(root, fsync=False)
        patch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        patch.setattr(store_module, "put_file", self._put_file)

    def _put_file(self, *args: object, **options: object) -> None:
        self.now_s += self._takes_s
        self._written_by.append(threading.get_ident())

    async def writes_in_place(self, takes_s: float, size: int = 10) -> bool:
        self._takes_s = takes_s
        await self._disk.put("orders/file", bytes(size))
        return self._written_by[-1] == threading.get_ident()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


async def test_small_files_are_written_in_place_and_large_ones_in_threads(disk: Disk) -> None:
    assert [await disk.writes_in_place(QUICK, size) for size in (1, IN_PLACE_BYTES, IN_PLACE_BYTES + 1)] == [
        True,
        True,
        False,
    ]


async def test_two_slow_writes_shortly_after_each_other_make_it_threads_for_a_while(disk: Disk) -> None:
    assert [await disk.writes_in_place(takes_s) for takes_s in (SLOW, QUICK, SLOW, SLOW, QUICK)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    disk.now_s += SLOW_FOR_SECONDS
    assert await disk.writes_in_place(QUICK)


async def test_one_that_is_very_slow_does_it_alone_and_for_as_long_as_it_lasts(disk: Disk) -> None:
    assert await disk.writes_in_place(VERY_SLOW)
    for _ in range(3):
        disk.now_s += SLOW_FOR_SECONDS / 2
        assert not await disk.writes_in_place(VERY_SLOW)
    disk.now_s += SLOW_FOR_SECONDS
    assert await disk.writes_in_place(QUICK)


async def test_a_slow_write_now_and_then_does_not(disk: Disk) -> None:
    for _ in range(3):
        assert await disk.writes_in_place(SLOW)
        disk.now_s += SLOW_APART_SECONDS
