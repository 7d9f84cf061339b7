"""Where a warehouse lies: one small interface over a disk, S3, GCS, Azure and memory.

Nothing above this module knows which of them it is. Paths are relative to the warehouse and use "/". Every method may
raise StoreUnavailable (it may pass: try again) or StoreRefused (it stays: tell the operator).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
from obstore import exceptions as obstore_errors
from obstore.store import LocalStore, MemoryStore, from_url

from lakelog.errors import ErrorCode, LakelogError

DELETES_AT_ONCE = 1000
WRITER_BUFFER_BYTES = 8 * 1024 * 1024


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

    async def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write the whole file, over an older one if there is one. Readers see all of it or nothing."""
        ...

    async def create(self, path: str, data: bytes) -> bool:
        """Write the file if nothing is there; False if something is. Of several at once, one wins."""
        ...

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The bytes of each [start, end); raises FileMissing."""
        ...

    async def files(self, folder: str) -> list[StoredFile]:
        """Every file below a folder, at any depth, in the order of their paths."""
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
    return ObjectStore(url, _remote(url, dict(options or {})), on_object_store=True)


# A memory warehouse is shared by name inside one process, so that several brokers can meet in it.
_shared_memory: dict[str, MemoryStore] = {}


def _remote(url: str, options: dict[str, str]) -> Any:
    endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    if endpoint and url.startswith("s3"):
        options.setdefault("endpoint", endpoint)
    client: dict[str, Any] = {"timeout": "30s", "connect_timeout": "5s"}
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    try:
        return from_url(url, config=options or None, client_options=client)  # type: ignore[call-overload]
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

    async def files(self, folder: str) -> list[StoredFile]:
        found: list[StoredFile] = []
        with _translated(folder):
            async for chunk in obstore.list(self._store, prefix=folder):
                for item in chunk:
                    modified_ms = int(item["last_modified"].timestamp() * 1000)
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


# What obstore calls a file on a disk until it is whole. It does not list such files.
_UNFINISHED = re.compile(r"#\d+$")


class LocalDisk(ObjectStore):
    """A directory. Reads are memory maps; with `fsync` a file and its directories are on the platter before a put
    returns.
    """

    def __init__(self, root: Path, *, fsync: bool) -> None:
        try:
            root.mkdir(parents=True, exist_ok=True)
            store = LocalStore(root)
        except OSError as error:
            raise LakelogError(ErrorCode.INVALID_CONFIG, f"warehouse {str(root)!r}: {error.strerror}") from error
        super().__init__(root.as_uri(), store, on_object_store=False)
        self._root = root
        self._fsync = fsync

    async def put(self, path: str, data: bytes | pa.Buffer) -> None:
        await super().put(path, data)
        if self._fsync:
            await asyncio.to_thread(self._sync, path)

    async def create(self, path: str, data: bytes) -> bool:
        created = await super().create(path, data)
        if created and self._fsync:
            await asyncio.to_thread(self._sync, path)
        return created

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        with _translated(path):
            try:
                with pa.memory_map(str(self._root / path)) as mapped:
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
        writer = super().writer(path)
        return _SyncedWriter(writer, lambda: self._sync(path)) if self._fsync else writer

    def _unfinished(self, folder: str) -> Iterator[StoredFile]:
        for file in sorted((self._root / folder).rglob("*#*")):
            with suppress(FileNotFoundError):  # it has just been finished
                if _UNFINISHED.search(file.name):
                    told = file.stat()
                    path = file.relative_to(self._root).as_posix()
                    yield StoredFile(path, told.st_size, int(told.st_mtime * 1000))

    def _sync(self, path: str) -> None:
        """The file, its directory and the one above, which a new partition directory was made in."""
        file = self._root / path
        for place in (file, file.parent, file.parent.parent):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _mapped_range(mapped: pa.MemoryMappedFile, start: int, end: int) -> pa.Buffer:
    mapped.seek(start)
    return mapped.read_buffer(end - start)


class _SyncedWriter:
    def __init__(self, writer: FileWriter, sync: Any) -> None:
        self._writer = writer
        self._sync = sync

    def write(self, data: Any) -> int:
        return self._writer.write(data)

    def close(self) -> None:
        self._writer.close()
        self._sync()


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
        raise StoreRefused(f"{path}: {error}") from error
    except (obstore_errors.BaseError, OSError) as error:
        raise StoreUnavailable(f"{path}: {error}") from error
