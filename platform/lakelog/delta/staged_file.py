"""Files on a local disk that appear whole or not at all.

Each one is written beside its place, under a name that no listing of the store shows, and then gets its name in one
step. A process that is killed on the way leaves such a file behind and nothing else.

A machine that loses its power may lose more, but for files with `fsync_to`, the root of their warehouse: these are on
the platter, and so is every folder from their own up to that one, before anybody hears that they are there. All of the
folders are flushed each time, since nobody can tell whether the process that made them came to do it.

All of it blocks. A small file takes less time than a thread would; what is large, or flushed, belongs into one.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

# What tells names apart from those of other processes, on this machine or another. Random bits for each of them would
# cost as much as writing it.
_THIS_IMPORT = secrets.randbits(48)
_numbers = count()


class StagedFile:
    """A file on its way. `replace` or `create` makes it visible; without them it goes when it is let go of."""

    def __init__(self, path: str, *, fsync_to: Path | None) -> None:
        self._path = path
        self._fsync_to = fsync_to
        self._staged = ""  # while there is none
        self._descriptor = -1
        # The object store's own way to name a file that is being written: it lists none with such a name.
        self._open(f"{path}#{_THIS_IMPORT}{os.getpid()}{next(_numbers)}")

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        while rest.nbytes:
            rest = rest[os.write(self._descriptor, rest) :]
        return size

    def replace(self) -> None:
        """Give it its name, also if another file has it."""
        self._finish()
        os.rename(self._staged, self._path)
        self._staged = ""
        self._sync_folders()

    def create(self) -> bool:
        """Give it its name if no file has it. Of several who try, one does."""
        self._finish()
        try:
            os.link(self._staged, self._path)
            created = True
        except FileExistsError:
            created = False
        finally:
            self._drop()
        # Also for the one that is there: it may be ours, by an attempt that failed when it flushed its folders.
        self._sync_folders()
        return created

    def close(self) -> None:
        self.replace()

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._staged:
            self._drop()

    def _open(self, staged: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            self._descriptor = os.open(staged, flags, 0o666)
        except FileNotFoundError:  # the first file of its folder
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._descriptor = os.open(staged, flags, 0o666)
        self._staged = staged

    def _finish(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if self._fsync_to is not None:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _drop(self) -> None:
        staged, self._staged = self._staged, ""
        os.unlink(staged)

    def _sync_folders(self) -> None:
        if self._fsync_to is None:
            return
        for folder in Path(self._path).parents:
            _sync_folder(folder)
            if folder == self._fsync_to:
                break


def put_file(path: str, data: Any, *, fsync_to: Path | None) -> None:
    file = StagedFile(path, fsync_to=fsync_to)
    file.write(data)
    file.replace()


def create_file(path: str, data: Any, *, fsync_to: Path | None) -> bool:
    file = StagedFile(path, fsync_to=fsync_to)
    file.write(data)
    return file.create()


def make_root(root: Path, *, fsync: bool) -> None:
    """The folder of a warehouse, with those above it."""
    root.mkdir(parents=True, exist_ok=True)
    if not fsync:
        return
    for folder in (root, *root.parents):
        if folder.is_mount():
            break
        with suppress(PermissionError):  # what we may not open we have not made
            _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
