"""The spelling of Delta's actions: what is written is read back, and stats are never narrower than their file."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.delta.actions import (
    TIER_TAG,
    Action,
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    Txn,
    add_of,
    decode_commit,
    encode_commit,
    remove_of,
    segment_of,
    stats_of,
)
from lakelog.log.stamp import LATEST_TIMESTAMP_US
from lakelog.model.segment import SEALED_TIER, Segment
from tests.unit.segments import segment

TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3)
LONGS = st.integers(0, 2**63 - 1)
ACTIONS = st.one_of(
    st.builds(Add, st.text(), TEXTS, LONGS, LONGS, st.booleans(), st.none() | st.text(), st.none() | TEXTS).map(
        lambda add: Action(add=add)
    ),
    st.builds(Remove, st.text(), st.booleans(), st.none() | LONGS, st.none() | st.booleans(), st.none() | TEXTS).map(
        lambda remove: Action(remove=remove)
    ),
    st.builds(Txn, st.text(), LONGS, st.none() | LONGS).map(lambda txn: Action(txn=txn)),
    st.builds(Metadata, st.text(), st.text(), st.lists(st.text(max_size=5), max_size=2), TEXTS).map(
        lambda metadata: Action(metaData=metadata)
    ),
    st.builds(Protocol, st.integers(1, 3), st.integers(1, 7), st.none() | st.lists(st.text(max_size=5))).map(
        lambda protocol: Action(protocol=protocol)
    ),
    st.builds(CommitInfo, LONGS, st.text(), TEXTS, TEXTS, st.none() | st.booleans(), txnId=st.none() | st.text()).map(
        lambda info: Action(commitInfo=info)
    ),
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    base = draw(st.integers(0, 2**62))
    times = sorted(draw(st.tuples(*[st.integers(0, LATEST_TIMESTAMP_US)] * 2)))
    return segment(
        base,
        base + draw(st.integers(1, 2**31)),
        partition=draw(st.integers(0, 9_999)),
        records=draw(st.integers(1, 2**31)),
        size=draw(st.integers(1, 2**40)),
        tier=draw(st.integers(0, 5) | st.just(SEALED_TIER)),
        times_us=(times[0], times[1]),
        tags=draw(TEXTS.filter(lambda tags: TIER_TAG not in tags)),
    )


@given(st.lists(ACTIONS, max_size=6))
def test_a_commit_is_read_as_it_was_written(actions: list[Action]):
    assert decode_commit(encode_commit(actions)) == actions


@given(segments(), st.booleans())
def test_a_segment_comes_back_from_its_add_action(given_: Segment, data_change: bool):
    (action,) = decode_commit(encode_commit([Action(add=add_of(given_, data_change=data_change))]))
    assert action.add is not None
    assert action.add.dataChange is data_change
    found = segment_of(action.add)
    for name in ("partition", "base_offset", "end_offset", "records", "bytes", "path", "modified_ms", "tier", "tags"):
        assert getattr(found, name) == getattr(given_, name), name
    # To the millisecond, and outwards.
    assert 0 <= given_.min_timestamp_us - found.min_timestamp_us < 1000
    assert 0 <= found.max_timestamp_us - given_.max_timestamp_us < 1000
    # Once widened it stays as it is: a checkpoint of a checkpoint says the same.
    assert segment_of(add_of(found, data_change=False)) == found


@given(st.integers(0, LATEST_TIMESTAMP_US))
def test_stats_hold_times_that_every_reader_can_parse(time_us: int):
    stats = json.loads(stats_of(segment(0, 1, times_us=(time_us, time_us))))
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    earliest = datetime.strptime(stats["minValues"]["timestamp"], "%Y-%m-%dT%H:%M:%S.%f%z")
    latest = datetime.strptime(stats["maxValues"]["timestamp"], "%Y-%m-%dT%H:%M:%S.%f%z")
    assert earliest <= moment <= latest
    assert len(stats["minValues"]["timestamp"]) == len("2026-01-01T00:00:00.000Z")
    assert stats["nullCount"] == {"offset": 0, "timestamp": 0}


def test_kinds_of_action_that_are_not_known_are_passed_over():
    commit = b'{"cdc":{"path":"x"}}\n\n{"domainMetadata":{"domain":"d"}}\n{"txn":{"appId":"a","version":3,"new":1}}\n'
    assert decode_commit(commit) == [Action(), Action(), Action(txn=Txn("a", 3))]


def test_a_removal_says_all_that_delta_asks_for():
    removal = remove_of(segment(5, 9, partition=2, size=77), data_change=False, now_ms=123)
    assert json.loads(encode_commit([Action(remove=removal)])) == {
        "remove": {
            "path": "partition=2/00000000000000000005-x.parquet",
            "dataChange": False,
            "deletionTimestamp": 123,
            "extendedFileMetadata": True,
            "partitionValues": {"partition": "2"},
            "size": 77,
        }
    }


@pytest.mark.parametrize(
    "change",
    [
        {"tags": None},
        {"tags": {"other": "writer"}},
        {"stats": None},
        {"stats": '{"numRecords":1}'},
        {"stats": '{"numRecords":1,"minValues":{"offset":0},"maxValues":{"offset":0}}'},
        {"partitionValues": {}},
        {"partitionValues": {"partition": None}},
        {"partitionValues": {"partition": "eu"}},
    ],
)
def test_a_file_that_cannot_be_served_is_refused_by_its_path(change: dict[str, Any]):
    add = add_of(segment(0, 1), data_change=True)
    for name, value in change.items():
        setattr(add, name, value)
    with pytest.raises(ValueError, match="partition=0/00000000000000000000-x"):
        segment_of(add)


def test_whatever_another_writer_says_of_its_commit_is_no_reason_to_fail():
    line = b'{"commitInfo":{"timestamp":null,"operation":7,"operationMetrics":null,"operationParameters":[],"txnId":1}}'
    (action,) = decode_commit(line)
    assert action.commitInfo is not None
