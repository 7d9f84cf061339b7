"""`__consumer_offsets`: the Delta table of what groups have committed.

Owns the form of its rows. Every commit is a row, and the latest per group, topic and partition counts; one whose
`offset` is null says that what was committed before is deleted. `committed_at` grows from row to row, so "latest" has
one answer. A fold leaves out what no longer counts, so the table stays about as large as what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from consumer_groups.offsets import OffsetRow

NAME = "__consumer_offsets"
SCHEMA = pa.schema(
    {
        "group": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "leader_epoch": pa.int32(),
        "metadata": pa.string(),
        "committed_at": pa.timestamp("us", tz="UTC"),
    }
)
_KEY = ["group", "topic", "partition"]


def table_of(rows: Iterable[OffsetRow]) -> pa.Table:
    """Rows as columns; of several for one partition only the last."""
    latest = {row[:3]: row for row in rows}
    columns = zip(*latest.values(), strict=True)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def rows_of(table: pa.Table) -> list[OffsetRow]:
    """The rows of a table, oldest first."""
    in_order = table.sort_by("committed_at")
    micros = in_order.column("committed_at").cast(pa.int64())
    columns = [*(in_order.column(name) for name in SCHEMA.names[:-1]), micros]
    return list(map(OffsetRow._make, zip(*(column.to_pylist() for column in columns), strict=True)))


def latest(table: pa.Table, *, drop_deleted: bool) -> pa.Table:
    """What counts. Deletions may go too where nothing older is left that they stand against."""
    values = [name for name in SCHEMA.names if name not in _KEY]
    keep_nulls = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)
    # One thread, because the last row of a group is only the latest in the order of the rows.
    grouped = table.sort_by("committed_at").group_by(_KEY, use_threads=False)
    found = grouped.aggregate([(name, "last", keep_nulls) for name in values])
    found = found.select([*_KEY, *(f"{name}_last" for name in values)]).rename_columns(SCHEMA.names)
    return found.filter(pc.is_valid(found.column("offset"))) if drop_deleted else found


def without_expired(
    table: pa.Table, idle_since_ms: Mapping[str, int], with_members: Iterable[str], due_ms: int
) -> pa.Table:
    """Of the latest rows those that are to stay.

    A group with members keeps everything. Another's go when both the commit and the end of the group's last membership
    lie at `due_ms` or before it.
    """
    groups = table.column("group").combine_chunks().dictionary_encode()
    active = frozenset(with_members)

    def safe(group: str) -> bool:
        return group in active or idle_since_ms.get(group, 0) > due_ms

    names: Sequence[str] = groups.dictionary.to_pylist()
    group_is_safe = pa.array([safe(name) for name in names], pa.bool_()).take(groups.indices)
    is_recent = pc.greater(table.column("committed_at").cast(pa.int64()), due_ms * 1000)
    return table.filter(pc.or_(group_is_safe, is_recent))
