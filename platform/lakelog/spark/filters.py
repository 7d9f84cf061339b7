"""What a query's filters say about topics, partitions, offsets and times, as far as a read can make use of it.

Owns the step from Spark's filters to bounds. A filter that the read keeps to the letter is taken from Spark; one that
only spares some reading stays with Spark, which looks at each record again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

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
)

from lakelog.spark.planning import UNBOUNDED, Wanted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def push(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What the filters ask for, and those that Spark has to apply all the same."""
    wanted, left = Wanted(), []
    for each in filters:
        narrowed, exact = _pushed(wanted, each)
        wanted = narrowed
        if not exact:
            left.append(each)
    return wanted, left


def _pushed(wanted: Wanted, each: Filter) -> tuple[Wanted, bool]:
    match each:
        case IsNotNull(attribute=(column,)):
            return wanted, column in _NEVER_NULL
        case EqualTo(attribute=("topic",), value=str(topic)) | EqualNullSafe(attribute=("topic",), value=str(topic)):
            return _in_topics(wanted, [topic]), True
        case In(attribute=("topic",), value=topics):
            return _in_topics(wanted, topics), True
        case In(attribute=("partition",), value=numbers):
            named = frozenset(numbers)
            among = named if wanted.partition_numbers is None else named & wanted.partition_numbers
            return replace(wanted, partition_numbers=among), True
    bounds = _bounds(each)
    if bounds is None:
        return wanted, False
    column, first, last = bounds
    if column == "partition":
        return replace(wanted, partitions=wanted.partitions.within(first, last)), True
    if column == "offset":
        # A list of offsets is read from its first to its last.
        return replace(wanted, offsets=wanted.offsets.within(first, last)), not isinstance(each, In)
    return replace(wanted, times_us=wanted.times_us.within(first, last)), False


def _in_topics(wanted: Wanted, topics: Iterable[Any]) -> Wanted:
    named = frozenset(topics)
    return replace(wanted, topics=named if wanted.topics is None else named & wanted.topics)


def _bounds(each: Filter) -> tuple[str, int, int] | None:
    """The column, and the first and the last value that a filter lets through; None for all other filters."""
    attribute = getattr(each, "attribute", ())
    if attribute not in (("partition",), ("offset",), ("timestamp",)):
        return None
    values = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if not known or len(known) < len(numbers):
        return None
    match each:
        case EqualTo() | EqualNullSafe() | In():
            return attribute[0], min(known), max(known)
        case GreaterThan():
            return attribute[0], known[0] + 1, UNBOUNDED
        case GreaterThanOrEqual():
            return attribute[0], known[0], UNBOUNDED
        case LessThan():
            return attribute[0], -UNBOUNDED, known[0] - 1
        case LessThanOrEqual():
            return attribute[0], -UNBOUNDED, known[0]
    return None


def _number(value: Any) -> int | None:
    """Whole numbers as they are, instants in microseconds. A time without a zone is no instant."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    return None
