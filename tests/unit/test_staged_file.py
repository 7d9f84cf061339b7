"""A file on a disk is there whole or not at all, and what is given up leaves nothing behind."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.delta.staged_file import StagedFile, create_file, make_root, put_file

Write = Callable[..., object]


class Platter:
    """Knows what has been flushed. Folders may fail when they are to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushed: list[os.stat_result] = []
        self.folders_fail = False
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._flush)

    def holds(self, path: Path) -> bool:
        return any(os.path.samestat(path.stat(), each) for each in self.flushed)

    def _flush(self, descriptor: int) -> None:
        what = os.fstat(descriptor)
        if self.folders_fail and stat.S_ISDIR(what.st_mode):
            raise OSError(errno.EIO, "the platter is gone")
        self._fsync(descriptor)
        self.flushed.append(what)


@pytest.fixture
def platter(monkeypatch: pytest.MonkeyPatch) -> Platter:
    return Platter(monkeypatch)


def write(place: Path, root: Path) -> None:
    writer = StagedFile(str(place), fsync_to=root)
    writer.write(b"x")
    writer.close()


WAYS: list[Write] = [
    lambda place, root: put_file(str(place), b"x", fsync_to=root),
    lambda place, root: create_file(str(place), b"x", fsync_to=root),
    write,
]


@pytest.mark.parametrize("way", WAYS, ids=["put", "create", "write"])
def test_with_fsync_the_file_and_every_folder_up_to_the_root_is_flushed(tmp_path: Path, platter: Platter, way: Write):
    place = tmp_path / "orders" / "_delta_log" / "0.json"
    way(place, tmp_path)
    assert all(map(platter.holds, [place, place.parent, place.parent.parent, tmp_path]))
    assert not platter.holds(tmp_path.parent)


def test_folders_that_somebody_else_made_are_flushed_too(tmp_path: Path, platter: Platter):
    place = tmp_path / "orders" / "partition=0" / "file"
    place.parent.mkdir(parents=True)  # by a process that died before it flushed them
    put_file(str(place), b"x", fsync_to=tmp_path)
    assert all(map(platter.holds, [place, *list(place.parents)[:3]]))


def test_without_fsync_nothing_is_flushed(tmp_path: Path, platter: Platter):
    put_file(str(tmp_path / "a" / "file"), b"x", fsync_to=None)
    create_file(str(tmp_path / "b" / "file"), b"x", fsync_to=None)
    make_root(tmp_path / "warehouse", fsync=False)
    assert platter.flushed == []


def test_a_file_that_is_there_counts_as_there_only_when_its_folders_are_flushed(tmp_path: Path, platter: Platter):
    """Whoever meets their own file when they try again takes it for done."""
    place = tmp_path / "log" / "0.json"
    platter.folders_fail = True
    for _ in range(2):
        with pytest.raises(OSError, match="the platter is gone"):
            create_file(str(place), b"ours", fsync_to=tmp_path)
    platter.folders_fail = False
    assert not create_file(str(place), b"ours", fsync_to=tmp_path)
    assert all(map(platter.holds, [place, place.parent, tmp_path]))
    assert os.listdir(place.parent) == ["0.json"]


def test_a_new_root_is_flushed_into_the_folders_above_it(tmp_path: Path, platter: Platter):
    root = tmp_path / "deep" / "warehouse"
    make_root(root, fsync=True)
    assert all(map(platter.holds, [root.parent, tmp_path]))


@pytest.mark.parametrize("fsync", [False, True])
def test_a_put_makes_its_folders_and_leaves_one_file(tmp_path: Path, fsync: bool):
    place = tmp_path / "topic" / "partition=0" / "file"
    put_file(str(place), b"old", fsync_to=tmp_path if fsync else None)
    put_file(str(place), b"new", fsync_to=tmp_path if fsync else None)
    assert place.read_bytes() == b"new"
    assert os.listdir(place.parent) == ["file"]


@pytest.mark.parametrize("fsync", [False, True])
def test_a_file_is_created_once(tmp_path: Path, fsync: bool):
    place = tmp_path / "log" / "0.json"
    assert create_file(str(place), b"first", fsync_to=tmp_path if fsync else None)
    assert not create_file(str(place), b"second", fsync_to=tmp_path if fsync else None)
    assert place.read_bytes() == b"first"
    assert os.listdir(place.parent) == ["0.json"]


def test_what_is_never_closed_goes_away(tmp_path: Path):
    file = StagedFile(str(tmp_path / "file"), fsync_to=None)
    file.write(b"something")
    assert not (tmp_path / "file").exists()
    del file
    assert os.listdir(tmp_path) == []


def test_what_could_not_be_written_whole_goes_away(tmp_path: Path):
    with open("/dev/full", "wb", buffering=0) as full:

        class FullDisk(StagedFile):
            def _open(self, staged: str) -> None:
                super()._open(staged)
                os.dup2(full.fileno(), self._descriptor)

        file = FullDisk(str(tmp_path / "file"), fsync_to=None)
        with pytest.raises(OSError, match="No space left") as caught:
            file.write(b"x" * 100_000)
        assert caught.value.errno == errno.ENOSPC
        del file, caught
    assert os.listdir(tmp_path) == []
