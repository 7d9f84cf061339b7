"""Records that a write job has brought to the warehouse and not yet appended: pieces, and the list of those that count.

A task stages its records as pieces, files of Arrow beside the topics, under the name of the job and the number of its
batch. Pieces mean nothing until a manifest lists them. The manifest is put if absent, so of all attempts at a batch
exactly one is the batch, for good. What no manifest lists is swept with the batches that came before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from lakelog.delta.store import Store, StoredFile
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.batch import Records, from_arrow, record_bytes

FOLDER = "__spark_sink"
MANIFEST = "manifest.json"
# What the name of a batch write begins with that the user gave none.
UNNAMED = "batch-"
_UNNAMED_FOLDER = re.compile(rf"{FOLDER}/{UNNAMED}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}/\d+")
# No write takes longer from one of its files to the next. The log has forgotten by then how far it got.
ABANDONED_MS = 3 * 86_400_000
# Appends are kept small: under an append that takes long, other writers to the same partitions move the offsets away.
PIECE_BYTES = 4 * 1024 * 1024


class BatchId(msgspec.Struct, frozen=True):
    """Who writes, and which of its writes this is: a stream's query and batch, or what the user calls them.

    A write that names its one topic is another one than that of the same name to another topic: people who have two
    targets in one batch call both alike, as they may with Delta tables.
    """

    app: str
    number: int
    topic: str | None = None

    @property
    def job(self) -> str:
        """The one whose batches follow each other. No name of a user's has an @ in it."""
        return self.app if self.topic is None else f"{self.app}@{self.topic}"

    @property
    def job_folder(self) -> str:
        # Two folders where there is a topic: both names in one could be too long for a disk.
        return f"{FOLDER}/{self.app}" if self.topic is None else f"{FOLDER}/{self.app}@/{self.topic}"

    @property
    def folder(self) -> str:
        return f"{self.job_folder}/{self.number:020d}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST}"


class Piece(msgspec.Struct, frozen=True):
    """Some records of one task for one topic, in their order."""

    topic: str
    path: str
    records: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """The records of a batch, in the order in which they are appended. Done means that all of them were."""

    created_ms: int
    pieces: tuple[Piece, ...]
    done: bool = False


_decoder = msgspec.json.Decoder(Manifest)


async def read_manifest(store: Store, batch: BatchId) -> Manifest | None:
    data = await store.get(batch.manifest)
    return _decoder.decode(data) if data is not None else None


async def freeze(store: Store, batch: BatchId, pieces: tuple[Piece, ...], now_ms: int) -> Manifest:
    """The batch as it is from now on: these pieces, or those of an attempt that was here before."""
    manifest = Manifest(now_ms, pieces)
    while not await store.create(batch.manifest, msgspec.json.encode(manifest)):
        earlier = await read_manifest(store, batch)
        if earlier is not None:
            return earlier
    return manifest


async def finish(store: Store, batch: BatchId, manifest: Manifest) -> None:
    done = msgspec.structs.replace(manifest, pieces=(), done=True)
    await store.put(batch.manifest, msgspec.json.encode(done))


async def newest_batch(store: Store, batch: BatchId) -> int | None:
    """The highest number of a batch of the same job that was ever frozen."""
    files = await store.files(batch.job_folder)
    return max((int(file.path.split("/")[-2]) for file in files if file.path.endswith(f"/{MANIFEST}")), default=None)


async def sweep(store: Store, batch: BatchId, *, manifest_too: bool) -> None:
    """Delete everything of this batch and of those before it; its manifest stays where a repetition may come."""
    files = await store.files(batch.job_folder)
    doomed = [file.path for file in files if int(file.path.split("/")[-2]) <= batch.number]
    await store.delete([path for path in doomed if manifest_too or path != batch.manifest])


async def abandoned(store: Store, now_ms: int) -> list[StoredFile]:
    """What is left of writes that were begun days ago and never ended, as by a driver that was killed.

    What a named job has frozen is not among it, however old: its query may come back any day, to go on where it
    stopped or to see that all of it is written.
    """
    batches: dict[str, list[StoredFile]] = {}
    for file in [*await store.files(FOLDER), *await store.unfinished(FOLDER)]:
        batches.setdefault(file.path.rpartition("/")[0], []).append(file)
    found: list[StoredFile] = []
    for folder, files in batches.items():
        if now_ms - max(file.modified_ms for file in files) < ABANDONED_MS:
            continue
        kept = frozenset() if _UNNAMED_FOLDER.fullmatch(folder) else await _frozen(store, folder)
        found += [file for file in files if file.path not in kept]
    return found


async def _frozen(store: Store, folder: str) -> frozenset[str]:
    path = f"{folder}/{MANIFEST}"
    data = await store.get(path)
    return frozenset() if data is None else frozenset({path, *(piece.path for piece in _decoder.decode(data).pieces)})


def encode_piece(records: Records) -> pa.Buffer:
    rows = records.batch
    if records.partitions is not None:
        rows = rows.append_column("partition", pa.array(records.partitions, mask=records.partitions < 0))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


async def load(store: Store, pieces: list[Piece]) -> pa.Table:
    """The rows of several pieces for one topic, one after the other."""
    tables = [await _table(store, piece) for piece in pieces]
    return pa.concat_tables(tables, promote_options="default")


async def _table(store: Store, piece: Piece) -> pa.Table:
    data = await store.get(piece.path)
    if data is None:
        raise LakelogError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"staged records are not there any more: {piece.path}; somebody has cleaned {FOLDER} under a write job",
        )
    return pa.ipc.open_stream(data).read_all()


def cut(rows: pa.Table, bytes_max: int = PIECE_BYTES) -> Iterator[Records]:
    """Records in pieces of at most so many bytes, or of one record."""
    records = from_arrow(rows)
    if records.size_bytes <= bytes_max:
        yield records
        return
    ends = record_bytes(records.batch).cumsum()
    start = 0
    while start < len(records):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(ends.searchsorted(before + bytes_max, side="right")))
        yield from_arrow(rows.slice(start, end - start))
        start = end
