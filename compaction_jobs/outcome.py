"""What a job did to one partition: the row of `__maintenance`, and of the table that a run prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compaction_jobs.sealed import total_bytes, total_records
from lakelog.model.segment import Segment

WHOLE_TOPIC = -1  # in the place of a partition: the topic's log, or a topic that could not be looked at


@dataclass(frozen=True, slots=True)
class Amount:
    """Some files of a partition, in figures."""

    files: int = 0
    bytes: int = 0
    records: int = 0

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Amount:
        return cls(len(segments), total_bytes(segments), total_records(segments))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.files + other.files, self.bytes + other.bytes, self.records + other.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`before` and `after` are the files that the run took up and those that it put in their place."""

    job: str
    topic: str
    partition: int
    reason: str
    before: Amount = Amount()
    after: Amount = Amount()
    cleaned_up_to: int | None = None
    log_start: int | None = None
    seconds: float = 0.0
    error: str | None = None


# Whom a job tells what became of a partition, as soon as it knows.
Tell: TypeAlias = Callable[[Outcome], None]


class Outcomes:
    """What a job has told so far: one for each partition, also if its files were done in several steps."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, int], Outcome] = {}

    def tell(self, outcome: Outcome) -> None:
        place = (outcome.topic, outcome.partition)
        so_far = self._by_place.get(place)
        self._by_place[place] = outcome if so_far is None else _together(so_far, outcome)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._by_place.values())

    def __len__(self) -> int:
        return len(self._by_place)


def _together(a: Outcome, b: Outcome) -> Outcome:
    return Outcome(
        job=a.job,
        topic=a.topic,
        partition=a.partition,
        reason=a.reason if b.reason in a.reason else "; ".join(filter(None, (a.reason, b.reason))),
        before=a.before + b.before,
        after=a.after + b.after,
        cleaned_up_to=b.cleaned_up_to if a.cleaned_up_to is None else a.cleaned_up_to,
        log_start=b.log_start if a.log_start is None else a.log_start,
        seconds=max(a.seconds, b.seconds),
        error=a.error or b.error,
    )


def partition_name(topic: str, partition: int) -> str:
    """As Kafka writes it: orders-0. What concerns all of a topic has its name alone."""
    return topic if partition == WHOLE_TOPIC else f"{topic}-{partition}"


def brief(error: BaseException) -> str:
    """An error in a cell of a table: its first line, or what a traceback of a task of Spark ends with."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if len(lines) > 1 and lines[1].startswith(": "):  # the bridge to Java says where it called, and then what happened
        return lines[1].removeprefix(": ")
    return lines[-1] if any(line.startswith("Traceback") for line in lines) else lines[0]
