"""What is asked of the group coordinator, and what it answers.

Owns the values that go in and out. They are the same for members that speak Kafka's protocol, whose leader divides the
partitions, and for those that the coordinator serves itself (HTTP consumers). Members of Kafka's newer protocol, served
as well, put all that they have to say into one request of their own. How requests travel (a socket, an HTTP request)
must not be known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from consumer_groups.assignors import TopicPartition
from consumer_groups.state import Fact, GroupType, Phase, Protocol, Subscription
from lakelog.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Become a member, or say as one that you are still there or want something else.

    A member of Kafka's protocol names `protocols` with metadata. A served member names a `subscription` instead, and in
    `protocols` only the assignors that it agrees to, best first. `new_member_id` is the id that the member gets
    if it has none yet: ids are drawn outside (by the service, where it is left out), because nothing in here is random.
    """

    group_id: str
    new_member_id: str = ""
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = "consumer"
    protocols: tuple[Protocol, ...] = ()
    subscription: Subscription | None = None
    # Kafka's second step (JoinGroup v4): a member is told its id first, and only counts when it comes with it.
    member_id_required: bool = False
    # Whether a leader that gets its old assignment back understands that it need not assign (JoinGroup v9).
    knows_skip_assignment: bool = False

    @property
    def served(self) -> bool:
        return self.subscription is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """Ask for one's assignment; the leader brings everyone's. Only for members of Kafka's protocol."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Say that one is alive, and which generation one has taken in.

    A served member that names a generation says by it: I have let go of all that this generation did not give me.
    """

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """All that a member of Kafka's newer protocol says: that it comes, is there, wants, has let go, and goes.

    `epoch` is the one that it was told last, `JOINS`, `LEAVES` or `GOES_AWAY`. What is None is as it was before. An
    empty `pattern` is none. `owned` are the partitions that it has now, of those that it was told.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: tuple[TopicPartition, ...] | None = None

    @property
    def says_all(self) -> bool:
        """Whether it leaves nothing out, as one that does not know what has come through."""
        subscribes = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms is not None and subscribes and self.owned is not None


# In the place of an epoch: to become a member, to be none any more, and to be away for a while as a static one.
JOINS, LEAVES, GOES_AWAY = 0, -1, -2


@dataclass(frozen=True, slots=True)
class Leaver:
    """One who leaves: by member id, or by static instance id alone."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group_id: str
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    group_id: str


Request: TypeAlias = JoinGroup | SyncGroup | Heartbeat | ConsumerHeartbeat | LeaveGroup | DeleteGroup


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader must know of a member to assign to it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """`members` is for the leader alone, `assignment` for a served member: what it may read now."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False
    assignment: tuple[TopicPartition, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str = ""
    protocol: str = ""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """For a served member: the generation to take in, and what it may read in it."""

    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    assignment: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    """The epoch to go on with. `assignment` is what the member is to have now, or None if that is what it was told."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    assignment: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """One error per leaver, in the order of the request."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class DeleteReply:
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Parked:
    """The reply is not there yet: it comes under this ticket, in `released` of some later outcome."""

    ticket: int


Reply: TypeAlias = JoinReply | SyncReply | HeartbeatReply | ConsumerHeartbeatReply | LeaveReply | DeleteReply


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request, a tick or a change of topics led to.

    The facts must be on record before any reply goes out. `woken` are (group, member) of served members for whom a
    heartbeat would bring something new: a poll that waits for them should send one.
    """

    reply: Reply | Parked | None
    released: tuple[tuple[int, JoinReply | SyncReply], ...]
    facts: tuple[Fact, ...]
    woken: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """`assignment` is what the member's generation gives it; empty where only its leader could tell.

    `epoch`, `target` and `subscription` are there for served members.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    served: bool
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    epoch: int
    subscription: Subscription | None
    metadata: bytes
    assignment_bytes: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    phase: Phase
    type: GroupType = GroupType.CLASSIC
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    changed_ms: int = 0
    members: tuple[MemberDescription, ...] = ()

    @property
    def state(self) -> str:
        return state_name(self.type, self.phase)


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    phase: Phase
    type: GroupType = GroupType.CLASSIC

    @property
    def state(self) -> str:
        return state_name(self.type, self.phase)


_CONSUMER_STATES = {Phase.PREPARING_REBALANCE: "Assigning", Phase.COMPLETING_REBALANCE: "Reconciling"}


def state_name(kind: GroupType, phase: Phase) -> str:
    """A group's state as Kafka's tools know it: groups of the newer type have other words for being on the way."""
    return _CONSUMER_STATES.get(phase, phase.value) if kind is GroupType.CONSUMER else phase.value
