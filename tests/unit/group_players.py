"""Members of all kinds, as clients behave: they believe what they were told, and know nothing else.

A served member keeps the rules of `consumer_groups.coordinator`. A Kafka member is one of the eager protocol: it lets
go of everything before it joins again, and assigns by range if it leads. One that reconciles speaks Kafka's newer
protocol: it lets go of what it loses, says so, and says everything when a reply was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from consumer_groups.assignors import Subscriber, TopicPartition, assign_range
from consumer_groups.coordinator import Coordinator
from consumer_groups.group_settings import GroupSettings
from consumer_groups.requests import (
    GOES_AWAY,
    JOINS,
    LEAVES,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    Outcome,
    Parked,
    Reply,
    Request,
    SyncGroup,
    SyncReply,
)
from consumer_groups.state import Fact, Protocol, Subscription, replay
from consumer_groups.subscription_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from lakelog.errors import ErrorCode

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 30_000


class World:
    """A coordinator, its record, its time, and the replies on their way to those who wait."""

    def __init__(self, counts: dict[str, int], settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings(group_consumer_session_timeout_ms=SESSION_MS)
        self.counts = dict(counts)
        self.now_ms = 0
        self.facts: list[Fact] = []
        self.arrived: dict[int, JoinReply | SyncReply] = {}
        self.woken: set[str] = set()
        self.committed: dict[TopicPartition, int] = {}
        self.ids = 0
        self.coordinator = Coordinator(self.settings)
        self.take(self.coordinator.topics_changed(self.counts, self.now_ms))

    def take(self, outcome: Outcome) -> Reply | Parked | None:
        self.facts += outcome.facts
        self.arrived |= dict(outcome.released)
        self.woken |= {member_id for _, member_id in outcome.woken}
        return outcome.reply

    def ask(self, request: Request) -> Reply | Parked:
        reply = self.take(self.coordinator.handle(request, self.now_ms))
        assert reply is not None
        return reply

    def pass_time(self, ms: int) -> None:
        """Deadline by deadline, as timers would run."""
        end_ms = self.now_ms + ms
        while (due_ms := self.coordinator.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.coordinator.tick(self.now_ms))
        self.now_ms = end_ms

    def grow(self, topic: str, partitions: int) -> None:
        self.counts[topic] = partitions
        self.take(self.coordinator.topics_changed(self.counts, self.now_ms))

    def restart(self) -> None:
        """Only the record is left; whoever waited for a reply does not get one."""
        self.arrived.clear()
        self.coordinator = Coordinator(self.settings, replay(self.facts))
        self.take(self.coordinator.topics_changed(self.counts, self.now_ms))
        self.coordinator.resume(self.now_ms)

    def new_id(self) -> str:
        self.ids += 1
        return f"member-{self.ids:04d}"


@dataclass(eq=False)
class Player:
    """What all kinds have in common: what they believe, and how far they have read."""

    world: World
    topics: tuple[str, ...] = ("a", "b")
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    reading: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_member(self) -> bool:
        group = self.world.coordinator.groups.get(GROUP)
        return group is not None and self.member_id in group.members

    def forget(self) -> None:
        self.member_id, self.generation, self.reading = "", -1, {}

    def read(self, records: int) -> None:
        self.reading = {key: position + records for key, position in self.reading.items()}

    def commit(self, keys: set[TopicPartition] | None = None) -> ErrorCode:
        positions = {key: at for key, at in self.reading.items() if keys is None or key in keys}
        error = self.world.coordinator.check_commit(
            GROUP, self.member_id, self.generation, self.instance_id, self.world.now_ms, positions
        )
        if error is ErrorCode.NONE:
            for key, position in positions.items():
                assert position >= self.world.committed.get(key, 0), "a committed offset went back"
                self.world.committed[key] = position
        return error

    def begin(self, keys: tuple[TopicPartition, ...]) -> None:
        """Go on with what one has, and take up what is new where the group has left it."""
        self.reading = {key: self.reading.get(key, self.world.committed.get(key, 0)) for key in keys}

    def leave(self) -> None:
        self.world.ask(LeaveGroup(GROUP, (Leaver(self.member_id),)))
        self.forget()


@dataclass(eq=False)
class Served(Player):
    assignors: tuple[str, ...] = ()

    def join(self) -> ErrorCode:
        if not self.member_id:
            self.forget()
        reply = self.world.ask(
            JoinGroup(
                group_id=GROUP,
                member_id=self.member_id,
                new_member_id=self.world.new_id(),
                instance_id=self.instance_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocols=tuple(map(Protocol, self.assignors)),
                subscription=Subscription(self.topics),
            )
        )
        assert isinstance(reply, JoinReply)
        if reply.error is not ErrorCode.NONE:
            self.forget()
            return reply.error
        self.member_id = reply.member_id
        self._take_in(reply.generation, reply.assignment)
        return ErrorCode.NONE

    def heartbeat(self) -> ErrorCode:
        reply = self.world.ask(
            Heartbeat(
                group_id=GROUP, member_id=self.member_id, generation=self.generation, instance_id=self.instance_id
            )
        )
        assert isinstance(reply, HeartbeatReply)
        if reply.error is not ErrorCode.NONE:
            self.forget()
            return reply.error
        self.world.woken.discard(self.member_id)
        if reply.generation != self.generation:
            self.commit(set(self.reading) - set(reply.assignment))
        is_news = reply.generation != self.generation
        self._take_in(reply.generation, reply.assignment)
        return self.heartbeat() if is_news else ErrorCode.NONE

    def _take_in(self, generation: int, assignment: tuple[TopicPartition, ...]) -> None:
        self.generation = generation
        self.begin(assignment)


@dataclass(eq=False)
class KafkaMember(Player):
    """`ticket` is that of the reply which it waits for."""

    protocols: tuple[str, ...] = ("range",)
    ticket: int | None = None

    @property
    def waits(self) -> bool:
        return self.ticket is not None

    def forget(self) -> None:
        super().forget()
        self.ticket = None

    def join(self) -> ErrorCode | None:
        """None while the reply is to come."""
        self.reading = {}
        metadata = encode_subscription(ConsumerSubscription(topics=self.topics), 1)
        return self._hear(
            self.world.ask(
                JoinGroup(
                    group_id=GROUP,
                    member_id=self.member_id,
                    new_member_id=self.world.new_id(),
                    instance_id=self.instance_id,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    protocols=tuple(Protocol(name, metadata) for name in self.protocols),
                )
            )
        )

    def look(self) -> ErrorCode | None:
        """See whether the reply is there by now."""
        if self.ticket is None or self.ticket not in self.world.arrived:
            return None
        return self._hear(self.world.arrived.pop(self.ticket))

    def heartbeat(self) -> ErrorCode | None:
        """A client that waits for its group sends none."""
        if self.waits:
            return self.look()
        beat = Heartbeat(
            group_id=GROUP, member_id=self.member_id, generation=self.generation, instance_id=self.instance_id
        )
        reply = self.world.ask(beat)
        assert isinstance(reply, HeartbeatReply)
        if reply.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.commit()
            self.join()
        elif reply.error is not ErrorCode.NONE:
            self.forget()
        return reply.error

    def _hear(self, reply: Reply | Parked) -> ErrorCode | None:
        self.ticket = reply.ticket if isinstance(reply, Parked) else None
        match reply:
            case Parked():
                return None
            case JoinReply(error=ErrorCode.NONE):
                self.member_id, self.generation = reply.member_id, reply.generation
                return self._sync(reply)
            case SyncReply(error=ErrorCode.NONE):
                self.begin(decode_assignment(reply.assignment).partitions)
                return ErrorCode.NONE
            case JoinReply() | SyncReply():
                if reply.error is ErrorCode.REBALANCE_IN_PROGRESS:
                    return self.join()
                self.forget()
                return reply.error
            case _:
                raise AssertionError(reply)

    def _sync(self, joined: JoinReply) -> ErrorCode | None:
        members = [
            Subscriber(
                each.member_id, frozenset(decode_subscription(each.metadata).topics), instance_id=each.instance_id
            )
            for each in joined.members
        ]
        assigned = assign_range(members, self.world.counts)
        forms = {each: encode_assignment(ConsumerAssignment(partitions=keys), 1) for each, keys in assigned.items()}
        return self._hear(
            self.world.ask(
                SyncGroup(
                    group_id=GROUP,
                    member_id=self.member_id,
                    generation=self.generation,
                    instance_id=self.instance_id,
                    assignments=tuple(forms.items()),
                )
            )
        )


@dataclass(eq=False)
class Reconciles(Player):
    """`told` is what it is to have by the last reply that came, `said` what it last said that it has."""

    assignor: str | None = None
    told: tuple[TopicPartition, ...] = ()
    said: tuple[TopicPartition, ...] | None = None

    def forget(self) -> None:
        super().forget()
        self.told, self.said = (), None

    def join(self) -> ErrorCode:
        """For the first time, or again after it was fenced or has lost its memory: it has let go of everything."""
        member_id = self.member_id or self.world.new_id()
        self.forget()
        self.member_id, self.generation = member_id, JOINS
        return self._say()

    def heartbeat(self) -> ErrorCode:
        """One or, where there is something to let go of, two: the second one says that it has."""
        self._let_go()
        error = self._say()
        if error is not ErrorCode.NONE or self.said == self._has():
            return error
        return self._say()

    def hear_and_read_on(self) -> None:
        """It is told, and goes on with what it had, as one that is busy with its records."""
        self._say(reads_on=True)

    def lose_a_reply(self) -> None:
        """The coordinator believes that it was told, and it does not know that it was heard."""
        self._ask(self.generation, says_all=self.said is None)
        self.said = None

    def leave(self) -> None:
        self.commit()
        self._ask(LEAVES)
        self.forget()

    def go_away(self) -> None:
        """As a static member that is stopped: its place is kept, and it comes back under another member id."""
        self.commit()
        self._ask(GOES_AWAY)
        self.forget()

    def _has(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self.reading))

    def _ask(self, epoch: int, says_all: bool = False) -> ConsumerHeartbeatReply:
        owned = self._has()
        reply = self.world.ask(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=self.member_id,
                epoch=epoch,
                instance_id=self.instance_id,
                rebalance_timeout_ms=REBALANCE_MS if says_all else None,
                topics=self.topics if says_all else None,
                assignor=self.assignor if says_all else None,
                owned=owned if says_all or owned != self.said else None,
            )
        )
        assert isinstance(reply, ConsumerHeartbeatReply)
        self.said = owned
        return reply

    def _say(self, *, reads_on: bool = False) -> ErrorCode:
        reply = self._ask(self.generation, says_all=self.said is None)
        if reply.error is ErrorCode.FENCED_MEMBER_EPOCH:
            return self.join()
        if reply.error is not ErrorCode.NONE:
            self.forget()
            return reply.error
        assert reply.epoch >= self.generation
        if reply.assignment is not None:
            self.told = reply.assignment
        self.generation = reply.epoch
        if not reads_on:
            self._let_go()
            self.begin(self.told)
        return ErrorCode.NONE

    def _let_go(self) -> None:
        lost = set(self.reading) - set(self.told)
        if lost and self.is_member:
            assert self.commit(lost) is ErrorCode.NONE, "what is taken away may be committed until it is let go of"
        self.reading = {key: at for key, at in self.reading.items() if key not in lost}
