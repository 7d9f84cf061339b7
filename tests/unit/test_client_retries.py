"""Which failures a client bears with, how long, and how often."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lakelog.client.errors import RequestFailed, interrupted, refused, unreachable
from lakelog.client.retries import LONGEST_PAUSE_S, Attempts
from lakelog.errors import ErrorCode

URL = "http://gateway"


@pytest.mark.parametrize(
    ("failure", "again", "again_if_repeatable"),
    [
        (unreachable(URL, "refused"), True, True),
        (interrupted(URL, "reset"), False, True),
        (refused(429, 429, "no room"), True, True),
        (refused(503, 503, "too many requests"), True, True),  # the gateway's door, before anything was done
        (refused(503, 50003, "the store failed", name="KAFKA_STORAGE_ERROR"), False, True),
        (refused(504, 504, "not committed", name="REQUEST_TIMED_OUT"), False, True),
        (refused(502, None, ""), False, True),
        (refused(500, 50002, "broken"), False, False),
        (refused(404, 40401, "no topic", name="UNKNOWN_TOPIC_OR_PARTITION"), False, False),
        (refused(422, 422, "no JSON"), False, False),
    ],
    ids=lambda value: str(value),
)
def test_a_request_is_sent_again_if_it_may_succeed_and_does_no_harm(
    failure: RequestFailed, again: bool, again_if_repeatable: bool
) -> None:
    for repeatable, expected in ((False, again), (True, again_if_repeatable)):
        attempts = Attempts(100.0, 30.0, repeatable=repeatable)
        if expected:
            assert 0 < attempts.pause_after(failure, 100.0) < 1
        else:
            with pytest.raises(RequestFailed):
                attempts.pause_after(failure, 100.0)


def test_pauses_grow_to_a_limit_and_end_with_the_time() -> None:
    attempts, now_s, pauses = Attempts(0.0, 60.0, repeatable=True), 0.0, []
    with suppress(RequestFailed):
        while now_s < 1000:
            pauses.append(attempts.pause_after(unreachable(URL, "refused"), now_s))
            now_s += pauses[-1]
    assert max(pauses) <= LONGEST_PAUSE_S
    assert min(pauses[-5:]) >= LONGEST_PAUSE_S / 2
    assert pauses[0] < LONGEST_PAUSE_S / 20
    assert 60.0 - LONGEST_PAUSE_S <= now_s < 60.0


def test_a_gateway_that_says_when_to_come_again_is_listened_to() -> None:
    failure = refused(429, 429, "no room", retry_after_s=7)
    assert Attempts(0.0, 30.0, repeatable=False).pause_after(failure, 0.0) == 7
    with pytest.raises(RequestFailed):
        Attempts(0.0, 5.0, repeatable=False).pause_after(failure, 0.0)


def test_an_error_that_this_client_does_not_know_is_told_by_its_status() -> None:
    assert refused(422, 422, "new", name="INVENTED_LATER").code is ErrorCode.INVALID_REQUEST
    assert refused(500, None, "").code is ErrorCode.UNKNOWN_SERVER_ERROR
