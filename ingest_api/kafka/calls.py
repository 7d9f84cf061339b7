"""What a handler gets and gives: one request with all that surrounds it, and its reply, now or later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeAlias

from ingest_api.gateway import Gateway
from ingest_api.kafka.schemas import Message, Reply
from lakelog.errors import ErrorCode, LakelogError
from lakelog.flow import Share

NODE_ID = 0
# There is one leader, and the commit decides who it is: no epoch has ever ended.
LEADER_EPOCH = 0


@dataclass(frozen=True, slots=True)
class Node:
    """What this process tells clients of itself."""

    cluster_id: str
    advertised: tuple[str, int] | None = None


@dataclass(slots=True)
class Call:
    gateway: Gateway
    node: Node
    request: Message
    version: int
    client_id: str
    client_host: str
    # The address that the client has reached us at: what it is told to come back to, if nothing else is advertised.
    reached_at: tuple[str, int]
    # What the request has of the room for bodies. Who makes more of its bytes takes more, and gives that back.
    share: Share
    # What is given back once the reply has been sent, or will not be; for one that comes later, when it is on its way.
    until_sent: ExitStack = field(default_factory=ExitStack)

    @property
    def address(self) -> tuple[str, int]:
        return self.node.advertised or self.reached_at


@dataclass(frozen=True, slots=True)
class Later:
    """The request has its place in line, and the next one may be taken up; its reply is still to come. Nothing in here
    may keep the request, whose room is given back.

    `ready` tells whether `reply` would come without a wait. `abandon` is called instead of `reply`, or while it waits,
    when the client is gone.
    """

    ready: Callable[[], bool]
    reply: Callable[[], Awaitable[Reply | None]]
    abandon: Callable[[], None]


class Hangup(Exception):
    """The only answer that is left is to close the connection."""


# None is no reply at all, as a producer asks for that does not wait for acknowledgements.
Outcome: TypeAlias = Reply | Later | None
Handler: TypeAlias = Callable[[Call], Awaitable[Outcome]]


# Kafka has no such numbers, or its clients do not come back after them although they should.
_TRANSLATED = {
    ErrorCode.EXPECTED_OFFSET_MISMATCH: ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_TABLE: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
}


def error_number(error: LakelogError | ErrorCode) -> int:
    code = error.code if isinstance(error, LakelogError) else error
    return _TRANSLATED.get(code, code).number


def failed(error: LakelogError) -> dict[str, int | str | None]:
    """The fields that tell of an error, in the many replies that have both."""
    return {"error_code": error_number(error), "error_message": error.message}
