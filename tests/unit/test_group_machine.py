"""Members that join, leave, stall, come back and commit, in any order, under a clock that is moved by hand."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from consumer_groups.assignors import TopicPartition
from consumer_groups.state import Phase, decode_fact, encode_fact, replay
from lakelog.errors import ErrorCode
from tests.unit.group_players import GROUP, REBALANCE_MS, SESSION_MS, KafkaMember, Player, Reconciles, Served, World

INSTANCES = st.sampled_from([None, None, "i0", "i1"])
# Mixed groups have ways of their own, so that what only happens among one kind would be rare.
KINDS = st.sampled_from(
    [(Served, KafkaMember, Reconciles), (Served, KafkaMember), (Served, Reconciles), (Reconciles,), (Reconciles,)]
)
TOPICS = st.sampled_from([("a", "b"), ("a",), ("b",)])


class Members(RuleBasedStateMachine):
    players: Bundle[Player] = Bundle("players")

    def __init__(self) -> None:
        super().__init__()
        self.kinds: tuple[type[Player], ...] = ()
        self.world = World({"a": 3, "b": 2})
        self.known: list[Player] = []

    @initialize(kinds=KINDS)
    def who_comes_to_this_group(self, kinds: tuple[type[Player], ...]) -> None:
        self.kinds = kinds

    @precondition(lambda self: Served in self.kinds)
    @rule(target=players, instance_id=INSTANCES, topics=TOPICS)
    def someone_served(self, instance_id: str | None, topics: tuple[str, ...]) -> Player:
        return self._appear(Served(self.world, topics, instance_id, assignors=("range", "sticky")))

    @precondition(lambda self: KafkaMember in self.kinds)
    @rule(target=players, instance_id=INSTANCES, topics=TOPICS)
    def someone_of_kafkas(self, instance_id: str | None, topics: tuple[str, ...]) -> Player:
        return self._appear(KafkaMember(self.world, topics, instance_id))

    @precondition(lambda self: Reconciles in self.kinds)
    @rule(
        target=players, instance_id=INSTANCES, topics=TOPICS, assignor=st.sampled_from([None, None, "range", "uniform"])
    )
    def someone_who_reconciles(self, instance_id: str | None, topics: tuple[str, ...], assignor: str | None) -> Player:
        return self._appear(Reconciles(self.world, topics, instance_id, assignor=assignor))

    @precondition(lambda self: Reconciles in self.kinds)
    @rule(player=players)
    def a_reply_is_lost(self, player: Player) -> None:
        if isinstance(player, Reconciles) and player.member_id:
            player.lose_a_reply()

    @precondition(lambda self: Reconciles in self.kinds)
    @rule(player=players)
    def hear_of_a_loss_and_read_on(self, player: Player) -> None:
        if isinstance(player, Reconciles) and player.member_id:
            player.hear_and_read_on()

    @precondition(lambda self: Reconciles in self.kinds)
    @rule(player=players)
    def go_away_for_a_while(self, player: Player) -> None:
        if isinstance(player, Reconciles) and player.member_id and player.instance_id is not None:
            player.go_away()

    def _appear(self, player: Player) -> Player:
        self.known.append(player)
        self._join(player)
        return player

    @rule(player=players)
    def come_again(self, player: Player) -> None:
        self._join(player)

    def _join(self, player: Player) -> None:
        if not (isinstance(player, KafkaMember) and player.waits):
            player.join()  # type: ignore[attr-defined]

    @rule(player=players, records=st.integers(0, 5))
    def poll(self, player: Player, records: int) -> None:
        if player.member_id:
            player.heartbeat()  # type: ignore[attr-defined]
            player.read(records)

    @rule(player=players)
    def read_on_without_a_heartbeat(self, player: Player) -> None:
        player.read(1)

    @rule(player=players)
    def commit(self, player: Player) -> None:
        """Whoever is let in holds what it commits for; whoever is not a member is not let in."""
        if not player.member_id:
            return
        was_member = player.is_member
        error = player.commit()
        if error is ErrorCode.NONE:
            assert was_member
            assert not self._held_by_others(player) & set(player.reading)

    @rule(player=players, key=st.sampled_from([TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)]))
    def commit_what_another_reads(self, player: Player, key: TopicPartition) -> None:
        """A client whose memory is wrong does no harm to the others of its kind."""
        if isinstance(player, Served) and player.is_member and key in self._held_by_others(player):
            assert self._try_commit(player, player.generation, key) is ErrorCode.ILLEGAL_GENERATION

    @rule(player=players, back=st.integers(1, 3))
    def commit_in_the_name_of_an_old_generation(self, player: Player, back: int) -> None:
        if player.member_id and player.heartbeat() is ErrorCode.NONE and player.reading:  # type: ignore[attr-defined]
            key = next(iter(player.reading))
            fenced = ErrorCode.STALE_MEMBER_EPOCH if isinstance(player, Reconciles) else ErrorCode.ILLEGAL_GENERATION
            assert self._try_commit(player, player.generation - back, key) is fenced

    def _try_commit(self, player: Player, generation: int, key: TopicPartition) -> ErrorCode:
        return self.world.coordinator.check_commit(
            GROUP, player.member_id, generation, player.instance_id, self.world.now_ms, [key]
        )

    @rule(player=consumes(players))
    def leave(self, player: Player) -> None:
        if player.member_id and not (isinstance(player, KafkaMember) and player.waits):
            player.leave()
        self.known.remove(player)

    @rule(player=consumes(players))
    def die(self, player: Player) -> None:
        """It never comes again, and holds what it holds until its session is over."""

    @rule(ms=st.sampled_from([1, SESSION_MS // 2, SESSION_MS + 1, REBALANCE_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(partitions=st.integers(4, 5))
    def a_topic_grows(self, partitions: int) -> None:
        if partitions > self.world.counts["a"]:
            self.world.grow("a", partitions)

    @rule()
    def the_coordinator_restarts(self) -> None:
        self.world.restart()
        for player in self.known:
            if isinstance(player, KafkaMember) and player.waits:
                player.forget()  # its connection broke, and it comes as a new one

    @rule()
    def all_who_live_come_to_rest(self) -> None:
        """Everyone polls until there is no news. Then each partition that somebody wants has its one owner."""
        for _ in range(12):
            self.world.pass_time(SESSION_MS // 4)  # enough for four rounds of a session, and for the dead to go
            for player in self.known:
                if player.member_id:
                    player.heartbeat()  # type: ignore[attr-defined]
        group = self.world.coordinator.groups.get(GROUP)
        living = {player.member_id for player in self.known if player.member_id}
        if group is None:
            return
        if group.served:
            assert set(group.members) <= living
            assert group.phase is Phase.STABLE
        elif group.phase is not Phase.STABLE or not set(group.members) <= living:
            return  # one of Kafka's may have died while the others waited for it
        owners = Counter(key for player in self.known if player.is_member for key in player.reading)
        wanted = {topic for player in self.known if player.is_member for topic in player.topics}
        counts = self.world.counts if group.served else {"a": 3, "b": 2}
        expected = {TopicPartition(topic, number) for topic in wanted for number in range(counts[topic])}
        assert expected <= set(owners)
        assert set(owners.values()) <= {1}

    def _held_by_others(self, player: Player) -> set[TopicPartition]:
        return {key for other in self.known if other is not player and other.is_member for key in other.reading}

    @invariant()
    def nobody_reads_what_another_member_reads(self) -> None:
        """By generation: one that is not told yet of the next one reads on in its own, and is fenced there."""
        owners = Counter(
            (player.generation if isinstance(player, KafkaMember) else "served", key)
            for player in self.known
            if player.is_member
            for key in player.reading
        )
        assert set(owners.values()) <= {1}

    @invariant()
    def what_is_replayed_is_what_is(self) -> None:
        replayed = replay(decode_fact(encode_fact(fact)) for fact in self.world.facts)
        assert replayed == dict(self.world.coordinator.groups)

    @invariant()
    def no_partition_is_held_twice(self) -> None:
        for group in self.world.coordinator.groups.values():
            held = Counter(key for member in group.members.values() for key in member.held)
            assert set(held.values()) <= {1}
            if group.phase is Phase.STABLE and group.served:
                wanted = {topic for member in group.members.values() for topic in member.subscription.topics}  # type: ignore[union-attr]
                # More only of what nobody wants: a member lets go of it when it hears of it.
                assert set(held) >= {
                    TopicPartition(topic, number) for topic in wanted for number in range(group.partition_counts[topic])
                }


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=200, stateful_step_count=40)
