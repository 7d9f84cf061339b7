"""What goes wrong is an error with Kafka's code, words that say what to do, and the truth about whether to retry."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from lakelog.client import LakelogClient, Record, RequestFailed
from lakelog.errors import ErrorCode, LakelogError
from tests.canned_server import CannedServer, canned_server

REFUSALS: list[tuple[Callable[[LakelogClient, str], object], ErrorCode, int, str]] = [
    (lambda client, _: client.describe_topic("nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404, "'nowhere'"),
    (lambda client, _: client.fetch("nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404, "'nowhere'"),
    (lambda client, topic: client.fetch(topic, partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404, "partition 7"),
    (lambda client, topic: client.fetch(topic, partition=0, offset=5), ErrorCode.OFFSET_OUT_OF_RANGE, 416, "offset 5"),
    (lambda client, topic: client.create_topic(topic), ErrorCode.TOPIC_ALREADY_EXISTS, 409, "already"),
    (lambda client, _: client.create_topic("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION, 422, "'bad name'"),
    (lambda client, _: client.create_topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, 422, "'..'"),
    (lambda client, topic: client.alter_config(topic, {"no.such": 1}), ErrorCode.INVALID_CONFIG, 422, "no.such"),
    (lambda client, topic: client.add_partitions(topic, 1), ErrorCode.INVALID_PARTITIONS, 422, "only more"),
    (lambda client, topic: client.produce(topic, b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE, 413, "max.message"),
    (
        lambda client, topic: client.produce(topic, ["a"], partition=0, expected_offsets={0: 4}),
        ErrorCode.EXPECTED_OFFSET_MISMATCH,
        412,
        "4",
    ),
]


@pytest.mark.parametrize(("request_", "code", "status", "said"), REFUSALS)
def test_a_refusal_has_the_code_and_the_words_of_the_log(
    client: LakelogClient,
    topic: str,
    request_: Callable[[LakelogClient, str], object],
    code: ErrorCode,
    status: int,
    said: str,
) -> None:
    with pytest.raises(RequestFailed) as caught:
        request_(client, topic)
    assert (caught.value.code, caught.value.status, caught.value.maybe_done) == (code, status, False)
    assert said in str(caught.value)
    assert client.describe_topic(topic).records == 0


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (pa.table({"value": [[1, 2]]}), "column 'value'"),
        (pa.table({"value": ["a"], "colour": ["red"]}), "'colour'"),
        ([Record(object())], "object has no JSON"),
        ([Record("a", timestamp=2**62)], "timestamp"),
    ],
)
def test_what_is_no_record_is_refused_before_anything_is_sent(
    client: LakelogClient, topic: str, records: object, said: str
) -> None:
    with pytest.raises(LakelogError, match=said):
        client.produce(topic, records)
    assert client.describe_topic(topic).records == 0


@pytest.mark.parametrize("name", ["", "..", "a/b", "a?b", "größe", "a" * 250])
def test_a_name_that_no_topic_has_is_refused_before_anything_is_sent(client: LakelogClient, name: str) -> None:
    for ask in (client.describe_topic, client.fetch, client.delete_topic, lambda name: client.produce(name, ["a"])):
        with pytest.raises(LakelogError, match="topic name") as caught:
            ask(name)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("url", ["ftp://there", "http://[::", "http://", "", "http://x:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(LakelogError, match="is not the address of a gateway"):
        LakelogClient(url)


def test_an_address_may_be_written_without_its_scheme(client: LakelogClient) -> None:
    with LakelogClient(client.url.removeprefix("http://") + "/") as same:
        assert same.url == client.url
        same.ping()


def test_an_address_without_a_gateway_is_named(unused_url: str) -> None:
    with LakelogClient(unused_url, retry_timeout_s=0.2) as nobody:
        with pytest.raises(RequestFailed, match=f"no gateway answers at {unused_url}") as caught:
            nobody.produce("orders", ["a"])
        assert (caught.value.unreachable, caught.value.maybe_done) == (True, False)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (str(copy), copy.code, copy.unreachable) == (str(caught.value), caught.value.code, True)


@pytest.fixture
def stranger() -> Iterator[CannedServer]:
    """A server that is no gateway: some replies are those of a proxy that can't reach one."""
    with canned_server(lambda path: 502 if path == "/topics" else 200, b"<html>hello</html>") as server:
        yield server


def test_a_server_that_is_no_gateway_is_found_out(stranger: CannedServer) -> None:
    with LakelogClient(stranger.url) as client:
        for ask in (lambda: client.describe_topic("orders"), lambda: client.fetch("orders")):
            with pytest.raises(RequestFailed, match="the reply is not a gateway's"):
                ask()


def test_a_proxy_that_fails_is_asked_again_until_the_time_is_up(stranger: CannedServer) -> None:
    with (
        LakelogClient(stranger.url, retry_timeout_s=0.3) as client,
        pytest.raises(RequestFailed, match="HTTP status 502") as caught,
    ):
        client.list_topics()
    assert (caught.value.retriable, caught.value.maybe_done) == (True, True)
    assert len(stranger.asked) > 1
