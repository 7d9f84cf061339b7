"""Stamping a group over columns decides as one record after the other would be decided: same places, same refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config import TopicConfig
from lakelog.errors import ErrorCode, LakelogError
from lakelog.log import stamp as stamp_module
from lakelog.log.partitioner import partition_by_key
from lakelog.log.producers import ProducerBatch, ProducerStates, WrittenBatch, in_order
from lakelog.log.stamp import LATEST_TIMESTAMP_US, Appended, LogEnd, Request, StampedGroup, stamp
from lakelog.model.batch import STORED_SCHEMA, AnyRecords, ListRecords, combine

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def records(
    values: list[bytes | None],
    *,
    keys: list[bytes | None] | None = None,
    times_ms: list[int | None] | None = None,
    partitions: list[int] | None = None,
) -> ListRecords:
    size = sum(len(value or b"") for value in values) + sum(len(key or b"") for key in keys or [])
    return ListRecords(values, size, keys=keys, timestamps_ms=times_ms, partitions=partitions)


def log_end(next_offsets: list[int], **config: str) -> LogEnd:
    terms = TopicConfig.parse({name.replace("_", "."): text for name, text in config.items()})
    return LogEnd(next_offsets, ProducerStates(), terms)


def places(outcome: Any) -> list[tuple[int, int]]:
    assert isinstance(outcome, Appended), outcome
    return list(zip(outcome.partitions.tolist(), outcome.offsets.tolist(), strict=True))


def code(outcome: Any) -> ErrorCode:
    assert isinstance(outcome, LakelogError), outcome
    return outcome.code


def rows_of(group: StampedGroup) -> dict[tuple[int, int], tuple[int, bytes | None, bytes | None]]:
    """What is to be written, by place."""
    found: dict[tuple[int, int], tuple[int, bytes | None, bytes | None]] = {}
    for part in group.appends:
        assert part.rows.schema.equals(STORED_SCHEMA)
        offsets = part.rows.column("offset").to_pylist()
        assert offsets == list(range(part.base_offset, part.end_offset))
        times = part.rows.column("timestamp").cast(pa.int64()).to_pylist()
        keys, values = part.rows.column("key").to_pylist(), part.rows.column("value").to_pylist()
        for offset, *row in zip(offsets, times, keys, values, strict=True):
            found[part.partition, offset] = (row[0] // 1000, row[1], row[2])
    return found


@dataclass
class Reference:
    """One request after the other, one record after the other."""

    next_offsets: list[int]
    config: TopicConfig
    rows: dict[tuple[int, int], tuple[int, bytes | None, bytes | None]] = field(default_factory=dict)

    def append(self, request: Request) -> list[tuple[int, int]] | set[ErrorCode]:
        batch = combine([request.records])
        found: list[tuple[int, int]] = []
        ends, faults, taken = list(self.next_offsets), set[ErrorCode](), []
        for index, row in enumerate(batch.batch.to_pylist()):
            explicit = -1 if batch.partitions is None else int(batch.partitions[index])
            if explicit >= 0:
                partition = explicit
            elif row["key"] is not None:
                partition = int(partition_by_key(pa.array([row["key"]], pa.binary()), len(ends), -1)[0])
            else:
                partition = request.keyless_partition % len(ends)
            time_ms = NOW_MS if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
            if self.config.message_timestamp_type == "LogAppendTime":
                time_ms = NOW_MS
            if not 0 <= partition < len(ends):
                faults.add(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            if len(row["key"] or b"") + len(row["value"] or b"") > self.config.max_message_bytes:
                faults.add(ErrorCode.MESSAGE_TOO_LARGE)
            if self.config.compacted and row["key"] is None:
                faults.add(ErrorCode.INVALID_RECORD)
            if time_ms > NOW_MS + self.config.message_timestamp_after_max_ms:
                faults.add(ErrorCode.INVALID_TIMESTAMP)
            found.append((partition, ends[partition]))
            taken.append((time_ms, row["key"], row["value"]))
            ends[partition] += 1
        for partition, expected in (request.expected_offsets or {}).items():
            if not faults and expected != self.next_offsets[partition]:
                return {ErrorCode.EXPECTED_OFFSET_MISMATCH}
        if faults:
            return faults
        self.next_offsets = ends
        self.rows |= dict(zip(found, taken, strict=True))
        return found


SMALL = st.none() | st.binary(max_size=6)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    count = draw(st.integers(1, 6))
    per_record = st.lists
    body: AnyRecords = records(
        draw(per_record(SMALL, min_size=count, max_size=count)),
        keys=draw(st.none() | per_record(SMALL, min_size=count, max_size=count)),
        times_ms=draw(
            st.none()
            | per_record(
                st.none() | st.sampled_from([0, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1]),
                min_size=count,
                max_size=count,
            )
        ),
        partitions=draw(st.none() | per_record(st.sampled_from([-1, 0, 1, 2, 7]), min_size=count, max_size=count)),
    )
    expected = draw(st.none() | st.none() | st.dictionaries(st.integers(0, 2), st.integers(0, 12), max_size=2))
    return Request(body, draw(st.integers(0, 5)), expected_offsets=expected)


@given(
    st.lists(requests(), min_size=1, max_size=8),
    st.lists(st.integers(0, 10), min_size=3, max_size=3),
    st.sampled_from([{}, {"max_message_bytes": "8"}, {"cleanup_policy": "compact"}]),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
)
def test_a_group_is_decided_as_one_record_after_the_other_is(
    group: list[Request], ends: list[int], config: dict[str, str], clock: str
):
    end = log_end(ends, message_timestamp_type=clock, **config)
    reference = Reference(list(ends), end.config)
    stamped = stamp(group, end, NOW_MS)
    assert len(stamped.outcomes) == len(group)
    for request, outcome in zip(group, stamped.outcomes, strict=True):
        expected = reference.append(request)
        if isinstance(expected, set):
            assert code(outcome) in expected
        else:
            assert places(outcome) == expected
            assert isinstance(outcome, Appended)
            assert outcome.timestamp_ms == (NOW_MS if clock == "LogAppendTime" else None)
    assert rows_of(stamped) == reference.rows
    assert list(end.next_offsets) == ends


@pytest.mark.parametrize(
    ("request_", "config", "error", "message"),
    [
        (records([b"a", b"b"], partitions=[0, 3]), {}, "UNKNOWN_TOPIC_OR_PARTITION", "record 1 of .* has 0 to 1"),
        (records([b"123456789"]), {"max_message_bytes": "8"}, "MESSAGE_TOO_LARGE", "record 0 .* which is 8"),
        (
            records([b"a", b"b"], keys=[b"k", None]),
            {"cleanup_policy": "compact"},
            "INVALID_RECORD",
            "record 1 .* no key",
        ),
        (records([b"a"], times_ms=[NOW_MS + HOUR_MS + 1]), {}, "INVALID_TIMESTAMP", "after.max.ms"),
        (records([b"a"], times_ms=[-1]), {}, "INVALID_TIMESTAMP", "outside of 0"),
        (
            records([b"a"], times_ms=[NOW_MS - 11]),
            {"message_timestamp_before_max_ms": "10"},
            "INVALID_TIMESTAMP",
            "before.max.ms",
        ),
    ],
)
def test_a_bad_record_is_named_and_its_neighbours_in_the_group_go_on(
    request_: ListRecords, config: dict[str, str], error: str, message: str
):
    good = Request(records([b"ok"], keys=[b"k"], partitions=[1]))
    stamped = stamp([good, Request(request_), good], log_end([5, 9], **config), NOW_MS)
    assert places(stamped.outcomes[0]) == [(1, 9)]
    with pytest.raises(LakelogError, match=message):
        raise stamped.outcomes[1] if isinstance(stamped.outcomes[1], LakelogError) else AssertionError
    assert code(stamped.outcomes[1]) is ErrorCode[error]
    assert places(stamped.outcomes[2]) == [(1, 10)]
    assert len(rows_of(stamped)) == 2


def test_a_request_is_refused_for_its_first_bad_record_however_many_there_are(monkeypatch: pytest.MonkeyPatch):
    made = 0

    class Counted(LakelogError):
        def __init__(self, code: ErrorCode, message: str) -> None:
            nonlocal made
            made += 1
            super().__init__(code, message)

    monkeypatch.setattr(stamp_module, "LakelogError", Counted)
    good, bad = list[bytes | None]([b"x"]), list[bytes | None]([b"too large"] * 50)
    requests = [Request(records(values)) for values in (bad, good + bad, good, [], good * 3 + bad)]
    group = stamp(requests, log_end([0], max_message_bytes="8"), NOW_MS)
    told = [outcome.message[:8] if isinstance(outcome, LakelogError) else None for outcome in group.outcomes]
    assert told == ["record 0", "record 1", None, None, "record 3"]
    assert made == 3


def test_no_time_is_taken_that_delta_could_not_write_down():
    end = log_end([0], message_timestamp_after_max_ms=str(2**62))
    latest_ms = LATEST_TIMESTAMP_US // 1000
    taken = stamp([Request(records([b"a"], times_ms=[latest_ms]))], end, NOW_MS)
    assert places(taken.outcomes[0]) == [(0, 0)]
    refused = stamp([Request(records([b"a"], times_ms=[latest_ms + 1]))], end, NOW_MS)
    assert code(refused.outcomes[0]) is ErrorCode.INVALID_TIMESTAMP


def producing(
    sequence: int, values: list[bytes | None], *, stream: int = -1, partitions: list[int] | None = None
) -> Request:
    return Request(records(values, partitions=partitions), 0, ProducerBatch(1, 0, sequence, stream))


def applied(stamped: StampedGroup, end: LogEnd) -> LogEnd:
    """The log's end when the group has been committed."""
    ends, producers = list(end.next_offsets), ProducerStates()
    for batch in end.producers:
        producers.apply(batch)
    for part in stamped.appends:
        ends[part.partition] = part.end_offset
    for batch in in_order(batch for part in stamped.appends for batch in part.written):
        producers.apply(batch)
    return LogEnd(ends, producers, end.config)


def test_a_repetition_answers_with_its_first_offsets_in_the_same_group_and_later():
    end = log_end([5, 9])
    spread = producing(0, [b"a", b"b", b"c"], partitions=[1, 0, 1])
    stamped = stamp([spread, spread], end, NOW_MS)
    first = [(1, 9), (0, 5), (1, 10)]
    assert [places(outcome) for outcome in stamped.outcomes] == [first, first]
    assert [getattr(outcome, "duplicate", None) for outcome in stamped.outcomes] == [False, True]
    assert len(rows_of(stamped)) == 3
    again = stamp([spread], applied(stamped, end), NOW_MS)
    assert places(again.outcomes[0]) == first
    assert again.appends == []


def test_a_repetition_of_what_had_an_expected_offset_is_still_a_repetition():
    once = Request(records([b"a"]), 0, ProducerBatch(1, 0, 0), expected_offsets={0: 0})
    stamped = stamp([once, once], log_end([0]), NOW_MS)
    assert [places(outcome) for outcome in stamped.outcomes] == [[(0, 0)], [(0, 0)]]


def test_a_gap_in_a_producers_count_takes_nothing_from_the_rest_of_the_group():
    stamped = stamp(
        [producing(0, [b"a"]), producing(5, [b"lost"]), producing(1, [b"b"]), Request(records([b"c"]))],
        log_end([0]),
        NOW_MS,
    )
    assert code(stamped.outcomes[1]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [places(stamped.outcomes[n]) for n in (0, 2, 3)] == [[(0, 0)], [(0, 1)], [(0, 2)]]
    assert [row[2] for row in rows_of(stamped).values()] == [b"a", b"b", b"c"]


def test_only_the_batches_that_a_producer_will_be_remembered_by_are_noted():
    end = log_end([0])
    stamped = stamp([producing(n, [b"x"]) for n in range(300)], end, NOW_MS)
    (part,) = stamped.appends
    assert [batch.sequence for batch in part.written] == [295, 296, 297, 298, 299]


def test_what_is_noted_tells_the_order_of_batches_that_share_no_partition():
    end, notes = log_end([90, 3]), list[WrittenBatch]()
    for sequence in (0, 2, 4):
        pair = [producing(sequence + n, [b"x"], partitions=[(sequence // 2 + n) % 2]) for n in (0, 1)]
        group = stamp([*pair, Request(records([b"another's"]))], end, NOW_MS - sequence)
        notes += [batch for part in group.appends for batch in part.written]
        end = applied(group, end)
    assert [batch.sequence for batch in in_order(reversed(notes))] == list(range(6))


def test_a_count_per_partition_refuses_records_for_others():
    stamped = stamp([producing(0, [b"a", b"b"], stream=1, partitions=[1, 0])], log_end([0, 0]), NOW_MS)
    assert code(stamped.outcomes[0]) is ErrorCode.INVALID_REQUEST
    assert stamped.appends == []


def test_expected_offsets_see_the_requests_before_them_in_the_group():
    def conditional(offset: int) -> Request:
        return Request(records([b"x"]), 0, expected_offsets={0: offset})

    stamped = stamp([conditional(7), conditional(7), conditional(8)], log_end([7]), NOW_MS)
    assert places(stamped.outcomes[0]) == [(0, 7)]
    assert code(stamped.outcomes[1]) is ErrorCode.EXPECTED_OFFSET_MISMATCH
    assert places(stamped.outcomes[2]) == [(0, 8)]


@pytest.mark.parametrize("partition", [-1, 2])
def test_an_offset_expected_of_a_partition_that_is_not_there(partition: int):
    stamped = stamp([Request(records([b"x"]), 0, expected_offsets={partition: 0})], log_end([0, 0]), NOW_MS)
    assert code(stamped.outcomes[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=12))
def test_runs_of_rows_keep_their_order_in_every_partition(runs: list[tuple[int, int]]):
    chosen = [partition for partition, length in runs for _ in range(length)]
    values: list[bytes | None] = [str(row).encode() for row in range(len(chosen))]
    group = stamp([Request(records(values, partitions=chosen))], log_end([5, 6, 7]), NOW_MS)
    for part in group.appends:
        expected = [value for value, partition in zip(values, chosen, strict=True) if partition == part.partition]
        assert part.rows.column("value").to_pylist() == expected
    written = rows_of(group)
    assert [written[place][2] for place in places(group.outcomes[0])] == values


@given(st.integers(1, 100), st.integers(1, 12))
def test_what_a_partition_writes_is_cut_into_neighbours(count: int, pieces: int):
    batch = ProducerBatch(1, epoch=0, sequence=0)
    (whole,) = stamp([Request(records([b"x"] * count), producer=batch)], log_end([10]), NOW_MS).appends
    parts = whole.cut(pieces)
    assert len(parts) <= pieces
    assert pa.Table.from_batches([part.rows for part in parts]).equals(pa.Table.from_batches([whole.rows]))
    assert [part.base_offset for part in parts] == [part.rows.column("offset")[0].as_py() for part in parts]
    assert [part.written for part in parts] == [()] * (len(parts) - 1) + [whole.written]
