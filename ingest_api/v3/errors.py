"""Which status and which of v3's codes an error of the log becomes. v2 has other codes for the same errors."""

from __future__ import annotations

from ingest_api.errors import KAFKA_RETRIABLE_ERROR, HttpError, as_http
from lakelog.errors import ErrorCode, LakelogError

PREFIX = "/v3/"
BAD_REQUEST = 40002
UNKNOWN_TOPIC_OR_PARTITION = 40403
INVALID_PAYLOAD = 42206
INVALID_BATCH = 42208

_BAD_REQUESTS = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def as_v3(error: LakelogError) -> HttpError:
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return HttpError(404, error.message, UNKNOWN_TOPIC_OR_PARTITION, error.code)
    if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return HttpError(404, error.message, log_error=error.code)
    if error.code in _BAD_REQUESTS:
        return HttpError(400, error.message, BAD_REQUEST, error.code)
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return HttpError(504, error.message, KAFKA_RETRIABLE_ERROR, error.code)
    return as_http(error)


def not_found(what: str) -> HttpError:
    return HttpError(404, f"{what} cannot be found")
