"""Bytes that nobody should send: flipped, cut, made up. The decoders refuse them or read them, and never fall over.

The decoders are fed directly, because that is fast enough for a hundred thousand inputs; a part of them goes through a
real connection too, beside another client that must not notice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from ingest_api.kafka.apis import APIS
from ingest_api.kafka.frames import FrameBuffer, FrameTooLarge
from ingest_api.kafka.records import reading
from ingest_api.kafka.records.compression import CODECS, pack
from ingest_api.kafka.schemas import _payload, request_schema
from ingest_api.kafka.wire import Cursor, Malformed
from lakelog.errors import LakelogError
from lakelog.model.batch import ListRecords
from tests.kafka.conftest import Listening, OpenListener
from tests.kafka.plain_client import PlainClient, batch, request_bytes, to_fetch, to_produce
from tests.kafka.samples import encoded, sample
from tests.unit.test_kafka_records import batch_of, read_batch, sealed, snappy_frame

BODIES = 80_000
BATCHES = 20_000
COMPRESSED = 1_500
STREAMS = 5_000
FRAMES = 1_500


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, or some put in, or some taken out, or the end cut off, or all made up."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(60))
    out = bytearray(data)
    if kind == 1:
        return bytes(out[: rng.randrange(len(out) + 1)])
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        if kind == 2 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 3 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 4:
            out[at:at] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x00"))
        elif kind == 5:
            del out[at : at + rng.randrange(1, 5)]
    return bytes(out)


def test_bodies_of_every_api_and_version():
    rng = random.Random(1)
    read = refused = 0
    versions = [(api, version) for api in APIS.values() for version in range(api.oldest, api.newest + 1)]
    each = BODIES // len(versions) + 1
    for api, version in versions:
        schema = request_schema(api.name, version, api.oldest, api.newest)
        bodies = [encoded(sample(_payload(api.name, version, "request"), rng)) for _ in range(4)]
        for number in range(each):
            try:
                schema.read(Cursor(damaged(bodies[number % 4], rng)))
                read += 1
            except Malformed:
                refused += 1
    assert read + refused >= BODIES
    assert min(read, refused) > BODIES // 10


def test_record_batches_are_read_both_ways_or_refused(monkeypatch: pytest.MonkeyPatch):
    """By the codec and in columns: what one of them reads the other reads too."""
    rng = random.Random(2)
    headers: list[tuple[str, bytes | None]] = [("h", b"x"), ("none", None)]
    few = batch_of([(1_000, b"k", b"a", headers), (1_001, None, None, []), (5, b"", b"c" * 70, headers[:1])])
    inputs = _damaged_batches((few, batch(*[b"v%d" % n for n in range(40)])), BATCHES, rng)
    read, refused = _outcomes(inputs, monkeypatch)
    assert read + refused == BATCHES
    assert min(read, refused) > BATCHES // 100


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_compressed_batches(monkeypatch: pytest.MonkeyPatch, codec: str):
    rng = random.Random(codec)
    whole = bytearray(batch(*[b"v%d" % (n * n) for n in range(40)]))
    whole[22] |= CODECS[codec]
    packed = sealed(bytes(whole[:61]) + bytes(pack(memoryview(whole[61:]), CODECS[codec])))
    body = bytes(whole[61:])
    wholes = [packed]
    if codec == "snappy":
        wholes.append(sealed(bytes(whole[:61]) + snappy_frame([body[:200], body[200:]])))
    read, refused = _outcomes(_damaged_batches(wholes, COMPRESSED, rng), monkeypatch)
    assert read + refused == COMPRESSED
    assert read > 0
    assert refused > COMPRESSED // 10


def _damaged_batches(wholes: Sequence[bytes], count: int, rng: random.Random) -> list[bytes]:
    inputs = []
    for number in range(count):
        data = damaged(wholes[number % len(wholes)], rng)
        if rng.random() < 0.7 and len(data) > 61:
            data = sealed(data)  # so that it is not only the checksum that is looked at
        inputs.append(data)
    return inputs


def _outcomes(inputs: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many were read, and how many refused, both ways."""
    ways = []
    for few in (0, 1_000):
        monkeypatch.setattr(reading, "FEW_RECORDS", few)
        ways.append([_is_read(each) for each in inputs])
    assert ways[0] == ways[1]
    return ways[0].count(True), ways[0].count(False)


def _is_read(data: bytes) -> bool:
    try:
        _, records = read_batch(memoryview(data), 0, 1 << 20)
        if isinstance(records, ListRecords):
            records.check()  # as whoever takes them in does
    except LakelogError:
        return False
    return True


def test_streams_of_frames():
    rng = random.Random(3)
    refused = 0
    for _ in range(STREAMS):
        buffer = FrameBuffer(1_000)
        stream = damaged(b"".join(len(b).to_bytes(4, "big") + b for b in (b"x" * 40, b"", b"y" * 900)), rng)
        try:
            for at in range(0, len(stream), 100):
                for frame in buffer.feed(stream[at : at + 100]):
                    assert len(frame) <= 1_000
        except FrameTooLarge:
            refused += 1
    assert 0 < refused < STREAMS


async def test_a_connection_ends_or_answers_and_others_go_on(open_listener: OpenListener):
    # A fetch may ask to wait for very long by now.
    async with open_listener(request_timeout_ms="5") as listening, listening.client() as client:
        await _through_connections(listening, client)


async def _through_connections(listening: Listening, client: PlainClient) -> None:
    rng = random.Random(4)
    await client.ask("metadata", 12, topics=[{"name": "t"}], allow_auto_topic_creation=True)
    frames = [
        request_bytes("produce", 9, to_produce(("t", 0, batch(b"a", b"b")))),
        request_bytes("fetch", 12, to_fetch(("t", 0, 0))),
        request_bytes("metadata", 12, {"topics": None}),
        request_bytes("api_versions", 3, {}),
        request_bytes("heartbeat", 4, {"group_id": "g", "member_id": "m"}),
        request_bytes("consumer_group_heartbeat", 1, {"group_id": "g", "member_id": "m", "topic_partitions": []}),
        request_bytes("offset_fetch", 8, {"groups": [{"group_id": "g", "topics": None}]}),
        request_bytes("create_topics", 7, {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}]}),
    ]
    for number in range(FRAMES):
        async with listening.client() as other:
            for _ in range(3):
                other.send_frame(damaged(rng.choice(frames), rng))
            # What is not served ends the connection, if nothing before it has.
            other.send_frame(b"\x7f\xff" + bytes(20))
            with suppress(ConnectionError):
                await other.reader.read()
        if number % 100 == 0:
            await client.ask("api_versions", 3)
    assert (await client.ask("metadata", 12, topics=None))["topics"]
