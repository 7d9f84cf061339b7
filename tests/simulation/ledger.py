"""What clients of a simulated warehouse were told, and whether the log in the end agrees with it.

Knows nothing of how the log works: it compares what was sent, answered and read with what is there.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lakelog.log.stamp import Appended
from lakelog.model.batch import ListRecords

Place: TypeAlias = tuple[int, int]  # partition, offset
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a client made it. Its value is unique, so it is known again wherever it turns up."""

    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    def same_as(self, row: Record) -> bool:
        mine = (self.value, self.key, self.headers)
        return mine == (row.value, row.key, row.headers) and self.timestamp_ms in (None, row.timestamp_ms)


@dataclass(slots=True)
class Batch:
    """One request of a client, how often it was sent, and what became of that."""

    producer: str
    records: tuple[Record, ...]
    partition: int | None = None  # where the client wants it
    idempotent: bool = False
    attempts: int = 0
    refusals: int = 0  # attempts that the log said it has nothing of
    places: list[tuple[Place, ...]] = field(default_factory=list)  # one per acknowledgement

    def acknowledge(self, appended: Appended) -> None:
        places = zip(appended.partitions.tolist(), appended.offsets.tolist(), strict=True)
        self.places.append(tuple((int(partition), int(offset)) for partition, offset in places))

    def as_request(self) -> ListRecords:
        return ListRecords(
            values=[record.value for record in self.records],
            size_bytes=sum(len(record.value) + len(record.key or b"") for record in self.records),
            keys=[record.key for record in self.records],
            headers=[record.headers or None for record in self.records],
            timestamps_ms=[record.timestamp_ms for record in self.records],
            partitions=None if self.partition is None else [self.partition] * len(self.records),
        )


Log: TypeAlias = dict[int, list[tuple[int, Record]]]  # per partition, in the order in which it was read


@dataclass(slots=True)
class Ledger:
    """`batches` stand in the order in which each producer sent them; `sightings` is what each reader saw."""

    batches: list[Batch] = field(default_factory=list)
    sightings: dict[str, list[tuple[Place, Record]]] = field(default_factory=lambda: defaultdict(list))
    deletes_asked: dict[int, int] = field(default_factory=dict)
    deletes_done: dict[int, int] = field(default_factory=dict)

    def check(self, log: Log, log_starts: Sequence[int], ends: Sequence[int]) -> None:
        """Raise AssertionError where the log, as somebody new reads it, breaks a promise."""
        rows = {(partition, offset): row for partition, found in log.items() for offset, row in found}
        self._check_offsets(log, log_starts, ends)
        self._check_acknowledged(rows, log_starts)
        self._check_copies(rows, log_starts)
        self._check_order()
        self._check_sightings(rows, log_starts)

    def _check_offsets(self, log: Log, log_starts: Sequence[int], ends: Sequence[int]) -> None:
        for partition, (start, end) in enumerate(zip(log_starts, ends, strict=True)):
            assert [offset for offset, _ in log.get(partition, [])] == list(range(start, end)), "dense and in order"
            assert self.deletes_done.get(partition, 0) <= start <= self.deletes_asked.get(partition, 0), "log start"

    def _check_acknowledged(self, rows: dict[Place, Record], log_starts: Sequence[int]) -> None:
        for batch in self.batches:
            for places in batch.places:
                assert len(places) == len(batch.records)
                for (partition, offset), record in zip(places, batch.records, strict=True):
                    assert batch.partition in (None, partition), "it goes where its sender wants it"
                    assert offset >= 0, "an acknowledgement names an offset"
                    if offset >= log_starts[partition]:
                        row = rows.get((partition, offset))
                        assert row is not None, f"{record.value!r} was acknowledged at {partition, offset} and is lost"
                        assert record.same_as(row), f"{record} was acknowledged at {partition, offset}, there is {row}"
            if batch.idempotent:
                assert len(set(batch.places)) <= 1, f"a repetition gets its first offsets: {batch.places}"

    def _check_copies(self, rows: dict[Place, Record], log_starts: Sequence[int]) -> None:
        copies = Counter(row.value for row in rows.values())
        for batch in self.batches:
            most = batch.attempts - batch.refusals
            if batch.idempotent:
                most = min(most, 1)
            counts = {copies.pop(record.value, 0) for record in batch.records}
            assert max(counts) <= most, f"{batch}: {max(counts)} copies, and it was sent {most} times"
            assert len(counts) == 1 or self.deletes_asked, f"all of a request or nothing of it: {batch}"
        assert not copies, f"nobody sent {copies}"

    def _check_order(self) -> None:
        by_producer: dict[str, list[Batch]] = defaultdict(list)
        for batch in self.batches:
            if batch.places:
                by_producer[batch.producer].append(batch)
        for sent in by_producer.values():
            last: dict[int, int] = {}
            for batch in sent:
                for partition, offset in batch.places[0]:
                    assert offset > last.get(partition, -1), f"{batch} came before what was sent before it"
                    last[partition] = offset

    def _check_sightings(self, rows: dict[Place, Record], log_starts: Sequence[int]) -> None:
        seen_by_anyone: dict[Place, Record] = {}
        for reader, sightings in self.sightings.items():
            last: dict[int, int] = {}
            for place, row in sightings:
                partition, offset = place
                assert seen_by_anyone.setdefault(place, row) == row, f"{reader} saw something else at {place}"
                assert offset > last.get(partition, -1), f"{reader} saw {place} after {last.get(partition)}"
                gap_allowed = offset <= self.deletes_asked.get(partition, 0)
                assert offset == last.get(partition, -1) + 1 or gap_allowed, f"{reader} skipped to {place}"
                last[partition] = offset
                assert offset < log_starts[partition] or rows.get(place) == row, f"{reader} saw {row} at {place}"


def check_history(created: Iterable[tuple[str, bytes]]) -> None:
    """The table's own log, read as any Delta reader would: each version once, and appends end to end."""
    commits = [(path, data) for path, data in created if path.endswith(".json")]
    versions = [path for path, _ in commits]
    assert len(set(versions)) == len(versions), "somebody committed into a version that had been cleaned away"
    live: set[str] = set()
    ends: dict[str, int] = {}
    table_id = ""
    for _, data in sorted(commits):
        actions: list[dict[str, Any]] = [json.loads(line) for line in data.splitlines()]
        for action in actions:
            if "metaData" in action and action["metaData"]["id"] != table_id:
                table_id, ends, live = action["metaData"]["id"], {}, set()
        for removed in (action["remove"] for action in actions if "remove" in action):
            assert removed["path"] in live or removed["dataChange"], f"{removed['path']} was removed and not there"
            live.discard(removed["path"])
        for added in (action["add"] for action in actions if "add" in action):
            assert added["path"] not in live
            live.add(added["path"])
            if added["dataChange"]:
                stats, partition = json.loads(added["stats"]), added["partitionValues"]["partition"]
                first, last = stats["minValues"]["offset"], stats["maxValues"]["offset"]
                assert first == ends.get(partition, 0), f"{added['path']} does not begin where its partition ended"
                assert stats["numRecords"] == last - first + 1
                ends[partition] = last + 1
