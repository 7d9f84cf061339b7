"""Every message of every version that is served, read and written as kio reads and writes it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ingest_api.kafka.apis import APIS, Api
from ingest_api.kafka.schemas import _payload, request_schema, response_schema
from ingest_api.kafka.wire import Cursor, Malformed
from tests.kafka.samples import decoded, encoded, plain, sample

SAMPLES = 5


def as_mapping(value: Any) -> Any:
    if isinstance(value, SimpleNamespace):
        return {name: as_mapping(each) for name, each in vars(value).items()}
    if isinstance(value, list | tuple):
        return [as_mapping(each) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def contains(whole: Any, part: Any) -> bool:
    """Whether `part` is in `whole`, which may have fields beside, of other versions."""
    if isinstance(part, dict):
        return all(name in whole and contains(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    # A time that is not set is -1 on the wire.
    return bool(whole == part) or (part is None and whole == -1)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_requests_are_read_as_kio_writes_them(api: Api):
    rng = random.Random(api.key)
    for version in range(api.oldest, api.newest + 1):
        schema = request_schema(api.name, version, api.oldest, api.newest)
        for _ in range(SAMPLES):
            entity = sample(_payload(api.name, version, "request"), rng)
            data = encoded(entity)
            cursor = Cursor(data)
            assert contains(as_mapping(schema.read(cursor)), plain(entity)), (version, entity)
            assert cursor.at == len(data)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_replies_are_written_as_kio_reads_them(api: Api):
    rng = random.Random(api.key)
    for version in range(api.oldest, api.newest + 1):
        schema = response_schema(api.name, version, api.oldest, api.newest)
        for _ in range(SAMPLES):
            cls = _payload(api.name, version, "response")
            reply = plain(sample(cls, rng))
            pieces: list[bytes | memoryview] = []
            schema.write(pieces, _times_set(reply))
            assert contains(plain(decoded(cls, b"".join(pieces))), reply), (version, reply)


def _times_set(reply: Any) -> Any:
    if isinstance(reply, dict):
        return {
            name: -1 if name == "log_append_time" and value is None else _times_set(value)
            for name, value in reply.items()
        }
    return [_times_set(each) for each in reply] if isinstance(reply, list) else reply


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_reply_of_nothing_but_defaults_can_be_written_in_every_version(api: Api):
    for version in range(api.oldest, api.newest + 1):
        pieces: list[bytes | memoryview] = []
        response_schema(api.name, version, api.oldest, api.newest).write(pieces, {})
        decoded(_payload(api.name, version, "response"), b"".join(pieces))


def test_a_handler_sees_the_fields_of_the_newest_version_at_their_defaults():
    schema = request_schema("join_group", 0, 0, 9)
    request = schema.read(Cursor(encoded(sample(_payload("join_group", 0, "request"), random.Random(1)))))
    assert request.group_instance_id is None
    assert request.rebalance_timeout == -1


def test_a_reply_with_a_field_that_no_version_has_is_a_mistake_and_not_dropped():
    with pytest.raises(TypeError, match="trottle_time"):
        response_schema("heartbeat", 4, 0, 4).write([], {"trottle_time": 1})


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x07",  # an array of two thousand million elements, and nothing more
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a number without an end
        b"",
        b"\x05" + bytes(10),
    ],
)
def test_what_is_announced_and_not_there_is_malformed(data: bytes):
    with pytest.raises(Malformed):
        request_schema("metadata", 12, 0, 12).read(Cursor(data))


def test_arrays_are_bounded_in_all():
    data = (200_001).to_bytes(3, "big")
    names = b"\x00" + data + b"\x00\x00" * 200_001 + b"\x01"
    with pytest.raises(Malformed, match="200001 elements"):
        request_schema("metadata", 4, 0, 12).read(Cursor(names))
