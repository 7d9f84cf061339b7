"""A checkpoint stands for all the commits before it: a state that comes back from one says the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given

from lakelog.delta.actions import Action, Remove
from lakelog.delta.checkpoint import (
    Checkpoint,
    LastCheckpoint,
    checkpoint_of,
    decode_checkpoint,
    decode_hint,
    encode_checkpoint,
)
from lakelog.delta.state import TableState
from lakelog.delta.tombstones import NONE
from lakelog.log.producers import BATCHES_REMEMBERED
from tests.unit.histories import History, facts, histories, remembered


def through_a_checkpoint(state: TableState) -> TableState:
    return opened_from(state.version, encode_checkpoint(checkpoint_of(state)()))


def opened_from(version: int, data: pa.Buffer) -> TableState:
    content, opened = decode_checkpoint([data.to_pybytes()]), TableState()
    opened.tombstones.extend(content.removed)
    opened.apply(version, content.actions)
    return opened


@given(histories())
def test_any_state_comes_back(history: History):
    opened = through_a_checkpoint(history.state)
    assert facts(opened) == facts(history.state)
    assert remembered(opened) == remembered(history.state)


@given(histories())
def test_a_checkpoint_of_a_checkpoint_says_the_same(history: History):
    once = through_a_checkpoint(history.state)
    twice = through_a_checkpoint(once)
    assert facts(twice) == facts(once)
    assert remembered(twice) == remembered(once)


def test_a_producer_is_remembered_although_its_records_are_deleted():
    history = History()
    history.create(1)
    history.append(0, 3, producer=1)
    history.expire(0, 1.0)
    assert history.state.live == {}
    assert len(remembered(history.state)) == 1
    assert remembered(through_a_checkpoint(history.state)) == remembered(history.state)


def test_what_is_noted_of_producers_without_records_is_bounded_by_what_is_remembered():
    history = History()
    history.create(1)
    for _ in range(10 * BATCHES_REMEMBERED):
        history.append(0, 1, producer=1)
        history.expire(0, 1.0)
        assert set(history.state.notes_without_files) == remembered(history.state)


def test_every_row_is_one_action_and_every_kind_has_its_column():
    history = History()
    history.create(2)
    history.append(0, 1)
    table = pq.read_table(pa.BufferReader(encode_checkpoint(checkpoint_of(history.state)())))
    # Readers expect the columns of removals too, also when there are none.
    assert table.schema.names == ["txn", "add", "remove", "metaData", "protocol"]
    kinds = [[name for name, content in row.items() if content is not None] for row in table.to_pylist()]
    assert sorted(kinds) == [["add"], ["metaData"], ["protocol"], ["txn"]]


def test_removed_files_are_carried_oldest_first_whatever_order_they_were_put_down_in():
    removed = {"b": 3, "a": 2, "c": 1}
    actions = [Action(remove=Remove(path, dataChange=True, deletionTimestamp=ms)) for path, ms in removed.items()]
    decoded = decode_checkpoint([encode_checkpoint(Checkpoint(actions, NONE)).to_pybytes()])
    assert decoded.removed.to_pylist() == [
        {"path": "c", "removed_ms": 1},
        {"path": "a", "removed_ms": 2},
        {"path": "b", "removed_ms": 3},
    ]


def test_columns_of_other_writers_are_passed_over():
    history = History()
    history.create(1)
    history.append(0, 2)
    table = pq.read_table(pa.BufferReader(encode_checkpoint(checkpoint_of(history.state)())))
    extra = pa.array([None] * (table.num_rows - 1) + [{"path": "x"}], pa.struct({"path": pa.string()}))
    sink = pa.BufferOutputStream()
    pq.write_table(table.append_column("sidecar", extra).select(["sidecar", *table.schema.names]), sink)
    opened = opened_from(history.state.version, sink.getvalue())
    assert facts(opened) == facts(history.state)


def test_the_hint_names_the_parts():
    assert decode_hint(b'{"version":7,"size":3,"checksum":"x"}').paths == [
        "_delta_log/00000000000000000007.checkpoint.parquet"
    ]
    assert LastCheckpoint(7, parts=2).paths == [
        "_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet",
        "_delta_log/00000000000000000007.checkpoint.0000000002.0000000002.parquet",
    ]
