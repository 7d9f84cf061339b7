"""Tombstones in columns say what a dictionary of them would, and keep no object for each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.delta import tombstones
from lakelog.delta.checkpoint import checkpoint_of, encode_checkpoint
from lakelog.delta.tombstones import Tombstones
from tests.unit.histories import History

STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 40)),
    st.tuples(st.just("discard"), st.integers(0, 40)),
    st.tuples(st.just("forget"), st.integers(0, 60)),
    st.tuples(st.just("reopen"), st.just(0)),
)


@given(st.lists(STEPS, max_size=80))
def test_they_say_what_a_dictionary_would(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tombstones, "BLOCK_FILES", 4)
        kept, model = Tombstones(), dict[str, int]()
        for now_ms, (step, number) in enumerate(steps):
            if step == "put" and f"{number}" not in model:  # a file leaves the table once, unless it came back
                kept.put(f"{number}", now_ms)
                model[f"{number}"] = now_ms
            elif step == "discard":
                back = [f"{each}" for each in range(number, number + 1 + number % 2)]
                kept.discard(back)
                model = {path: removed_ms for path, removed_ms in model.items() if path not in back}
            elif step == "forget":
                kept.forget_before(number)
                model = {path: removed_ms for path, removed_ms in model.items() if removed_ms >= number}
            elif step == "reopen":
                columns, kept = kept.columns(), Tombstones()
                kept.extend(columns)
            assert list(kept.times_ms().items()) == list(model.items())
            assert len(kept) == len(model)


def test_columns_stay_as_they_were_when_more_is_put_and_forgotten() -> None:
    kept = Tombstones()
    for number in range(tombstones.BLOCK_FILES + 10):
        kept.put(f"{number}", number)
    columns = kept.columns()
    before = columns.to_pylist()
    kept.put("later", 10_000)
    kept.forget_before(5_000)
    kept.discard([f"{number}" for number in range(100)])
    assert columns.to_pylist() == before


def test_a_checkpoint_makes_no_object_for_each_of_them() -> None:
    history = History()
    history.create(1)
    count = 3 * tombstones.BLOCK_FILES
    for number in range(count):
        history.state.tombstones.put(f"partition=0/{number:020d}-0123456789abcdef.parquet", number)
    content = checkpoint_of(history.state)()
    assert len(content.actions) == 2
    assert content.removed.num_rows == count
    assert content.removed.nbytes <= 80 * count
    assert encode_checkpoint(content).size > 0
