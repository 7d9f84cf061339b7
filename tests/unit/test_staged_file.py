"""A file on a disk is there whole or not at all, and what is given up leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lakelog.delta.staged_file import StagedFile, create_file, put_file


@pytest.mark.parametrize("fsync", [False, True])
def test_a_put_makes_its_folders_and_leaves_one_file(tmp_path: Path, fsync: bool):
    place = tmp_path / "topic" / "partition=0" / "file"
    put_file(str(place), b"old", fsync=fsync)
    put_file(str(place), b"new", fsync=fsync)
    assert place.read_bytes() == b"new"
    assert os.listdir(place.parent) == ["file"]


@pytest.mark.parametrize("fsync", [False, True])
def test_a_file_is_created_once(tmp_path: Path, fsync: bool):
    place = tmp_path / "log" / "0.json"
    assert create_file(str(place), b"first", fsync=fsync)
    assert not create_file(str(place), b"second", fsync=fsync)
    assert place.read_bytes() == b"first"
    assert os.listdir(place.parent) == ["0.json"]


def test_what_is_never_closed_goes_away(tmp_path: Path):
    file = StagedFile(str(tmp_path / "file"), fsync=False)
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

        file = FullDisk(str(tmp_path / "file"), fsync=False)
        with pytest.raises(OSError, match="No space left") as caught:
            file.write(b"x" * 100_000)
        assert caught.value.errno == errno.ENOSPC
        del file, caught
    assert os.listdir(tmp_path) == []
