"""From records to reports: what v3 says of each record that was sent, in the order of sending.

Records that arrive together are appended together. The log takes such a group whole or not at all; where it refuses one
because of some record in it, the group is halved until those records are found, and only they are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from ingest_api.errors import HttpError
from ingest_api.v3.errors import as_v3
from ingest_api.v3.records_in import NewRecord, Written, as_records
from lakelog.errors import ErrorCode, LakelogError, UnknownPartition
from lakelog.log.stamp import Appended
from lakelog.model.batch import ListRecords

DELIVERED = 200

Append: TypeAlias = Callable[[ListRecords], Awaitable[Appended]]
Report: TypeAlias = dict[str, Any]

_OF_ONE_RECORD = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)


async def deliver(
    records: Sequence[NewRecord | HttpError], append: Append, cluster_id: str, topic: str
) -> list[Report]:
    """A report for each. A record that could not even be read is an error from the beginning."""
    readable = [each for each in records if isinstance(each, NewRecord)]
    reports = iter(await _delivered(readable, append, {"cluster_id": cluster_id, "topic_name": topic}))
    return [next(reports) if isinstance(each, NewRecord) else refusal(each) for each in records]


def refusal(error: HttpError) -> Report:
    return {"error_code": error.error_code or error.status, "message": error.message}


async def _delivered(records: Sequence[NewRecord], append: Append, place: Report) -> list[Report]:
    if not records:
        return []
    try:
        appended = await append(as_records(records))
    except LakelogError as error:
        if len(records) == 1 or not (error.code in _OF_ONE_RECORD or isinstance(error, UnknownPartition)):
            return [_refused_alone(error)] * len(records)
        half = len(records) // 2
        return [*await _delivered(records[:half], append, place), *await _delivered(records[half:], append, place)]
    return list(_reports(records, appended, place))


def _refused_alone(error: LakelogError) -> Report:
    report = refusal(as_v3(error))
    # Where it stood among those that were appended together says nothing to its sender.
    return {**report, "message": report["message"].replace("record 0 of the request", "the record", 1)}


def _reports(records: Sequence[NewRecord], appended: Appended, place: Report) -> Iterable[Report]:
    places = zip(records, appended.partitions.tolist(), appended.offsets.tolist(), strict=True)
    for record, partition, offset in places:
        time_ms = record.timestamp_ms if appended.timestamp_ms is None else appended.timestamp_ms
        yield {
            "error_code": DELIVERED,
            **place,
            "partition_id": partition,
            "offset": offset,
            "timestamp": _written_time(time_ms),
            "key": _sizes(record.key),
            "value": _sizes(record.value),
        }


def _sizes(part: Written | None) -> dict[str, Any] | None:
    return None if part is None else {"type": part.form, "size": part.size}


def _written_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
