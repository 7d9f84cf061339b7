"""`__consumer_groups`: the Delta table in which the coordinator keeps its facts, and from which a restart replays them.

Owns the form of its rows: a number that orders them, when, which group, which kind, and the fact itself as JSON. A fold
puts one row per group, as it stands, in the place of all its facts.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from consumer_groups.state import Fact, Groups, decode_fact, encode_fact, group_of, replay, snapshot

NAME = "__consumer_groups"
SCHEMA = pa.schema(
    {
        "sequence": pa.int64(),
        "at": pa.timestamp("us", tz="UTC"),
        "group": pa.string(),
        "kind": pa.string(),
        "fact": pa.string(),
    }
)


def table_of(facts: Sequence[Fact], first_sequence: int, now_ms: int) -> pa.Table:
    return pa.table(
        {
            "sequence": range(first_sequence, first_sequence + len(facts)),
            "at": [now_ms * 1000] * len(facts),
            "group": [group_of(fact) for fact in facts],
            "kind": [type(fact).__name__ for fact in facts],
            "fact": [encode_fact(fact) for fact in facts],
        },
        schema=SCHEMA,
    )


def groups_of(table: pa.Table) -> Groups:
    return replay(decode_fact(text) for text in table.sort_by("sequence").column("fact").to_pylist())


def next_sequence(table: pa.Table) -> int:
    sequences = table.column("sequence").to_pylist()
    return max(sequences, default=-1) + 1


def folded(table: pa.Table) -> pa.Table:
    """The same groups by one fact each. All facts so far must be in the table."""
    groups = groups_of(table)
    facts = [snapshot(group) for group in groups.values()]
    last_us = max(table.column("at").cast(pa.int64()).to_pylist(), default=0)
    # The last numbers that were in use: every group has had one fact at least, so there are enough of them.
    return table_of(facts, next_sequence(table) - len(facts), last_us // 1000)
