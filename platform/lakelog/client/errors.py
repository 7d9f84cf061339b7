"""What a request failed of: the gateway's refusal, or a connection that did not hold, as one exception.

Owns the way back from the gateway's error replies to the rows of `lakelog.errors`, and the two facts that a retry
depends on: whether the same request may succeed later, and whether it may have been done already.
"""

from __future__ import annotations

from typing import Any

from lakelog.errors import ErrorCode, LakelogError

# What is meant by a status that comes without a name: from the door of the gateway, or from a proxy before it.
_CODE_OF_STATUS = {
    408: ErrorCode.REQUEST_TIMED_OUT,
    413: ErrorCode.RECORD_LIST_TOO_LARGE,
    429: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    502: ErrorCode.LEADER_NOT_AVAILABLE,
    503: ErrorCode.LEADER_NOT_AVAILABLE,
    504: ErrorCode.REQUEST_TIMED_OUT,
}
_RETRIABLE_STATUSES = frozenset({408, 429, 502, 503, 504})
# The gateway has no room. The same status with another code is the log's.
FULL_REPLY = 503


class RequestFailed(LakelogError):
    """A request to the gateway that failed.

    `status` is the HTTP status, `error_code` the number in the gateway's reply; both are None when no reply came.
    `retriable` says whether the same request may succeed later, `maybe_done` whether it may have been done.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        status: int | None = None,
        error_code: int | None = None,
        retriable: bool = False,
        maybe_done: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, message)
        self.status = status
        self.error_code = error_code
        self.maybe_done = maybe_done
        self.retry_after_s = retry_after_s
        self._retriable = retriable

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The keyword arguments live in __dict__, which pickle restores after it has called with these two.
        return type(self), (self.code, self.message), self.__dict__

    @property
    def retriable(self) -> bool:
        return self._retriable

    @property
    def unreachable(self) -> bool:
        """Whether there was nobody to hear the request."""
        return self.status is None and self.code is ErrorCode.LEADER_NOT_AVAILABLE


def refused(
    status: int,
    error_code: int | None,
    message: str,
    *,
    name: str | None = None,
    retry_after_s: float | None = None,
) -> RequestFailed:
    """What an error reply means. `name` is that of the log's own error, where it was the log that refused."""
    unexplained = ErrorCode.INVALID_REQUEST if status < 500 else ErrorCode.UNKNOWN_SERVER_ERROR
    code = ErrorCode.__members__.get(name or "") or _CODE_OF_STATUS.get(status, unexplained)
    return RequestFailed(
        code,
        message or f"the gateway answered with HTTP status {status}",
        status=status,
        error_code=error_code,
        retriable=status in _RETRIABLE_STATUSES,
        # A 4xx promises that nothing was done, and so does a gateway that is full. What the log reports and what a
        # proxy says promise nothing.
        maybe_done=status >= 500 and error_code != FULL_REPLY,
        retry_after_s=retry_after_s,
    )


def unreachable(url: str, reason: str) -> RequestFailed:
    """No connection was made, so the request was not received."""
    return RequestFailed(ErrorCode.LEADER_NOT_AVAILABLE, f"no gateway answers at {url}: {reason}", retriable=True)


def interrupted(url: str, reason: str) -> RequestFailed:
    """The connection ended between the request and its reply."""
    return RequestFailed(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the gateway at {url} gave no reply: {reason}",
        retriable=True,
        maybe_done=True,
    )


def not_understood(reason: str) -> RequestFailed:
    """A reply that does not say what a gateway says."""
    return RequestFailed(ErrorCode.UNKNOWN_SERVER_ERROR, f"the reply is not a gateway's: {reason}")
