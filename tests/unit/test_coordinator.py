"""The coordinator where Kafka says exactly what happens: who waits, who leads, who is fenced, who is refused."""

from __future__ import annotations

import pytest

from consumer_groups.assignors import TopicPartition
from consumer_groups.group_settings import GroupSettings
from consumer_groups.requests import (
    DeleteGroup,
    DeleteReply,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    LeaveReply,
    Parked,
    SyncGroup,
    SyncReply,
)
from consumer_groups.state import Phase, Protocol, Subscription
from lakelog.errors import ErrorCode
from tests.unit.group_players import GROUP, REBALANCE_MS, SESSION_MS, KafkaMember, Served, World

ALL_OF_A = {TopicPartition("a", number) for number in range(3)}


@pytest.fixture
def world() -> World:
    return World({"a": 3, "b": 2})


def phase(world: World) -> Phase:
    return world.coordinator.describe(GROUP).phase


def kafka_join(world: World, **fields: object) -> JoinReply | Parked:
    request = {
        "group_id": GROUP,
        "new_member_id": world.new_id(),
        "session_timeout_ms": SESSION_MS,
        "protocols": (Protocol("range", b""),),
    }
    reply = world.ask(JoinGroup(**{**request, **fields}))  # type: ignore[arg-type]
    assert isinstance(reply, JoinReply | Parked)
    return reply


def test_the_first_member_leads_and_reads_at_once(world: World) -> None:
    first = KafkaMember(world, ("a",))
    assert first.join() is ErrorCode.NONE
    assert set(first.reading) == ALL_OF_A
    described = world.coordinator.describe(GROUP)
    assert (described.phase, described.generation, described.leader) == (Phase.STABLE, 1, first.member_id)


def test_a_second_member_waits_for_the_first_to_come_again(world: World) -> None:
    first, second = KafkaMember(world, ("a",)), KafkaMember(world, ("a",))
    first.join()
    assert second.join() is None
    assert phase(world) is Phase.PREPARING_REBALANCE
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS  # and it joins again by itself
    assert second.look() is ErrorCode.NONE
    assert phase(world) is Phase.STABLE
    assert set(first.reading) | set(second.reading) == ALL_OF_A
    assert not set(first.reading) & set(second.reading)
    assert first.generation == second.generation == 2


def test_who_does_not_come_again_in_time_is_left_behind(world: World) -> None:
    first, second = KafkaMember(world, ("a",)), KafkaMember(world, ("a",))
    first.join()
    second.join()
    for _ in range(4):  # it lives, but does not join again
        world.pass_time(REBALANCE_MS // 4 - 1)
        world.ask(Heartbeat(group_id=GROUP, member_id=first.member_id, generation=1))
    world.pass_time(4)
    assert second.look() is ErrorCode.NONE
    assert set(second.reading) == ALL_OF_A
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_members_session_ends(world: World) -> None:
    first, second = Served(world, ("a",)), Served(world, ("a",))
    first.join()
    second.join()
    first.heartbeat()
    second.heartbeat()
    world.pass_time(SESSION_MS - 1)
    second.heartbeat()
    world.pass_time(1)
    assert not first.is_member
    assert second.member_id in world.woken
    second.heartbeat()
    assert set(second.reading) == ALL_OF_A
    assert first.commit() is ErrorCode.UNKNOWN_MEMBER_ID


def test_served_members_never_wait_and_hear_of_each_other(world: World) -> None:
    first, second = Served(world, ("a",)), Served(world, ("a",))
    assert first.join() is ErrorCode.NONE
    assert set(first.reading) == ALL_OF_A
    assert second.join() is ErrorCode.NONE
    assert second.reading == {}  # the first one may still be reading what is to be the second's
    assert phase(world) is Phase.COMPLETING_REBALANCE
    assert first.member_id in world.woken
    first.heartbeat()
    assert second.member_id in world.woken
    second.heartbeat()
    assert (len(first.reading), len(second.reading)) == (2, 1)
    assert phase(world) is Phase.STABLE


def test_both_kinds_share_a_group_and_kafkas_leads(world: World) -> None:
    served, kafka = Served(world, ("a",), assignors=("range",)), KafkaMember(world, ("a",))
    served.join()
    assert kafka.join() is None
    served.heartbeat()
    kafka.look()
    served.heartbeat()
    assert world.coordinator.describe(GROUP).leader == kafka.member_id
    assert set(served.reading) | set(kafka.reading) == ALL_OF_A
    assert not set(served.reading) & set(kafka.reading)
    kafka.leave()
    served.heartbeat()
    assert set(served.reading) == ALL_OF_A


def test_kinds_without_a_common_protocol_do_not_mix(world: World) -> None:
    Served(world, ("a",), assignors=("sticky",)).join()
    assert KafkaMember(world, ("a",), protocols=("range",)).join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_type = kafka_join(world, protocol_type="connect", protocols=(Protocol("sticky"),))
    assert isinstance(wrong_type, JoinReply)
    assert wrong_type.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_most_members_prefer_is_chosen(world: World) -> None:
    offers = [("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range")]
    members = [KafkaMember(world, ("a",), protocols=offer) for offer in offers]
    for member in members:
        member.join()
    for _ in range(3):
        for member in members:
            member.heartbeat()
    assert world.coordinator.describe(GROUP).protocol == "roundrobin"


def test_a_member_is_told_its_id_first_where_the_client_knows_of_it(world: World) -> None:
    reply = kafka_join(world, member_id_required=True)
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
    assert GROUP not in world.coordinator.groups
    joined = kafka_join(world, member_id=reply.member_id, member_id_required=True)
    assert isinstance(joined, JoinReply)
    assert (joined.error, joined.member_id) == (ErrorCode.NONE, reply.member_id)
    assert joined.leader == reply.member_id


def test_an_id_that_nobody_uses_is_forgotten(world: World) -> None:
    reply = kafka_join(world, member_id_required=True)
    assert isinstance(reply, JoinReply)
    world.pass_time(SESSION_MS)
    late = kafka_join(world, member_id=reply.member_id)
    assert isinstance(late, JoinReply)
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_is_back_disturbs_nobody(world: World) -> None:
    members = [KafkaMember(world, ("a",), f"i{number}") for number in range(2)]
    for member in members:
        member.join()
    for _ in range(3):
        for member in members:
            member.heartbeat()
    first, second = members
    generation, had = second.generation, dict(first.reading)
    back = KafkaMember(world, ("a",), "i0")
    assert back.join() is ErrorCode.NONE
    assert (back.reading, back.generation) == (had, generation)
    assert phase(world) is Phase.STABLE
    assert second.heartbeat() is ErrorCode.NONE
    assert first.commit() is ErrorCode.FENCED_INSTANCE_ID
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_be_sent_away_by_its_instance_id(world: World) -> None:
    static, other = Served(world, ("a",), "i0"), Served(world, ("a",))
    static.join()
    other.join()
    reply = world.ask(LeaveGroup(GROUP, (Leaver(instance_id="i0"), Leaver(instance_id="i9"), Leaver("stranger"))))
    assert isinstance(reply, LeaveReply)
    assert reply.errors == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)
    other.heartbeat()
    assert set(other.reading) == ALL_OF_A


def test_a_group_has_only_so_many_members() -> None:
    world = World({"a": 3}, GroupSettings(group_max_size=2))
    members = [Served(world, ("a",)) for _ in range(3)]
    errors = [member.join() for member in members]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    members[0].leave()
    assert members[2].join() is ErrorCode.NONE


def test_a_first_rebalance_may_be_put_off() -> None:
    world = World({"a": 3}, GroupSettings(group_initial_rebalance_delay_ms=3_000))
    members = [KafkaMember(world, ("a",)) for _ in range(3)]
    for member in members:
        assert member.join() is None
        world.pass_time(1_000)
    world.pass_time(3_000)
    for _ in range(2):
        for member in members:
            member.look()
    assert world.coordinator.describe(GROUP).generation == 1
    assert [len(member.reading) for member in members] == [1, 1, 1]


def test_partitions_and_topics_that_come_later_are_divided_too(world: World) -> None:
    named, fitting = Served(world, ("a", "later")), Served(world, ())
    named.join()
    reply = world.ask(
        JoinGroup(
            group_id="patterns", new_member_id="p", session_timeout_ms=SESSION_MS, subscription=Subscription((), "l.*")
        )
    )
    assert isinstance(reply, JoinReply)
    assert reply.assignment == ()
    world.grow("a", 4)
    world.grow("later", 1)
    world.grow("__later", 1)
    named.heartbeat()
    assert set(named.reading) == {*ALL_OF_A, TopicPartition("a", 3), TopicPartition("later", 0)}
    beat = world.ask(Heartbeat(group_id="patterns", member_id="p", generation=reply.generation))
    assert isinstance(beat, HeartbeatReply)
    assert (beat.generation, beat.assignment) == (reply.generation + 1, (TopicPartition("later", 0),))
    assert fitting.join() is ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 10**9}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": (Protocol("magic"),), "subscription": Subscription(("a",))}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"protocols": (), "subscription": Subscription((), "(")}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_join_that_makes_no_sense_changes_nothing(world: World, fields: dict[str, object], error: ErrorCode) -> None:
    reply = kafka_join(world, **fields)
    assert isinstance(reply, JoinReply)
    assert reply.error is error
    assert (world.facts, world.coordinator.groups) == ([], {})


def test_a_sync_of_another_generation_or_protocol_is_refused(world: World) -> None:
    member = KafkaMember(world, ("a",))
    member.join()
    asked: list[tuple[dict[str, object], ErrorCode]] = [
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i0"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.NONE),
    ]
    for fields, error in asked:
        whole = {"group_id": GROUP, "member_id": member.member_id, "generation": 1, **fields}
        reply = world.ask(SyncGroup(**whole))  # type: ignore[arg-type]
        assert isinstance(reply, SyncReply)
        assert reply.error is error


def test_only_an_empty_group_is_deleted(world: World) -> None:
    member = Served(world, ("a",))
    assert world.ask(DeleteGroup(GROUP)) == DeleteReply(ErrorCode.GROUP_ID_NOT_FOUND)
    member.join()
    assert world.ask(DeleteGroup(GROUP)) == DeleteReply(ErrorCode.NON_EMPTY_GROUP)
    member.leave()
    assert phase(world) is Phase.EMPTY
    assert world.ask(DeleteGroup(GROUP)) == DeleteReply()
    assert phase(world) is Phase.DEAD


def test_after_a_restart_sessions_begin_anew_and_members_go_on(world: World) -> None:
    first, second = Served(world, ("a",)), KafkaMember(world, ("a",))
    first.join()
    world.pass_time(SESSION_MS - 1)
    world.restart()
    world.pass_time(SESSION_MS - 1)
    assert first.heartbeat() is ErrorCode.NONE
    assert set(first.reading) == ALL_OF_A
    first.leave()
    second.join()
    world.restart()
    assert second.heartbeat() is ErrorCode.NONE
    assert second.commit() is ErrorCode.NONE
