"""Records that a write job has brought to the warehouse and not yet appended: pieces, and the list of those that count.

A task stages its records as pieces, files of Arrow beside the topics, under the name of the job and the number of its
batch. Pieces mean nothing until a manifest lists them. The manifest is put if absent, so of all attempts at a batch
exactly one is the batch, for good. What no manifest lists is swept with the batches that came before.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from lakelog.delta.store import Store
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.batch import Records, from_arrow, record_bytes

FOLDER = "__spark_sink"
MANIFEST = "manifest.json"
# Appends are kept small: under an append that takes long, other writers to the same partitions move the offsets away.
PIECE_BYTES = 4 * 1024 * 1024


class BatchId(msgspec.Struct, frozen=True):
    """Who writes, and which of its writes this is: a stream's query and batch, or what the user calls them."""

    app: str
    number: int

    @property
    def folder(self) -> str:
        return f"{app_folder(self.app)}/{self.number:020d}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST}"


def app_folder(app: str) -> str:
    return f"{FOLDER}/{app}"


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


async def newest_batch(store: Store, app: str) -> int | None:
    """The highest number of a batch of this job that was ever frozen."""
    files = await store.files(app_folder(app))
    return max((int(file.path.split("/")[-2]) for file in files if file.path.endswith(f"/{MANIFEST}")), default=None)


async def sweep(store: Store, batch: BatchId, *, manifest_too: bool) -> None:
    """Delete everything of this batch and of those before it; its manifest stays where a repetition may come."""
    files = await store.files(app_folder(batch.app))
    doomed = [file.path for file in files if int(file.path.split("/")[-2]) <= batch.number]
    await store.delete([path for path in doomed if manifest_too or path != batch.manifest])


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
