"""How a group gets from one generation to the next.

Owns the groups with all that goes with them while the process lives: sessions and other deadlines, requests whose
reply must wait, member ids that were told and not yet used. It collects what one turn leads to, and every durable
change goes through `record`. What a request may do is the coordinator's to decide, and must not be known here.

There are two ways, by who is in the group.

**Somebody speaks Kafka's protocol.** Then it goes as in Kafka. All members come again (or are dropped when the
rebalance timeout is over), a generation is made, and its leader, who is one of Kafka's clients, assigns to all. A
served member comes again by a heartbeat: it is told of the generation to be, with nothing in it, and has let go of
everything when it names that generation. For the leader it looks like an eager member of Kafka's consumer protocol.

**All are served.** Then nobody is waited for. Whoever joins, leaves or falls silent, a next generation with its
assignment is there at once, and the others hear of it by their next heartbeat. The sticky assignor leaves most
partitions where they are. One that moves stays with its old owner until that one has acknowledged the generation or
its session is over, and is then handed to the new owner in the same turn. So fifty members that join are fifty small
moves, not fifty stops of the whole group, and at any time a partition has at most one owner. While some partition is
on its way the group is completing its rebalance; when each is with its new owner it is stable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from consumer_groups.assignors import (
    Assignor,
    Subscriber,
    TopicPartition,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from consumer_groups.group_settings import GroupSettings
from consumer_groups.requests import JoinedMember, JoinReply, Outcome, Parked, Reply, SyncReply
from consumer_groups.state import (
    Fact,
    GenerationAcknowledged,
    GenerationMade,
    Group,
    GroupRecalled,
    Groups,
    Member,
    MemberLeft,
    Phase,
    Protocol,
    RebalanceBegun,
    apply,
)
from consumer_groups.subscription_protocol import (
    ConsumerSubscription,
    decode_subscription,
    encode_sticky_memory,
    encode_subscription,
)
from consumer_groups.timers import Timers
from consumer_groups.topic_patterns import fitting
from lakelog.errors import ErrorCode, LakelogError

# What a served group is divided by, best first. The cooperative way needs no rounds of its own here: a partition is
# handed over when it is free in any case.
SERVED_ASSIGNORS: Mapping[str, Assignor] = {
    "sticky": assign_sticky,
    "cooperative-sticky": assign_sticky,
    "range": assign_range,
    "roundrobin": assign_round_robin,
}
# What members of Kafka's newer protocol may ask for, by Kafka's names. The first is for groups in which nobody asks.
CONSUMER_ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_sticky, "range": assign_range}
_ASSIGNORS = {**SERVED_ASSIGNORS, **CONSUMER_ASSIGNORS}
# The first version that every client reads whole: it has room for owned partitions, of which a served member has none.
_SUBSCRIPTION_VERSION = 1


class Deadline(NamedTuple):
    """What may run out: a member's session, the time that it has to let go of partitions, a rebalance, the delay of a
    first one, a member id that nobody uses.
    """

    kind: str
    group_id: str
    member_id: str = ""


SESSION, REVOCATION, REBALANCE, DELAY, PENDING = "session", "revocation", "rebalance", "delay", "pending"


class Rebalancing:
    def __init__(self, settings: GroupSettings, groups: Groups) -> None:
        self.settings = settings
        self.groups = groups
        self.topics: dict[str, int] = {}
        self.timers: Timers[Deadline] = Timers()
        self.pending: dict[str, set[str]] = {}
        # What each member that reconciles was told last; after a restart they are told again.
        self.sent: dict[tuple[str, str], tuple[TopicPartition, ...]] = {}
        self._joins: dict[tuple[str, str], int] = {}
        self._syncs: dict[tuple[str, str], int] = {}
        self._tickets = 0
        self._announced: dict[tuple[str, str], object] = {}
        self._facts: list[Fact] = []
        self._released: dict[int, JoinReply | SyncReply] = {}

    # What a turn collects.

    def record(self, fact: Fact) -> None:
        apply(self.groups, fact)
        self._facts.append(fact)

    def finish(self, reply: Reply | Parked | None) -> Outcome:
        """The turn is over: hand out what it led to."""
        facts, released = tuple(self._facts), self._released
        self._facts, self._released = [], {}
        if isinstance(reply, Parked) and reply.ticket in released:
            reply = released.pop(reply.ticket)
        touched = dict.fromkeys(fact.group_id for fact in facts if not isinstance(fact, GroupRecalled))
        woken = tuple((group_id, member_id) for group_id in touched for member_id in self._to_wake(group_id))
        return Outcome(reply, tuple(released.items()), facts, woken)

    def announce(self, group: Group, member_id: str) -> bool:
        """Note that a served member hears what it is told now; whether that is news."""
        key, told = (group.group_id, member_id), group.told(member_id)
        news = self._announced.get(key) != told
        self._announced[key] = told
        return news

    def _to_wake(self, group_id: str) -> list[str]:
        group = self.groups.get(group_id)
        members = group.members.values() if group else ()
        return [each.member_id for each in members if group and each.served and self.announce(group, each.member_id)]

    # Requests whose reply must wait.

    def park_join(self, group: Group, member_id: str) -> Parked:
        """While its join waits a member has no session: it cannot send heartbeats."""
        self.timers.cancel(Deadline(SESSION, group.group_id, member_id))
        return self._park(self._joins, group, member_id, JoinReply(error=ErrorCode.REBALANCE_IN_PROGRESS))

    def park_sync(self, group: Group, member_id: str) -> Parked:
        return self._park(self._syncs, group, member_id, SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS))

    def _park(
        self, waiting: dict[tuple[str, str], int], group: Group, member_id: str, to_the_former: JoinReply | SyncReply
    ) -> Parked:
        key = group.group_id, member_id
        if key in waiting:
            self._released[waiting[key]] = to_the_former
        self._tickets += 1
        waiting[key] = self._tickets
        return Parked(self._tickets)

    def has_joined(self, group: Group, member: Member) -> bool:
        """Whether the member has come again for the next generation. Nobody waits for one that is away."""
        if member.away:
            return True
        if member.served:
            return member.acknowledged == group.generation + 1
        return (group.group_id, member.member_id) in self._joins

    def release_join(self, group: Group, member_id: str, reply: JoinReply) -> None:
        if ticket := self._joins.pop((group.group_id, member_id), None):
            self._released[ticket] = reply

    def release_syncs(self, group: Group, error: ErrorCode = ErrorCode.NONE) -> None:
        for member in group.members.values():
            self.release_sync(group, member.member_id, self.sync_reply(group, member, error))

    def release_sync(self, group: Group, member_id: str, reply: SyncReply) -> None:
        if ticket := self._syncs.pop((group.group_id, member_id), None):
            self._released[ticket] = reply

    def has_synced(self, group: Group, member: Member) -> bool:
        return (group.group_id, member.member_id) in self._syncs

    # Who is there.

    def renew_session(self, group: Group, member_id: str, now_ms: int) -> None:
        due_ms = now_ms + group.members[member_id].session_timeout_ms
        self.timers.set(Deadline(SESSION, group.group_id, member_id), due_ms)

    def acknowledge(self, group: Group, member_id: str, now_ms: int) -> None:
        generation, _ = group.told(member_id)
        if group.members[member_id].acknowledged < generation:
            self.record(GenerationAcknowledged(group.group_id, member_id, generation))
            self.complete_if_all_joined(group, now_ms)

    def sign_of_life(self, group: Group, member: Member, now_ms: int) -> None:
        """A member whose join waits has no session that could be renewed."""
        if member.served or not self.has_joined(group, member):
            self.renew_session(group, member.member_id, now_ms)

    def remove(self, group: Group, member_id: str, reason: str) -> None:
        self.forget(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.record(MemberLeft(group.group_id, member_id, reason))

    def replace_static(self, group: Group, instance_id: str) -> None:
        """A static member is back, but speaks another protocol: its former self goes, with all that it had."""
        if (former := group.member_of_instance(instance_id)) is not None:
            self.forget(group, former.member_id, ErrorCode.FENCED_INSTANCE_ID)
            self.record(MemberLeft(group.group_id, former.member_id, "it came back with another protocol"))

    def forget(self, group: Group, member_id: str, error: ErrorCode) -> None:
        """Let go of all that goes with a member while the process lives."""
        self.timers.cancel(Deadline(SESSION, group.group_id, member_id))
        self.timers.cancel(Deadline(REVOCATION, group.group_id, member_id))
        self._announced.pop((group.group_id, member_id), None)
        self.sent.pop((group.group_id, member_id), None)
        self.release_join(group, member_id, JoinReply(error=error, member_id=member_id))
        self.release_sync(group, member_id, SyncReply(error=error))

    def drop_pending(self, group_id: str, member_id: str) -> bool:
        ids = self.pending.get(group_id, set())
        if member_id not in ids:
            return False
        ids.remove(member_id)
        if not ids:
            del self.pending[group_id]
        self.timers.cancel(Deadline(PENDING, group_id, member_id))
        return True

    def topics_of(self, group: Group, member: Member) -> tuple[str, ...]:
        """The topics that a member subscribes to, whether they exist or not; a pattern fits those that do."""
        if member.subscription is None:
            if group.protocol_type != "consumer":
                return ()
            try:
                return decode_subscription(member.metadata_of(group.protocol or member.protocols[0].name)).topics
            except LakelogError:
                return ()
        wanted = set(member.subscription.topics)
        if (pattern := member.subscription.pattern) is not None:
            wanted.update(fitting(pattern, self.topics))
        return tuple(sorted(wanted))

    def partition_counts(self, group: Group) -> dict[str, int]:
        """Of the topics that served members subscribe to. Kafka's clients look after theirs themselves."""
        served = [member for member in group.members.values() if member.served]
        wanted = {topic for member in served for topic in self.topics_of(group, member)}
        return {topic: self.topics[topic] for topic in sorted(wanted) if topic in self.topics}

    # From one generation to the next.

    def rebalance(self, group: Group, now_ms: int) -> None:
        """Somebody came, went or wants something else, or there is more or less to read."""
        if not group.members:
            self._stop_waiting(group)
            self._make_generation(group, now_ms, protocol="", leader="")
        elif group.served:
            self._serve(group, now_ms)
        else:
            self._prepare(group, now_ms)

    def _serve(self, group: Group, now_ms: int) -> None:
        self._stop_waiting(group)
        subscribers = [
            Subscriber(
                member.member_id,
                frozenset(self.topics_of(group, member)),
                owned=member.target,
                instance_id=member.instance_id,
            )
            for member in group.members.values()
        ]
        protocol = chosen_protocol(group)
        targets = _ASSIGNORS[protocol](subscribers, self.topics)
        self._make_generation(group, now_ms, protocol, leader=next(iter(group.members)), targets=targets)

    def _prepare(self, group: Group, now_ms: int) -> None:
        if group.phase is not Phase.PREPARING_REBALANCE:
            self.release_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
            delay_ms = self.settings.group_initial_rebalance_delay_ms if group.phase is Phase.EMPTY else 0
            self.record(RebalanceBegun(group.group_id))
            self.wait_for_members(group, now_ms)
            if delay_ms:
                self.timers.set(Deadline(DELAY, group.group_id), now_ms + delay_ms)
        self.complete_if_all_joined(group, now_ms)

    def wait_for_members(self, group: Group, now_ms: int) -> None:
        """To join while the group prepares, to sync while it completes: as long as the slowest may take."""
        slowest_ms = max(member.rebalance_timeout_ms for member in group.members.values())
        self.timers.set(Deadline(REBALANCE, group.group_id), now_ms + slowest_ms)

    def prolong_delay(self, group: Group, now_ms: int) -> None:
        """One more came while a first rebalance is delayed: wait as long again, within the rebalance timeout."""
        delay, end_ms = Deadline(DELAY, group.group_id), self.timers.due_at(Deadline(REBALANCE, group.group_id))
        if self.timers.due_at(delay) is not None and end_ms is not None:
            self.timers.set(delay, min(now_ms + self.settings.group_initial_rebalance_delay_ms, end_ms))

    def complete_if_all_joined(self, group: Group, now_ms: int) -> None:
        delayed = self.timers.due_at(Deadline(DELAY, group.group_id)) is not None
        if group.phase is not Phase.PREPARING_REBALANCE or delayed or group.group_id in self.pending:
            return
        if all(self.has_joined(group, member) for member in group.members.values()):
            self.complete(group, now_ms)

    def complete(self, group: Group, now_ms: int) -> None:
        """Make the generation of those who have come. Kafka's static members stay in it though they have not."""
        self._stop_waiting(group)
        for member in list(group.members.values()):
            if not self.has_joined(group, member) and (member.served or member.instance_id is None):
                self.remove(group, member.member_id, "it did not join again in the rebalance timeout")
        if not group.members or group.served:
            self.rebalance(group, now_ms)
            return
        leaders = [
            each.member_id for each in group.members.values() if not each.served and self.has_joined(group, each)
        ]
        if not leaders:
            # Only static members are left to lead, and they are away. Their sessions end, if they stay away.
            self.wait_for_members(group, now_ms)
            return
        leader = group.leader if group.leader in leaders else leaders[0]
        self._make_generation(group, now_ms, chosen_protocol(group), leader)
        for member_id in list(group.members):
            self.release_join(group, member_id, self.join_reply(group, member_id))
            self.renew_session(group, member_id, now_ms)
        self.wait_for_members(group, now_ms)

    def stop_waiting_for_members(self, group: Group, now_ms: int) -> None:
        """The rebalance timeout is over: go on without those who have not joined or not asked for their assignment."""
        if group.phase is Phase.PREPARING_REBALANCE:
            self.complete(group, now_ms)
        elif group.phase is Phase.COMPLETING_REBALANCE and not group.served:
            for member in list(group.members.values()):
                if not member.served and not self.has_synced(group, member):
                    self.remove(group, member.member_id, "it did not ask for its assignment in the rebalance timeout")
            self.rebalance(group, now_ms)

    def _make_generation(
        self,
        group: Group,
        now_ms: int,
        protocol: str,
        leader: str,
        targets: dict[str, tuple[TopicPartition, ...]] | None = None,
    ) -> None:
        counts = self.partition_counts(group)
        self.record(
            GenerationMade(group.group_id, group.generation + 1, protocol, leader, counts, targets, at_ms=now_ms)
        )

    def _stop_waiting(self, group: Group) -> None:
        self.timers.cancel(Deadline(REBALANCE, group.group_id))
        self.timers.cancel(Deadline(DELAY, group.group_id))

    # What members are told.

    def join_reply(self, group: Group, member_id: str) -> JoinReply:
        member = group.members[member_id]
        generation, assignment = group.told(member_id) if member.served else (group.generation, ())
        if member.served:
            self.announce(group, member_id)
        leads = member_id == group.leader and not member.served
        return JoinReply(
            member_id=member_id,
            generation=generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader,
            members=tuple(self._for_leader(group, each) for each in group.members.values()) if leads else (),
            assignment=assignment,
        )

    def sync_reply(self, group: Group, member: Member, error: ErrorCode = ErrorCode.NONE) -> SyncReply:
        if error is not ErrorCode.NONE:
            return SyncReply(error=error)
        return SyncReply(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)

    def metadata_of(self, group: Group, member: Member) -> bytes:
        """What a leader reads: a served member's is made here, as that of an eager member that has given all up."""
        if not member.served:
            return member.metadata_of(group.protocol)
        memory = encode_sticky_memory(member.target, group.generation - 1) if group.protocol == "sticky" else None
        subscription = ConsumerSubscription(topics=self.topics_of(group, member), user_data=memory)
        return encode_subscription(subscription, _SUBSCRIPTION_VERSION)

    def _for_leader(self, group: Group, member: Member) -> JoinedMember:
        return JoinedMember(member.member_id, member.instance_id, self.metadata_of(group, member))


def offers_of(assignor: str | None) -> tuple[Protocol, ...]:
    """What a member of Kafka's newer protocol offers: the one that it prefers before all others, or whatever comes."""
    if not assignor:
        return ()
    return tuple(Protocol(name) for name in (assignor, *(each for each in _ASSIGNORS if each != assignor)))


def common_protocols(group: Group, without: str = "") -> set[str] | None:
    """The protocols that all members offer, not counting one of them and those who take any; None if that is all."""
    offers = [
        {each.name for each in member.protocols}
        for member in group.members.values()
        if member.member_id != without and member.protocols
    ]
    return set.intersection(*offers) if offers else None


def chosen_protocol(group: Group) -> str:
    """The one that most members like best of those that all offer; of equals, what the first member prefers."""
    common = common_protocols(group)
    if common is None:
        return next(iter(CONSUMER_ASSIGNORS))
    votes: Counter[str] = Counter()
    for member in group.members.values():
        votes.update([each.name for each in member.protocols if each.name in common][:1])
    return max(votes, key=lambda name: votes[name])
