"""Bodies that are put together column by column say the same as records that are written one by one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_api.encoding.records_out import json_list
from ingest_api.media import Embedded
from lakelog.fetch import Fetched
from lakelog.model.batch import STORED_SCHEMA

values = st.none() | st.binary(max_size=9)


def _fetched(pairs: list[tuple[bytes | None, bytes | None]], skipped: int) -> Fetched:
    """The records after the first few: columns need not begin where their buffers do."""
    columns = {
        "offset": range(len(pairs)),
        "timestamp": [1_700_000_000_000_000] * len(pairs),
        "key": [key for key, _ in pairs],
        "value": [value for _, value in pairs],
        "headers": [None] * len(pairs),
    }
    rows = pa.table([pa.array(columns[field.name], field.type) for field in STORED_SCHEMA], schema=STORED_SCHEMA)
    return Fetched("orders", 3, rows.slice(skipped), len(pairs))


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@given(first=st.lists(st.tuples(values, values), max_size=5), second=st.lists(st.tuples(values, values), max_size=5))
def test_binary(first: list[tuple[Any, Any]], second: list[tuple[Any, Any]]) -> None:
    replies = [_fetched(first, min(1, len(first))), _fetched(second, 0)]
    expected = [
        {"topic": "orders", "key": _text(key), "value": _text(value), "partition": 3, "offset": offset}
        for pairs, skipped in ((first, 1), (second, 0))
        for offset, (key, value) in list(enumerate(pairs))[skipped:]
    ]
    for record in expected:
        record["timestamp"] = 1_700_000_000_000
    assert json.loads(json_list(replies, Embedded.BINARY)) == expected


@pytest.mark.parametrize("embedded", list(Embedded))
def test_nothing_is_an_empty_list(embedded: Embedded) -> None:
    assert json_list([_fetched([], 0)], embedded) == b"[]"
