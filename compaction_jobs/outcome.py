"""What a job did to one partition: the row of `__maintenance`, and of the table that a run prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def brief(error: BaseException) -> str:
    """An error in a cell of a table: its first line, or what a traceback of a task of Spark ends with."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if len(lines) > 1 and lines[1].startswith(": "):  # the bridge to Java says where it called, and then what happened
        return lines[1].removeprefix(": ")
    return lines[-1] if any(line.startswith("Traceback") for line in lines) else lines[0]
