"""JSON objects in a row come out whole, however the row is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_api.encoding.concatenated import ConcatenatedJson

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab"\\{}[] é\n')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
objects = st.lists(st.dictionaries(st.text(max_size=3), values, max_size=3), max_size=5)


def _cut(text: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(places)]


@given(objects, st.sampled_from(["", " ", "\r\n", "\n\t "]), st.lists(st.integers(0, 200)))
def test_what_was_joined_comes_apart_again(sent: list[dict[str, Any]], between: str, cuts: list[int]) -> None:
    text = between.join(json.dumps(each, ensure_ascii=False) for each in sent) + between
    split = ConcatenatedJson(1000)
    found = [each for piece in _cut(text.encode(), cuts) for each in split.feed(piece)]
    split.finish()
    assert split.fault is None
    assert [json.loads(each) for each in found] == sent
    assert split.pending_bytes == 0


@pytest.mark.parametrize("wrong", [b"[1]", b"1", b"}", b"x", b',{"a":1}', b"\xff"])
def test_what_is_no_object_is_a_fault_after_those_before_it(wrong: bytes) -> None:
    split = ConcatenatedJson(1000)
    assert split.feed(b'{"a":1} ' + wrong) == [b'{"a":1}']
    assert split.fault is not None
    assert split.fault.status == 400
    assert split.feed(b'{"b":1}') == []


@pytest.mark.parametrize("begun", [b"{", b'{"a', b'{"a\\', b'{"a":{}'])
def test_an_object_that_does_not_end_is_a_fault(begun: bytes) -> None:
    split = ConcatenatedJson(1000)
    assert split.feed(begun) == []
    assert split.fault is None
    split.finish()
    assert split.fault is not None
    assert "middle" in split.fault.message


@pytest.mark.parametrize("pieces", [(b'{"a":1}{"aaaaaaaa', b"aaa"), (b'{"a":1}{"aaaaaaaa":1}{}', b"{}")])
def test_an_object_has_a_largest_size(pieces: tuple[bytes, bytes]) -> None:
    split = ConcatenatedJson(10)
    assert split.feed(pieces[0]) == [b'{"a":1}']
    assert split.feed(pieces[1]) == []
    assert split.fault is not None
    assert split.fault.status == 413
