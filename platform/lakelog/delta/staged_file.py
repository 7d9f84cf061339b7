"""Files on a local disk that appear whole or not at all.

Each one is written beside its place, under a name that no listing of the store shows, and then gets its name in one
step. A process that is killed on the way leaves such a file behind and nothing else. All of it blocks: call it from
a thread.
"""

from __future__ import annotations

import os
import secrets
from itertools import count
from typing import Any

# What tells names apart from those of other processes, on this machine or another. Random bits for each of them would
# cost as much as writing it.
_THIS_IMPORT = secrets.randbits(48)
_numbers = count()


class StagedFile:
    """A file on its way. `replace` or `create` makes it visible; without them it goes when it is let go of."""

    def __init__(self, path: str, *, fsync: bool) -> None:
        self._path = path
        self._fsync = fsync
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
        except FileExistsError:
            return False
        finally:
            self._drop()
        self._sync_folders()
        return True

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
            if self._fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _drop(self) -> None:
        staged, self._staged = self._staged, ""
        os.unlink(staged)

    def _sync_folders(self) -> None:
        """The file's folder and the one above, which a new partition's folder was made in."""
        if not self._fsync:
            return
        folder = os.path.dirname(self._path)
        for place in (folder, os.path.dirname(folder)):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def put_file(path: str, data: Any, *, fsync: bool) -> None:
    file = StagedFile(path, fsync=fsync)
    file.write(data)
    file.replace()


def create_file(path: str, data: Any, *, fsync: bool) -> bool:
    file = StagedFile(path, fsync=fsync)
    file.write(data)
    return file.create()
