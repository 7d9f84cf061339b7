"""Append a staged batch to its topics, exactly once, however often and by however many it is tried.

The log remembers what an idempotent producer wrote last. Here the producer is the write job, its epoch is the number of
the batch, and its sequence counts the batch's records for the topic. So the log itself says how far a batch has got: a
driver that died half-way is followed by one that goes on where it stopped, two at the same time cannot both
append a record, and one that comes after the next batch has begun is not heard. The batch that is delivered is the one
that the manifest froze, the same for all of them.

The log forgets producers after a day of silence. A batch that was left half-way for longer is refused, because nobody
could tell any more which of its records are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from lakelog.broker import Broker
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.producers import ProducerBatch, WrittenBatch
from lakelog.model.batch import from_arrow
from lakelog.spark import staging
from lakelog.spark.staging import BatchId, Manifest, Piece

RECORDS_MAX = 1 << 31  # of a batch for one topic: where the count of a producer goes round


def producer_of(job: str) -> int:
    """A producer id for a job: the same in every process, and of no other job."""
    return int.from_bytes(blake2b(job.encode(), digest_size=8).digest(), "big") >> 1


async def deliver(broker: Broker, batch: BatchId, pieces: Sequence[Piece], *, repeatable: bool) -> None:
    """Append the batch unless it was appended before. `repeatable` says whether it may be brought again some day."""
    store = broker.store
    newest = await staging.newest_batch(store, batch)
    if newest is not None and newest > batch.number:
        await store.delete([piece.path for piece in pieces])
        return
    if not pieces and newest != batch.number:
        return
    manifest = await staging.freeze(store, batch, tuple(pieces), broker.clock.now_ms())
    if not manifest.done:
        await _append(broker, batch, manifest)
        await staging.finish(store, batch, manifest)
    await staging.sweep(store, batch, manifest_too=not repeatable)


async def drop(broker: Broker, batch: BatchId, pieces: Sequence[Piece]) -> None:
    """Forget an attempt that failed, but for what has become the batch already."""
    manifest = await staging.read_manifest(broker.store, batch)
    kept = {piece.path for piece in manifest.pieces} if manifest is not None else set()
    await broker.store.delete([piece.path for piece in pieces if piece.path not in kept])


async def _append(broker: Broker, batch: BatchId, manifest: Manifest) -> None:
    by_topic: dict[str, list[Piece]] = {}
    for piece in manifest.pieces:
        by_topic.setdefault(piece.topic, []).append(piece)
    begun = [await _records_appended(broker, batch, topic) for topic in by_topic]
    age_ms = broker.clock.now_ms() - manifest.created_ms
    if not any(begun) and age_ms > broker.settings.producer_expiration_ms:
        raise LakelogError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"batch {batch.number} of {batch.job} was left {age_ms // 1000} s ago, and the log has forgotten by now "
            f"how much of it was appended; delete {batch.manifest} in the warehouse to append it as a whole, "
            "or start the query with a new checkpoint",
        )
    appended = any(begun)
    for (topic, pieces), done in zip(by_topic.items(), begun, strict=True):
        try:
            await _append_to(broker, batch, topic, pieces, done)
        except LakelogError as error:
            # Nothing of it stands in a log: a query that is mended may bring it in another form.
            unknown = error.code is ErrorCode.KAFKA_STORAGE_ERROR
            if not unknown and not appended and not await _records_appended(broker, batch, topic):
                await broker.store.delete([batch.manifest])
            raise
        appended = True


async def _records_appended(broker: Broker, batch: BatchId, topic: str) -> int:
    """How many records of the batch the topic has. All of them, as far as anyone counts, if a later batch has begun."""
    try:
        state = (await broker.topics.get(topic, max_age_ms=0)).state
    except LakelogError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # it will be created by the first append
            return 0
        raise
    written = state.producers.of(_producer(batch, 0))
    return _progress(written, batch.number)


def _progress(written: Sequence[WrittenBatch], number: int) -> int:
    if not written or written[-1].epoch < number:
        return 0
    return RECORDS_MAX if written[-1].epoch > number else written[-1].sequence + written[-1].count


def _producer(batch: BatchId, sequence: int) -> ProducerBatch:
    return ProducerBatch(producer_of(batch.job), epoch=batch.number, sequence=sequence)


async def _append_to(broker: Broker, batch: BatchId, topic: str, pieces: Sequence[Piece], done: int) -> None:
    if sum(piece.records for piece in pieces) >= RECORDS_MAX:
        raise LakelogError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of 2^31 records or more for topic {topic!r}; read less at once (maxOffsetsPerTrigger)",
        )
    groups = [(start, group) for start, group in _groups(pieces) if start + _count(group) > done]
    ahead = asyncio.create_task(staging.load(broker.store, groups[0][1])) if groups else None
    for index, (start, _) in enumerate(groups):
        assert ahead is not None
        rows = await ahead
        if index + 1 < len(groups):  # read while this one is appended
            ahead = asyncio.create_task(staging.load(broker.store, groups[index + 1][1]))
        skipped = max(0, done - start)
        records = from_arrow(rows.slice(skipped))
        await broker.append(topic, records, producer=_producer(batch, start + skipped))


def _groups(pieces: Sequence[Piece]) -> Iterator[tuple[int, list[Piece]]]:
    """Small pieces go together. Each group comes with the number of records before it."""
    held: list[Piece] = []
    before, held_bytes = 0, 0
    for piece in pieces:
        if held and held_bytes + piece.bytes > staging.PIECE_BYTES:
            yield before, held
            before, held, held_bytes = before + _count(held), [], 0
        held.append(piece)
        held_bytes += piece.bytes
    if held:
        yield before, held


def _count(pieces: Sequence[Piece]) -> int:
    return sum(piece.records for piece in pieces)
