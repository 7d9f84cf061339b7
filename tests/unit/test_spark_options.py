"""The options of `format("lakelog")`: what each one comes to, and that bad ones are refused with a word of help."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.errors import LakelogError
from lakelog.spark.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    Assign,
    Subscribe,
    SubscribePattern,
    parse_sink,
    parse_source,
)
from lakelog.spark.positions import EARLIEST, LATEST, At, AtOffsets, AtTime, AtTimes

READ = {"warehouse": "/data", "subscribe": "orders"}


def test_topics_come_with_commas_by_pattern_or_with_partitions() -> None:
    assert parse_source({**READ, "subscribe": "b, a,b"}).subscription == Subscribe(("b", "a"))
    assert parse_source({"warehouse": "/d", "subscribePattern": "o.*"}).subscription == SubscribePattern("o.*")
    assigned = parse_source({"warehouse": "/d", "assign": '{"b": [1, 0], "a": [2]}'}).subscription
    assert assigned == Assign((("a", (2,)), ("b", (0, 1))))


def test_names_of_options_may_be_in_any_case() -> None:
    options = parse_source({"WAREHOUSE": "/d", "Subscribe": "t", "MaxOffsetsPerTrigger": "5", "includeheaders": "TRUE"})
    assert (options.max_offsets_per_trigger, options.include_headers) == (5, True)


def test_defaults_are_those_of_kafkas_source() -> None:
    options = parse_source(READ)
    assert options.batch_start() == At(EARLIEST)
    assert options.batch_end() == At(LATEST)
    assert options.stream_start() == At(LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_offsets_per_trigger is None


def test_a_time_goes_before_times_and_times_before_offsets() -> None:
    offsets = {"startingOffsets": '{"orders": {"0": 5}}'}
    times = {"startingOffsetsByTimestamp": '{"orders": {"0": 1000}}', **offsets}
    assert parse_source({**READ, **offsets}).starting == AtOffsets({"orders": {0: 5}})
    assert parse_source({**READ, **times}).starting == AtTimes({"orders": {0: 1000}})
    assert parse_source({**READ, **times, "startingTimestamp": "7"}).starting == AtTime(7)


def test_the_warehouse_is_absolute_for_tasks_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_source({**READ, "warehouse": "data"}).address.warehouse == str(tmp_path / "data")
    assert parse_source({**READ, "warehouse": "s3://bucket/x"}).address.warehouse == "s3://bucket/x"


def test_the_warehouse_may_be_a_path_or_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_source({"path": "/given", "subscribe": "t"}).address.warehouse == "/given"
    monkeypatch.setenv("LAKELOG_WAREHOUSE", "/environment")
    assert parse_source({"subscribe": "t"}).address.warehouse == "/environment"


@pytest.mark.parametrize(
    ("said", "fsync"), [(None, False), ("", False), ("false", False), ("true", True), ("True", True)]
)
def test_the_sink_flushes_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, said: str | None, fsync: bool
) -> None:
    monkeypatch.delenv("LAKELOG_FSYNC", raising=False)
    if said is not None:
        monkeypatch.setenv("LAKELOG_FSYNC", said)
    assert parse_sink({"warehouse": "/data", "topic": "t"}).address.fsync == fsync
    monkeypatch.setenv("LAKELOG_FSYNC", "perhaps")
    with pytest.raises(LakelogError, match="LAKELOG_FSYNC is 'perhaps'"):
        parse_sink({"warehouse": "/data", "topic": "t"})


def test_storage_options_are_handed_on() -> None:
    address = parse_source({**READ, "lakelog.storage.region": "eu", "lakelog.storage.endpoint": "http://s3"}).address
    assert address.storage == (("endpoint", "http://s3"), ("region", "eu"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"subscribe": "t"}, "warehouse is missing"),
        ({"warehouse": "memory://x", "subscribe": "t"}, "one process alone"),
        ({"warehouse": "/d"}, "exactly one of subscribe"),
        ({**READ, "assign": '{"t": [0]}'}, "subscribe and assign are both there"),
        ({**READ, "subscribe": " , "}, "commas"),
        ({**READ, "subscribe": "a b"}, "may only have"),
        ({"warehouse": "/d", "subscribePattern": "("}, "no regular expression"),
        ({"warehouse": "/d", "assign": '{"t": []}'}, "option assign"),
        ({"warehouse": "/d", "assign": "[0]"}, "option assign"),
        ({**READ, "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({**READ, "kafka.bootstrap.servers": "x:9092"}, "connection to Kafka"),
        ({**READ, "startingOffsets": "first"}, "should be JSON"),
        ({**READ, "startingOffsets": '{"t": {"0": 1.5}}'}, "should be JSON"),
        ({**READ, "startingOffsets": '{"t": {"0": -3}}'}, "below -2"),
        ({**READ, "startingTimestamp": "yesterday"}, "whole number"),
        ({**READ, "startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "before 1970"),
        ({**READ, "startingOffsetsByTimestampStrategy": "ignore"}, "error or latest"),
        ({**READ, "maxOffsetsPerTrigger": "0"}, "from 1 on"),
        ({**READ, "minPartitions": "few"}, "from 1 on"),
        ({**READ, "failOnDataLoss": "yes"}, "true or false"),
    ],
)
def test_bad_options_are_refused_with_what_to_do(given: dict[str, str], told: str) -> None:
    with pytest.raises(LakelogError, match=told):
        parse_source(given)


def test_edges_that_leave_nothing_to_read_are_refused() -> None:
    with pytest.raises(LakelogError, match="can't be latest"):
        parse_source({**READ, "startingOffsets": "latest"}).batch_start()
    with pytest.raises(LakelogError, match="can't be latest"):
        parse_source({**READ, "startingOffsets": '{"orders": {"0": -1}}'}).batch_start()
    with pytest.raises(LakelogError, match="can't be earliest"):
        parse_source({**READ, "endingOffsets": "earliest"}).batch_end()
    with pytest.raises(LakelogError, match="for batch reads"):
        parse_source({**READ, "endingOffsets": "latest"}).stream_start()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic": "__consumer_offsets"}, "platform's own"),
        ({"topic": "a/b"}, "may only have"),
        ({"subscribe": "t"}, "unknown option 'subscribe'"),
        ({"txnAppId": "job"}, "go together"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, "should be up to 200 letters"),
        ({"txnAppId": "a@b", "txnVersion": "1"}, "should be up to 200 letters"),
        ({"txnAppId": "..", "txnVersion": "1"}, "should be up to 200 letters"),
        ({"txnAppId": "job", "txnVersion": "-1"}, "from 0 on"),
    ],
)
def test_bad_options_of_a_sink_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(LakelogError, match=told):
        parse_sink({"warehouse": "/data", **given})


def test_a_sink_passes_over_what_spark_adds() -> None:
    options = parse_sink({"warehouse": "/d", "topic": "t", "checkpointLocation": "/c", "queryName": "q"})
    assert options.topic == "t"


def test_every_option_is_told_of_to_users() -> None:
    import lakelog.spark

    told = lakelog.spark.__doc__ or ""
    same_with_ending = [name for name in SOURCE_OPTIONS if name.startswith("ending")]
    missing = [
        name for name in (*SOURCE_OPTIONS, *SINK_OPTIONS) if f"`{name}`" not in told and name not in same_with_ending
    ]
    assert missing == []
