"""Where a warehouse lies: one small interface over a disk, S3, GCS, Azure and memory.

Nothing above this module knows which of them it is. Paths are relative to the warehouse and use "/". Every method may
raise StoreUnavailable (it may pass: try again) or StoreRefused (it stays: tell the operator).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
from obstore import exceptions as obstore_errors
from obstore.store import LocalStore, MemoryStore, from_url

from lakelog.delta.endpoints import given_endpoint, s3_endpoint
from lakelog.delta.staged_file import StagedFile, create_file, make_root, put_file
from lakelog.errors import ErrorCode, LakelogError

GETS_AT_ONCE = 32
DELETES_AT_ONCE = 1000
WRITER_BUFFER_BYTES = 8 * 1024 * 1024
# So little is read from a disk and written to it in place: handing it to a thread costs several times as much.
IN_PLACE_BYTES = 96 * 1024
# Two writes that took longer than this, shortly after each other, have the next ones done in threads for a while, since
# one alone may be the system that had something else to do; and one does that took much longer.
SLOW_WRITE_SECONDS = 0.005
SLOW_APART_SECONDS = 0.1
VERY_SLOW_WRITE_SECONDS = 0.05
SLOW_FOR_SECONDS = 1.0
# A failure that may pass is tried again by whoever has something to do until a deadline. Below that stands only what
# hides a request that went astray.
RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=5)}

EXIT_PAUSE_SECONDS = 0.05

T = TypeVar("T")


class StoreUnavailable(Exception):
    """The store did not do it, or did not say whether it did. It may work the next time."""


class StoreRefused(Exception):
    """The store will not do it, however often it is asked: no permission, no such bucket."""


class FileMissing(Exception):
    """The file that was to be read is not there."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str
    size: int
    modified_ms: int


class FileWriter(Protocol):
    """A file that is written piece by piece, from any one thread, and appears whole when it is closed."""

    def write(self, data: Any) -> int: ...

    def close(self) -> None: ...


class Store(Protocol):
    url: str
    on_object_store: bool

    async def get(self, path: str) -> bytes | None:
        """The whole file, or None if it is not there."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """The same of several files, in their order, and without holding up anybody who does something else."""
        ...

    async def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write the whole file, over an older one if there is one. Readers see all of it or nothing."""
        ...

    async def create(self, path: str, data: bytes) -> bool:
        """Write the file if nothing is there; False if something is. Of several at once, one wins."""
        ...

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The bytes of each [start, end); raises FileMissing."""
        ...

    async def files(self, folder: str, *, before_ms: int | None = None) -> list[StoredFile]:
        """Every file below a folder, at any depth, in the order of their paths; of those that were written before a
        time, if one is given: a folder may hold far more than there is memory for.
        """
        ...

    async def unfinished(self, folder: str) -> list[StoredFile]:
        """What writers that died have left below a folder of files that never appeared. `delete` takes these, too."""
        ...

    async def folders(self) -> list[str]:
        """The names of the folders at the top of the warehouse."""
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove files; those that are not there are no error."""
        ...

    def writer(self, path: str) -> FileWriter:
        """Start to write a large file. Only `close` makes it visible."""
        ...


def open_store(url: str, options: Mapping[str, str] | None = None, *, fsync: bool = False) -> Store:
    """The store behind a warehouse's URL: a path, file://, memory://name, s3://, gs:// or az://.

    `options` are obstore's names for the kind of store (`endpoint`, `access_key_id`, …); what is not given is taken
    from the environment as the store's own tools do.
    """
    scheme = urlsplit(url).scheme
    if scheme in ("", "file"):
        path = Path(unquote(urlsplit(url).path) if scheme else url).expanduser().absolute()
        return LocalDisk(path, fsync=fsync)
    if fsync:
        raise LakelogError(ErrorCode.INVALID_CONFIG, f"fsync is for local disks; {scheme}:// has its own durability")
    if scheme == "memory":
        return ObjectStore(url, _shared_memory.setdefault(url, MemoryStore()), on_object_store=False)
    if scheme not in ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss"):
        raise LakelogError(
            ErrorCode.INVALID_CONFIG,
            f"warehouse {url!r}: no store for {scheme}://; use a path, s3://, gs://, az:// or memory://",
        )
    _let_replies_arrive_at_exit()
    return ObjectStore(url, _remote(url, dict(options or {})), on_object_store=True)


# A memory warehouse is shared by name inside one process, so that several brokers can meet in it.
_shared_memory: dict[str, MemoryStore] = {}


@cache
def _let_replies_arrive_at_exit() -> None:
    """A thread of obstore that hands over a reply while the interpreter ends takes the process down with SIGABRT. What
    is registered with atexit runs before that, and a thread needs far less time to hand over what it has.
    """
    atexit.register(time.sleep, EXIT_PAUSE_SECONDS)


def _remote(url: str, options: dict[str, str]) -> Any:
    client: dict[str, Any] = {"timeout": "30s", "connect_timeout": "5s"}
    endpoint = given_endpoint(options)
    if endpoint is None and url.startswith("s3") and (endpoint := s3_endpoint(options)) is not None:
        options["endpoint"] = endpoint
    if endpoint is not None and endpoint.startswith("http://"):
        client["allow_http"] = True
    try:
        return from_url(  # type: ignore[call-overload]
            url, config=options or None, client_options=client, retry_config=RETRIES
        )
    except Exception as error:
        raise LakelogError(ErrorCode.INVALID_CONFIG, f"warehouse {url!r}: {error}") from error


class ObjectStore:
    """Any store that obstore speaks to. Its put-if-absent is the one atomic step that everything rests on."""

    def __init__(self, url: str, store: Any, *, on_object_store: bool) -> None:
        self.url = url
        self.on_object_store = on_object_store
        self._store = store

    async def get(self, path: str) -> bytes | None:
        with _translated(path):
            try:
                return bytes(await (await obstore.get_async(self._store, path)).bytes_async())
            except FileNotFoundError:
                return None

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        turns = asyncio.Semaphore(GETS_AT_ONCE)

        async def get(path: str) -> bytes | None:
            async with turns:
                return await self.get(path)

        return await asyncio.gather(*map(get, paths))

    async def put(self, path: str, data: bytes | pa.Buffer) -> None:
        with _translated(path):
            # obstore takes unsigned bytes only, and Arrow's buffers say that theirs are signed.
            await obstore.put_async(self._store, path, memoryview(data).cast("B"))

    async def create(self, path: str, data: bytes) -> bool:
        with _translated(path):
            try:
                await obstore.put_async(self._store, path, data, mode="create")
            except (obstore_errors.AlreadyExistsError, obstore_errors.PreconditionError):
                return False
            return True

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        if not ranges:
            return []
        starts, ends = zip(*ranges, strict=True)
        with _translated(path):
            try:
                pieces = await obstore.get_ranges_async(self._store, path, starts=starts, ends=ends)
            except FileNotFoundError:
                raise FileMissing(path) from None
        return [pa.py_buffer(piece) for piece in pieces]

    async def files(self, folder: str, *, before_ms: int | None = None) -> list[StoredFile]:
        found: list[StoredFile] = []
        with _translated(folder):
            async for chunk in obstore.list(self._store, prefix=folder):
                for item in chunk:
                    modified_ms = int(item["last_modified"].timestamp() * 1000)
                    if before_ms is None or modified_ms < before_ms:
                        found.append(StoredFile(item["path"], item["size"], modified_ms))
        return sorted(found, key=lambda file: file.path)

    async def unfinished(self, folder: str) -> list[StoredFile]:
        return []  # the store's own rules, by which it drops unfinished uploads, are for its owner to set

    async def folders(self) -> list[str]:
        with _translated(self.url):
            listing = await obstore.list_with_delimiter_async(self._store)
        return sorted(prefix.rstrip("/") for prefix in listing["common_prefixes"])

    async def delete(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), DELETES_AT_ONCE):
            with _translated(paths[start]):
                try:
                    await obstore.delete_async(self._store, paths[start : start + DELETES_AT_ONCE])
                except FileNotFoundError:
                    await self._delete_one_by_one(paths[start : start + DELETES_AT_ONCE])

    async def _delete_one_by_one(self, paths: Sequence[str]) -> None:
        # One that is gone already must not keep the others.
        for path in paths:
            try:
                await obstore.delete_async(self._store, path)
            except FileNotFoundError:
                continue

    def writer(self, path: str) -> FileWriter:
        return obstore.open_writer(self._store, path, buffer_size=WRITER_BUFFER_BYTES)


# What a file on a disk is called until it is whole, by obstore and by us. Listings leave such files out.
_UNFINISHED = re.compile(r"#\d+$")


class LocalDisk(ObjectStore):
    """A directory. Reads are memory maps. It is written to without the detour through the object store's own threads,
    which would cost a small commit more than its files do. With `fsync` a file and the folders above it are on the
    platter before a put returns.
    """

    def __init__(self, root: Path, *, fsync: bool) -> None:
        try:
            make_root(root, fsync=fsync)
            store = LocalStore(root)
        except OSError as error:
            raise LakelogError(ErrorCode.INVALID_CONFIG, f"warehouse {str(root)!r}: {error.strerror}") from error
        super().__init__(root.as_uri(), store, on_object_store=False)
        self._root = root
        self._prefix = str(root)
        self._fsync_to = root if fsync else None
        self._slow_at = float("-inf")
        self._slow_until = float("-inf")

    async def get(self, path: str) -> bytes | None:
        with _translated(path):
            try:
                file = open(self._place(path), "rb", buffering=0)  # noqa: ASYNC230, SIM115 - closed where it is read
            except FileNotFoundError:
                return None  # what is asked for most often, by those who look for the next commit
            if os.fstat(file.fileno()).st_size <= IN_PLACE_BYTES:
                return _read_and_close(file)
            return await asyncio.to_thread(_read_and_close, file)

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return await asyncio.to_thread(lambda: [self._read(path) for path in paths])

    async def put(self, path: str, data: bytes | pa.Buffer) -> None:
        with _translated(path):
            await self._write(data, lambda: put_file(self._place(path), data, fsync_to=self._fsync_to))

    async def create(self, path: str, data: bytes) -> bool:
        with _translated(path):
            return await self._write(data, lambda: create_file(self._place(path), data, fsync_to=self._fsync_to))

    async def _write(self, data: bytes | pa.Buffer, work: Callable[[], T]) -> T:
        """In place while files are small and the disk is quick, else in a thread: a disk that makes one wait (its queue
        is full, it is across a network, it flushes) must not hold up everybody.
        """
        if self._fsync_to is not None or len(data) > IN_PLACE_BYTES:
            return await asyncio.to_thread(work)
        if time.monotonic() < self._slow_until:
            return await asyncio.to_thread(self._timed, work, VERY_SLOW_WRITE_SECONDS)  # there it waits for others too
        return self._timed(work, SLOW_WRITE_SECONDS)

    def _timed(self, work: Callable[[], T], slow_seconds: float) -> T:
        started = time.monotonic()
        try:
            return work()
        finally:
            ended = time.monotonic()
            if ended - started > slow_seconds:
                again = started - self._slow_at < SLOW_APART_SECONDS
                if again or ended - started > VERY_SLOW_WRITE_SECONDS:
                    self._slow_until = ended + SLOW_FOR_SECONDS
                self._slow_at = ended

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        with _translated(path):
            try:
                with pa.memory_map(self._place(path)) as mapped:
                    # The buffers keep the mapping alive, also when the file is deleted meanwhile.
                    return [_mapped_range(mapped, start, end) for start, end in ranges]
            except FileNotFoundError:
                raise FileMissing(path) from None

    async def unfinished(self, folder: str) -> list[StoredFile]:
        return await asyncio.to_thread(lambda: list(self._unfinished(folder)))

    async def delete(self, paths: Sequence[str]) -> None:
        await super().delete([path for path in paths if not _UNFINISHED.search(path)])
        for path in filter(_UNFINISHED.search, paths):
            try:
                (self._root / path).unlink(missing_ok=True)
            except OSError as error:
                raise StoreRefused(f"{path}: {error.strerror}") from error

    def writer(self, path: str) -> FileWriter:
        return StagedFile(self._place(path), fsync_to=self._fsync_to)

    def _unfinished(self, folder: str) -> Iterator[StoredFile]:
        for file in sorted((self._root / folder).rglob("*#*")):
            with suppress(FileNotFoundError):  # it has just been finished
                if _UNFINISHED.search(file.name):
                    told = file.stat()
                    path = file.relative_to(self._root).as_posix()
                    yield StoredFile(path, told.st_size, int(told.st_mtime * 1000))

    def _read(self, path: str) -> bytes | None:
        with _translated(path):
            try:
                return _read_and_close(open(self._place(path), "rb", buffering=0))
            except FileNotFoundError:
                return None

    def _place(self, path: str) -> str:
        return f"{self._prefix}/{path}"


def _read_and_close(file: FileIO) -> bytes:
    with file:
        return file.readall()


def _mapped_range(mapped: pa.MemoryMappedFile, start: int, end: int) -> pa.Buffer:
    mapped.seek(start)
    return mapped.read_buffer(end - start)


_LASTING = (
    PermissionError,
    FileNotFoundError,  # where a missing file is an answer it was taken as one: here the bucket itself is not there
    obstore_errors.PermissionDeniedError,
    obstore_errors.UnauthenticatedError,
    obstore_errors.NotSupportedError,
    obstore_errors.InvalidPathError,
)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """obstore's exceptions in the two kinds that a caller can act on."""
    try:
        yield
    except _LASTING as error:
        raise StoreRefused(f"{path}: {_said(error)}") from error
    except (obstore_errors.BaseError, OSError) as error:
        raise StoreUnavailable(f"{path}: {_said(error)}") from error


def _said(error: Exception) -> str:
    """In a line: obstore has a page about its own insides follow what happened."""
    return str(error).split("\n\nDebug source:", 1)[0]
