"""A state is the sum of its commits: followed or opened, whole or from a checkpoint, and never half of a commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.delta.actions import Action, Metadata, Protocol, add_of, remove_of
from lakelog.delta.state import Changes, TableState, check_protocol
from lakelog.errors import ErrorCode, LakelogError
from tests.unit.histories import History, facts, histories, remembered
from tests.unit.segments import segment


@given(histories())
def test_a_state_that_is_opened_equals_one_that_followed(history: History):
    opened = TableState()
    for version, actions in enumerate(history.commits):
        opened.apply(version, actions)
    assert facts(opened) == facts(history.state)
    assert remembered(opened) == remembered(history.state)


@given(histories())
def test_segments_are_in_order_without_overlap_and_cover_what_is_served(history: History):
    for partition in history.state.partitions:
        assert partition.bases == [each.base_offset for each in partition.segments]
        expected = partition.segments[0].base_offset if partition.segments else partition.next_offset
        assert expected <= max(partition.log_start_offset, 0) or expected == partition.next_offset
        for each in partition.segments:
            assert each.base_offset == expected
            expected = each.end_offset
        assert expected == partition.next_offset
    files = [each for partition in history.state.partitions for each in partition.segments]
    assert sorted(each.path for each in files) == sorted(history.state.live)


@given(histories(), st.data())
def test_changes_tell_what_was_appended_and_what_went(history: History, data: st.DataObject):
    split = data.draw(st.integers(0, len(history.commits)))
    state, changes = TableState(), Changes()
    for version, actions in enumerate(history.commits[:split]):
        state.apply(version, actions)
    before = set(state.live)
    for version, actions in enumerate(history.commits[split:], start=split):
        state.apply(version, actions, changes)
    assert changes.commits == len(history.commits) - split
    created_again = any(action.metaData for actions in history.commits[split:] for action in actions)
    if not created_again:
        assert before - changes.removed <= set(state.live)
        assert changes.removed.isdisjoint(state.live)
        assert not changes.records_removed


def topic(*commits: list[Action]) -> TableState:
    history = History()
    history.create(2)
    for _ in range(3):
        history.append(0, 2)
    for actions in commits:
        history.state.apply(history.state.version + 1, actions)
    return history.state


def test_offsets_of_files_that_are_gone_are_not_given_out_again():
    state = topic()
    everything = [Action(remove=remove_of(each, data_change=True, now_ms=0)) for each in state.live.values()]
    changes = state.apply(state.version + 1, everything)
    assert state.next_offsets == [6, 0]
    assert state.live == {}
    assert changes.records_removed


def test_a_rewrite_takes_no_records():
    state = topic()
    old = list(state.live.values())
    new = segment(0, 6, tier=1, unique="merged")
    actions = [Action(remove=remove_of(each, data_change=False, now_ms=0)) for each in old]
    changes = state.apply(4, [*actions, Action(add=add_of(new, data_change=False))])
    assert state.partitions[0].segments == [new]
    assert changes.appended == {}
    assert not changes.records_removed


def test_a_commit_with_a_file_of_another_writer_is_refused_whole():
    state = topic()
    before = facts(state)
    foreign = add_of(segment(0, 6, unique="foreign"), data_change=False)
    foreign.tags = None
    removals = [Action(remove=remove_of(each, data_change=False, now_ms=0)) for each in state.live.values()]
    with pytest.raises(LakelogError, match="not written by Lakelog") as caught:
        state.apply(4, [*removals, Action(add=foreign)])
    assert caught.value.code is ErrorCode.UNSUPPORTED_TABLE
    assert facts(state) == before


def test_removing_a_file_that_is_not_there_is_nothing():
    state = topic()
    changes = state.apply(4, [Action(remove=remove_of(segment(0, 1, unique="never"), data_change=True, now_ms=0))])
    assert len(state.live) == 3
    assert not changes.records_removed


def test_other_peoples_tables_are_neither_topics_nor_errors():
    state = TableState()
    state.apply(
        0,
        [
            Action(protocol=Protocol(3, 7, ["deletionVectors"], ["deletionVectors"])),
            Action(metaData=Metadata("id", "{}", [], {"delta.enableDeletionVectors": "true"})),
            Action(add=add_of(segment(0, 1), data_change=True)),
        ],
    )
    assert not state.is_topic
    assert not state.exists
    assert state.live == {}


def test_a_topic_that_was_deleted_leaves_nothing_to_the_next_of_its_name():
    history = History()
    history.create(3)
    history.append(2, 5, producer=1)
    history.expire(2, 0.5)
    history.delete_and_create(1)
    assert history.state.exists
    assert history.state.next_offsets == [0]
    assert history.state.partitions[0].log_start_offset == 0
    assert history.state.txns == {}
    assert remembered(history.state) == set()


@pytest.mark.parametrize(
    "protocol",
    [Protocol(1, 1), Protocol(1, 2), Protocol(1, 7, None, ["appendOnly", "invariants"]), Protocol(1, 7, None, [])],
)
def test_plain_delta_is_written(protocol: Protocol):
    check_protocol(protocol)


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        (Protocol(1, 3), "checkConstraints"),
        (Protocol(1, 4), "changeDataFeed"),
        (Protocol(2, 5), "columnMapping"),
        (Protocol(1, 6), "identityColumns"),
        (Protocol(1, 7, None, ["appendOnly", "rowTracking"]), "asks for rowTracking"),
        (Protocol(3, 7, ["v2Checkpoint"], ["v2Checkpoint"]), "v2Checkpoint"),
    ],
)
def test_what_a_table_asks_for_beyond_that_is_refused_by_name(protocol: Protocol, named: str):
    with pytest.raises(LakelogError, match=named) as caught:
        check_protocol(protocol)
    assert caught.value.code is ErrorCode.UNSUPPORTED_TABLE
