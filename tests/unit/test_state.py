"""A state is the sum of its commits: followed or opened, whole or from a checkpoint, and with its faults kept."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config import PARTITIONS_MAX
from lakelog.delta.actions import Action, Metadata, Protocol, Remove, add_of, remove_of
from lakelog.delta.state import PARTITIONS_READ_MAX, Changes, TableState, check_protocol
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log.producers import BATCHES_REMEMBERED
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


def with_properties(state: TableState, properties: dict[str, str]) -> Metadata:
    """The table's terms with some of them set by hand, as Spark's ALTER TABLE does."""
    assert state.metadata is not None
    return msgspec.structs.replace(state.metadata, configuration={**state.metadata.configuration, **properties})


def fault_of(state: TableState) -> str:
    """The refusal that everybody gets who asks for the topic."""
    with pytest.raises(LakelogError) as caught:
        state.require_sound()
    assert caught.value.code is ErrorCode.UNSUPPORTED_TABLE
    return caught.value.message


def test_a_file_of_another_writer_is_a_fault_until_it_is_taken_out_again():
    state = topic()
    ours, foreign = list(state.live.values()), segment(0, 6, unique="foreign")
    after = {**facts(state), "version": 5, "tombstones": {foreign.path: 0}}
    added = add_of(foreign, data_change=False)
    added.tags = None
    state.apply(4, [*(Action(remove=remove_of(each, data_change=False, now_ms=0)) for each in ours), Action(add=added)])
    assert f"not written by Lakelog: file {foreign.path}" in fault_of(state)
    # As Spark's RESTORE has it: what was removed is added again, with dataChange.
    restored = [Action(add=add_of(each, data_change=True)) for each in ours]
    changes = state.apply(5, [*restored, Action(remove=remove_of(foreign, data_change=True, now_ms=0))])
    state.require_sound()
    assert facts(state) == after
    assert changes.records_removed
    assert changes.appended == {}


def test_two_files_of_another_writer_are_a_fault_until_both_are_gone():
    state = topic()
    foreign = [segment(0, 6, unique=name) for name in ("one", "two")]
    for each in foreign:
        added = add_of(each, data_change=True)
        added.tags = {}
        state.apply(state.version + 1, [Action(add=added)])
    for each in foreign:
        assert each.path in fault_of(state)
        state.apply(state.version + 1, [Action(remove=remove_of(each, data_change=True, now_ms=0))])
    state.require_sound()


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"lakelog.retention.ms": "soon"}, "retention.ms"),
        ({"lakelog.no.such.config": "1"}, "no.such.config"),
        ({"lakelog.partitions": "many"}, "lakelog.partitions"),
        ({"lakelog.partitions": "-1"}, "lakelog.partitions"),
        ({"lakelog.partitions": "0"}, "from 1 to"),
        ({"lakelog.producers": "nobody"}, "lakelog.producers"),
        ({"lakelog.partitions": "1000000000"}, "from 1 to"),
        ({"lakelog.partitions": str(PARTITIONS_READ_MAX + 1)}, "from 1 to"),
    ],
)
def test_terms_that_nobody_can_keep_are_a_fault_until_they_are_set_right(properties: dict[str, str], named: str):
    state = topic()
    good = state.metadata
    assert good is not None
    before = {**facts(state), "version": 6}
    state.apply(4, [Action(metaData=with_properties(state, properties))])
    assert named in fault_of(state)
    state.apply(5, [])  # commits that say nothing of the terms change nothing in that
    assert named in fault_of(state)
    state.apply(6, [Action(metaData=good)])
    state.require_sound()
    assert facts(state) == before


def test_a_topic_with_more_partitions_than_it_could_get_now_stays_readable():
    state = topic()
    state.apply(4, [Action(metaData=with_properties(state, {"lakelog.partitions": str(PARTITIONS_READ_MAX)}))])
    state.require_sound()
    assert len(state.partitions) == PARTITIONS_READ_MAX > PARTITIONS_MAX


def test_a_protocol_is_a_fault_until_it_is_plain_again():
    state = topic([Action(protocol=Protocol(3, 7, ["deletionVectors"], ["deletionVectors"]))])
    assert "asks for deletionVectors" in fault_of(state)
    state.apply(5, [Action(protocol=Protocol(1, 7, None, ["appendOnly"]))])
    state.require_sound()


def test_files_that_come_back_do_not_change_what_is_remembered_of_their_producers():
    history = History()
    history.create(1)
    for _ in range(BATCHES_REMEMBERED + 3):
        history.append(0, 1, producer=1)
    state = history.state
    before = list(state.producers)
    oldest = state.partitions[0].segments[:2]
    state.apply(state.version + 1, [Action(remove=remove_of(each, data_change=True, now_ms=0)) for each in oldest])
    state.apply(state.version + 1, [Action(add=add_of(each, data_change=True)) for each in oldest])
    assert list(state.producers) == before


def test_a_file_that_is_added_once_more_is_there_once():
    state = topic()
    before = {**facts(state), "version": 4}
    state.apply(4, [Action(add=add_of(each, data_change=False)) for each in list(state.live.values())])
    assert facts(state) == before


HOUR_MS = 3_600_000


def removal(path: str, removed_ms: int) -> Action:
    return Action(remove=Remove(path, dataChange=False, deletionTimestamp=removed_ms))


def test_a_removed_file_is_remembered_for_as_long_as_readers_may_hold_on_to_it():
    state = topic()
    assert state.config.file_delete_delay_ms == HOUR_MS
    state.apply(4, [removal("first", 5_000), removal("second", 6_000)])
    state.apply(5, [removal("third", 5_000 + HOUR_MS)])
    assert state.tombstones.times_ms() == {"first": 5_000, "second": 6_000, "third": 5_000 + HOUR_MS}
    state.apply(6, [removal("fourth", 5_001 + HOUR_MS)])
    assert list(state.tombstones.times_ms()) == ["second", "third", "fourth"]
    state.tombstones.forget_before(5_001 + HOUR_MS)
    assert list(state.tombstones.times_ms()) == ["fourth"]


def test_a_file_that_comes_back_is_no_longer_removed():
    state = topic()
    back, gone = list(state.live.values())[:2]
    state.apply(4, [removal(back.path, 1), removal(gone.path, 2)])
    state.apply(5, [Action(add=add_of(back, data_change=True))])
    assert state.tombstones.times_ms() == {gone.path: 2}
    # Nor when it goes and comes in one commit, whichever is named first.
    state.apply(6, [Action(add=add_of(gone, data_change=True)), removal(gone.path, 3)])
    assert state.tombstones.times_ms() == {}
    assert gone.path in state.live


def test_what_is_remembered_of_a_tail_that_is_merged_for_ever_is_bounded():
    history = History()
    history.create(1)
    state = history.state
    state.apply(state.version + 1, [Action(metaData=with_properties(state, {"lakelog.file.delete.delay.ms": "20"}))])
    for _ in range(100):
        history.append(0, 1)
        history.append(0, 1)
        history.merge(0, 3)
        # A commit takes a millisecond in this history, so the delay spans twenty, and every third removes three files.
        assert len(state.tombstones) <= 3 * (20 // 3 + 1)
    assert len(state.live) == 1


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
