"""Whether and when a failed request is sent again. Pure: the time is handed in, and waiting is for the transports."""

from __future__ import annotations

import random
from dataclasses import dataclass

from lakelog.client.errors import RequestFailed


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """For how long a request is tried, and how long the pauses between the tries are."""

    timeout_s: float = 30.0
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0


class Attempts:
    """The tries of one request. `repeatable` is one that does no harm when it is done twice."""

    def __init__(self, policy: RetryPolicy, *, repeatable: bool, now_s: float) -> None:
        self._policy = policy
        self._repeatable = repeatable
        self._deadline_s = now_s + policy.timeout_s
        self._pause_s = policy.first_pause_s

    def pause_after(self, failure: RequestFailed, now_s: float) -> float:
        """How long to wait before the next try; raises the failure when there is not to be one."""
        if not failure.retriable or (failure.maybe_done and not self._repeatable):
            raise failure
        # Half of each pause is left to chance, so that clients that failed together do not come back together.
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, self._policy.longest_pause_s)
        pause_s = max(pause_s, failure.retry_after_s or 0.0)
        if now_s + pause_s >= self._deadline_s:
            raise failure
        return pause_s
