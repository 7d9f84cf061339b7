"""Whether and when a failed request is sent again. Pure: the time is handed in, and waiting is for the clients."""

from __future__ import annotations

import random

from lakelog.client.errors import RequestFailed

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class Attempts:
    """The tries of one request, for `timeout_s`. `repeatable` is one that does no harm when it is done twice."""

    def __init__(self, now_s: float, timeout_s: float, *, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._deadline_s = now_s + timeout_s
        self._pause_s = FIRST_PAUSE_S

    def pause_after(self, failure: RequestFailed, now_s: float) -> float:
        """How long to wait before the next try; raises the failure when there is not to be one."""
        if not failure.retriable or (failure.maybe_done and not self._repeatable):
            raise failure
        # Half of each pause is left to chance, so that clients that failed together do not come back together.
        pause_s = max(self._pause_s * random.uniform(0.5, 1.0), failure.retry_after_s or 0.0)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        if now_s + pause_s >= self._deadline_s:
            raise failure
        return pause_s
