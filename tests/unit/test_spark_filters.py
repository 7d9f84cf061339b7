"""Which filters a read keeps itself, which ones only spare it some reading, and which ones mean nothing to it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from lakelog.spark.filters import push
from lakelog.spark.planning import UNBOUNDED, Bounds, Wanted

SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("each", "wanted"),
    [
        (EqualTo(("offset",), 5), Wanted(offsets=Bounds(5, 5))),
        (EqualNullSafe(("offset",), 5), Wanted(offsets=Bounds(5, 5))),
        (GreaterThan(("offset",), 5), Wanted(offsets=Bounds(6, UNBOUNDED))),
        (GreaterThanOrEqual(("offset",), 5), Wanted(offsets=Bounds(5, UNBOUNDED))),
        (LessThan(("offset",), 5), Wanted(offsets=Bounds(-UNBOUNDED, 4))),
        (LessThanOrEqual(("partition",), 5), Wanted(partitions=Bounds(-UNBOUNDED, 5))),
        (In(("partition",), (1, 3)), Wanted(partition_numbers=frozenset({1, 3}))),
        (EqualTo(("topic",), "t"), Wanted(topics=frozenset({"t"}))),
        (In(("topic",), ("t", "u")), Wanted(topics=frozenset({"t", "u"}))),
        (IsNotNull(("offset",)), Wanted()),
    ],
)
def test_filters_that_the_read_keeps_to_the_letter(each: Filter, wanted: Wanted) -> None:
    assert push([each]) == (wanted, [])


@pytest.mark.parametrize(
    ("each", "wanted"),
    [
        (In(("offset",), (5, 9)), Wanted(offsets=Bounds(5, 9))),
        (GreaterThan(("timestamp",), SECOND), Wanted(times_us=Bounds(1_000_001, UNBOUNDED))),
        (LessThanOrEqual(("timestamp",), SECOND), Wanted(times_us=Bounds(-UNBOUNDED, 1_000_000))),
    ],
)
def test_filters_that_spare_some_reading_stay_with_spark(each: Filter, wanted: Wanted) -> None:
    assert push([each]) == (wanted, [each])


@pytest.mark.parametrize(
    "each",
    [
        Not(EqualTo(("offset",), 5)),
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), None),
        IsNotNull(("key",)),
        GreaterThan(("timestamp",), datetime(1970, 1, 1)),
        GreaterThan(("timestampType",), 0),
        EqualTo(("headers", "key"), "x"),
    ],
)
def test_other_filters_are_sparks_alone(each: Filter) -> None:
    assert push([each]) == (Wanted(), [each])


def test_filters_narrow_each_other() -> None:
    wanted, left = push(
        [
            GreaterThan(("offset",), 5),
            LessThan(("offset",), 9),
            In(("partition",), (0, 1)),
            In(("partition",), (1, 2)),
            In(("topic",), ("a", "b")),
            EqualTo(("topic",), "b"),
        ]
    )
    assert left == []
    assert wanted.offsets == Bounds(6, 8)
    assert [number for number in range(3) if wanted.partition("b", number)] == [1]
    assert not wanted.partition("a", 1)


def test_filters_that_exclude_each_other_leave_nothing() -> None:
    wanted, _ = push([In(("partition",), (0,)), In(("partition",), (1,)), In(("partition",), (1,))])
    assert not any(wanted.partition("t", number) for number in range(3))
