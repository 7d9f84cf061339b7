"""Errors as replies: which status and which of v2's codes an error of the log becomes, and the body that carries it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from lakelog.errors import ErrorCode, LakelogError, UnknownPartition

ILLEGAL_STATE = 40903
KAFKA_ERROR = 50002
KAFKA_RETRIABLE_ERROR = 50003
RETRY_AFTER_SECONDS = 1


@dataclass(slots=True)
class HttpError(Exception):
    """A request that is refused: by HTTP alone, or by the log for `log_error`."""

    status: int
    message: str
    error_code: int | None = None
    log_error: ErrorCode | None = None


_STATUS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: 416,
    ErrorCode.REQUEST_TIMED_OUT: 504,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 422,
    ErrorCode.INVALID_PARTITIONS: 422,
    ErrorCode.INVALID_REPLICATION_FACTOR: 422,
    ErrorCode.INVALID_CONFIG: 422,
    ErrorCode.INVALID_REQUEST: 422,
    ErrorCode.INVALID_REQUIRED_ACKS: 422,
    ErrorCode.INVALID_RECORD: 422,
    ErrorCode.INVALID_TIMESTAMP: 422,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: 409,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: 409,
    ErrorCode.INVALID_PRODUCER_EPOCH: 409,
    ErrorCode.UNKNOWN_PRODUCER_ID: 409,
    ErrorCode.UNSUPPORTED_TABLE: 409,
    ErrorCode.INVALID_SESSION_TIMEOUT: 422,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: 422,
    ErrorCode.GROUP_MAX_SIZE_REACHED: 429,
    ErrorCode.EXPECTED_OFFSET_MISMATCH: 412,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.INVALID_GROUP_ID: 422,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
}
# The group is not as the request has it: a member was dropped, or something went to another one.
_ILLEGAL_STATES = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)


def as_http(error: LakelogError) -> HttpError:
    if error.code in _ILLEGAL_STATES:
        return HttpError(409, error.message, ILLEGAL_STATE, error.code)
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return HttpError(404, error.message, 40402 if isinstance(error, UnknownPartition) else 40401, error.code)
    if error.code in _STATUS:
        return HttpError(_STATUS[error.code], error.message, log_error=error.code)
    if error.retriable:
        return HttpError(503, error.message, KAFKA_RETRIABLE_ERROR, error.code)
    return HttpError(500, error.message, KAFKA_ERROR, error.code)


def unexpected() -> HttpError:
    """What is said of a failure that nobody foresaw. How it came about is for the log alone."""
    return HttpError(500, "the gateway failed; its log says how")


def error_response(error: HttpError) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if error.status in (429, 503) else {}
    if error.log_error is not None:
        headers["Lakelog-Error"] = error.log_error.name
    return Response(error_body(error), error.status, headers, "application/json")


def error_body(error: HttpError) -> bytes:
    return msgspec.json.encode({"error_code": error.error_code or error.status, "message": error.message})
