"""A group as it stands, and the facts that it is made of.

Owns what outlives a restart. Every change is a fact, and `apply` is the only way in, for the living coordinator and
for a replay alike: so what is replayed is what was. Who may change what, and when, is the coordinator's to decide;
sessions, deadlines and waiting requests do not outlive a restart, and must not be known here.

Ownership of served members. `target` is what a generation gives to a member, `held` what the member may still be
reading. Two members never hold one partition: `apply` hands a partition of someone's target over only when nobody else
holds it, and a member lets go of what is not in its target when it acknowledges the generation, or when it is gone.
While a leader has still to assign, `target` is what was before, so that it can be told who had what.

A member that reconciles (Kafka's newer protocol, KIP-848) is a served one that hears of nothing but by the replies to
its heartbeats. So it is given a partition only by an acknowledgement of its own, and never holds what it was not told
of: otherwise it could not say that it has let go of it. Its epoch is the generation that it has acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from consumer_groups.assignors import TopicPartition


class Phase(Enum):
    """Kafka's states of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(Enum):
    """Kafka's types of a group: `consumer` as long as somebody in it speaks the newer protocol."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Protocol(msgspec.Struct, frozen=True):
    """A way to assign that a member offers, and what its leader needs to know for it."""

    name: str
    metadata: bytes = b""


class Subscription(msgspec.Struct, frozen=True):
    """What a served member reads: topics by name, or all whose whole name fits a pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One member. `subscription` is there if and only if the coordinator serves it.

    `previous` is the generation that it had acknowledged before: a member that did not get the reply names that one.
    One that is `away` is static, has let go of everything, and has said that it will be back.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    subscription: Subscription | None = None
    assignment: bytes = b""
    target: tuple[TopicPartition, ...] = ()
    held: tuple[TopicPartition, ...] = ()
    acknowledged: int = 0
    previous: int = 0
    reconciles: bool = False
    away: bool = False

    @property
    def served(self) -> bool:
        return self.subscription is not None

    @property
    def granted(self) -> tuple[TopicPartition, ...]:
        """What the member holds and is to keep."""
        held = frozenset(self.held)
        return tuple(partition for partition in self.target if partition in held)

    def metadata_of(self, protocol: str) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


class Group(msgspec.Struct, kw_only=True):
    """One group; its members stand in the order in which they came."""

    group_id: str
    protocol_type: str = ""
    protocol: str = ""
    phase: Phase = Phase.EMPTY
    # An empty group is still what it was.
    type: GroupType = GroupType.CLASSIC
    generation: int = 0
    leader: str = ""
    members: dict[str, Member] = {}
    # The partitions of the subscribed topics when the generation was made; a missing topic is not in it.
    partition_counts: dict[str, int] = {}
    changed_ms: int = 0

    @property
    def served(self) -> bool:
        """Whether the coordinator assigns: it has members, and none of them speaks Kafka's protocol."""
        return bool(self.members) and all(member.served for member in self.members.values())

    @property
    def hands_over(self) -> bool:
        """Whether the targets are those of this generation, so that members may have what is free of them."""
        return self.phase is Phase.STABLE or (self.phase is Phase.COMPLETING_REBALANCE and self.served)

    def offered(self, member_id: str) -> tuple[TopicPartition, ...]:
        """What a member does not hold yet of its target, and nobody else does either."""
        member = self.members[member_id]
        if not self.hands_over or len(member.granted) == len(member.target):
            return ()
        held = {partition for each in self.members.values() for partition in each.held}
        return tuple(partition for partition in member.target if partition not in held)

    def told(self, member_id: str) -> tuple[int, tuple[TopicPartition, ...]]:
        """The generation that a served member is to take in, and what it may read in it.

        Between two generations that is the next one, with nothing in it. So of one generation a member is never told
        less than before, only more, and to have heard of a generation is to have let go of all the rest.
        """
        if self.phase is Phase.PREPARING_REBALANCE:
            return self.generation + 1, ()
        return self.generation, self.members[member_id].granted

    def member_of_instance(self, instance_id: str) -> Member | None:
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)


class MemberJoined(msgspec.Struct, frozen=True, tag=True):
    """Someone is new, or offers or wants something else than before."""

    group_id: str
    protocol_type: str
    member: Member


class MemberReplaced(msgspec.Struct, frozen=True, tag=True):
    """A static member is back under a new member id; the old one is fenced. It holds nothing from before."""

    group_id: str
    member_id: str
    member: Member


class MemberLeft(msgspec.Struct, frozen=True, tag=True):
    group_id: str
    member_id: str
    reason: str


class RebalanceBegun(msgspec.Struct, frozen=True, tag=True):
    """All members must come again before there is a next generation."""

    group_id: str


class GenerationMade(msgspec.Struct, frozen=True, tag=True):
    """A next generation. `targets` is there when the coordinator assigned; otherwise the leader is going to."""

    group_id: str
    generation: int
    protocol: str
    leader: str
    partition_counts: dict[str, int]
    targets: dict[str, tuple[TopicPartition, ...]] | None
    at_ms: int


class AssignmentStored(msgspec.Struct, frozen=True, tag=True):
    """The leader has assigned; `targets` are those of its assignments that go to served members."""

    group_id: str
    assignments: dict[str, bytes]
    targets: dict[str, tuple[TopicPartition, ...]]


class GenerationAcknowledged(msgspec.Struct, frozen=True, tag=True):
    """A served member knows of a generation, and has let go of what it does not get in it."""

    group_id: str
    member_id: str
    generation: int


class MemberWentAway(msgspec.Struct, frozen=True, tag=True):
    """A static member has stopped reading for a while. It keeps its place, and what its target is, until it is back."""

    group_id: str
    member_id: str


class GroupDeleted(msgspec.Struct, frozen=True, tag=True):
    group_id: str


class GroupRecalled(msgspec.Struct, frozen=True, tag=True):
    """A whole group as it stood: takes the place of all facts before it, so that a journal can be short."""

    group: Group


Fact: TypeAlias = (
    MemberJoined
    | MemberReplaced
    | MemberLeft
    | RebalanceBegun
    | GenerationMade
    | AssignmentStored
    | GenerationAcknowledged
    | MemberWentAway
    | GroupDeleted
    | GroupRecalled
)

Groups: TypeAlias = dict[str, Group]

_decoder: msgspec.json.Decoder[Fact] = msgspec.json.Decoder(Fact)


def encode_fact(fact: Fact) -> str:
    """A fact as JSON, so that whoever opens the journal with SQL can read it."""
    return msgspec.json.encode(fact).decode()


def decode_fact(text: str) -> Fact:
    return _decoder.decode(text)


def group_of(fact: Fact) -> str:
    return fact.group.group_id if isinstance(fact, GroupRecalled) else fact.group_id


def snapshot(group: Group) -> GroupRecalled:
    """The one fact from which the group can be made again."""
    return GroupRecalled(replace(group, members=dict(group.members), partition_counts=dict(group.partition_counts)))


def replay(facts: Iterable[Fact]) -> Groups:
    groups: Groups = {}
    for fact in facts:
        apply(groups, fact)
    return groups


def apply(groups: Groups, fact: Fact) -> None:
    """Make a fact true."""
    match fact:
        case GroupDeleted(group_id):
            groups.pop(group_id, None)
        case GroupRecalled(group):
            groups[group.group_id] = snapshot(group).group
        case _:
            if fact.group_id not in groups:
                groups[fact.group_id] = Group(group_id=fact.group_id)
            _change(groups[fact.group_id], fact)


def _change(group: Group, fact: Fact) -> None:
    match fact:
        case MemberJoined(_, protocol_type, member):
            group.protocol_type = protocol_type
            group.members[member.member_id] = member
        case MemberReplaced(_, member_id, member):
            renamed = {member_id: member.member_id}
            # In its predecessor's place: whoever came first stays first.
            group.members = {
                renamed.get(each, each): member if each == member_id else kept for each, kept in group.members.items()
            }
            group.leader = renamed.get(group.leader, group.leader)
        case MemberLeft(_, member_id, _):
            del group.members[member_id]
        case RebalanceBegun():
            group.phase = Phase.PREPARING_REBALANCE
        case GenerationMade():
            _begin_generation(group, fact)
        case AssignmentStored(_, assignments, targets):
            for member_id, assignment in assignments.items():
                group.members[member_id] = replace(group.members[member_id], assignment=assignment)
            _aim(group, targets)
            group.phase = Phase.STABLE
        case GenerationAcknowledged(_, member_id, generation):
            _acknowledge(group, member_id, generation)
        case MemberWentAway(_, member_id):
            group.members[member_id] = replace(group.members[member_id], held=(), away=True)
    if group.members:
        reconcile = any(member.reconciles for member in group.members.values())
        group.type = GroupType.CONSUMER if reconcile else GroupType.CLASSIC
    if group.hands_over:
        _hand_over(group, hearing=fact.member_id if isinstance(fact, GenerationAcknowledged) else "")


def _begin_generation(group: Group, fact: GenerationMade) -> None:
    group.generation = fact.generation
    group.protocol = fact.protocol
    group.leader = fact.leader
    group.partition_counts = dict(fact.partition_counts)
    group.changed_ms = fact.at_ms
    if not group.members:
        group.phase = Phase.EMPTY
        return
    group.phase = Phase.COMPLETING_REBALANCE
    if fact.targets is not None:
        _aim(group, fact.targets)


def _aim(group: Group, targets: Mapping[str, tuple[TopicPartition, ...]]) -> None:
    for member_id, target in targets.items():
        group.members[member_id] = replace(group.members[member_id], target=target)


def _acknowledge(group: Group, member_id: str, generation: int) -> None:
    member = group.members[member_id]
    _, granted = group.told(member_id)
    previous = member.acknowledged if member.acknowledged != generation else member.previous
    group.members[member_id] = replace(member, held=granted, acknowledged=generation, previous=previous)


def _hand_over(group: Group, hearing: str) -> None:
    """Give served members those partitions of their targets that nobody holds; stable is who has them all.

    Of those who reconcile only the one that is `hearing` of it now gets anything.
    """
    held = {partition for member in group.members.values() for partition in member.held}
    for member in list(group.members.values()):
        if member.reconciles and member.member_id != hearing:
            continue
        if free := tuple(partition for partition in member.target if partition not in held):
            held.update(free)
            group.members[member.member_id] = replace(member, held=(*member.held, *free))
    if group.served:
        settled = all(_is_settled(group, member) for member in group.members.values())
        group.phase = Phase.STABLE if settled else Phase.COMPLETING_REBALANCE


def _is_settled(group: Group, member: Member) -> bool:
    heard = not member.reconciles or member.acknowledged == group.generation
    return heard and member.granted == member.target
