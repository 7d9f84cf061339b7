"""Members of Kafka's newer protocol, heartbeat by heartbeat: what the epochs are, who is fenced, who is refused."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_groups.assignors import TopicPartition
from consumer_groups.group_settings import GroupSettings
from consumer_groups.requests import (
    GOES_AWAY,
    JOINS,
    LEAVES,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroup,
    Heartbeat,
    HeartbeatReply,
    LeaveGroup,
    Leaver,
)
from consumer_groups.state import GroupType
from lakelog.errors import ErrorCode
from tests.unit.group_players import GROUP, REBALANCE_MS, SESSION_MS, KafkaMember, Reconciles, Served, World

ALL_OF_A = {TopicPartition("a", number) for number in range(3)}

A0, A1, A2 = sorted(ALL_OF_A)


@pytest.fixture
def world() -> World:
    return World({"a": 3, "b": 2})


def say(world: World, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatReply:
    beat = ConsumerHeartbeat(group_id=GROUP, member_id=member_id, epoch=epoch, **fields)
    reply = world.ask(beat)
    assert isinstance(reply, ConsumerHeartbeatReply)
    return reply


def join(world: World, member_id: str, **fields: Any) -> ConsumerHeartbeatReply:
    given = {"rebalance_timeout_ms": REBALANCE_MS, "topics": ("a",), "owned": (), **fields}
    return say(world, member_id, JOINS, **given)


def state(world: World) -> str:
    return world.coordinator.describe(GROUP).state


def may_commit(world: World, member_id: str, epoch: int, *keys: TopicPartition) -> ErrorCode:
    return world.coordinator.check_commit(GROUP, member_id, epoch, None, world.now_ms, keys)


# Epochs and partitions.


def test_who_comes_first_has_all_at_once_and_is_not_told_again(world: World) -> None:
    reply = join(world, "one")
    assert (reply.error, reply.member_id, reply.epoch) == (ErrorCode.NONE, "one", 1)
    assert set(reply.assignment or ()) == ALL_OF_A
    assert state(world) == "Stable"
    assert say(world, "one", 1).assignment is None
    assert say(world, "one", 1, owned=reply.assignment).assignment is None
    full = say(world, "one", 1, owned=reply.assignment, topics=("a",), rebalance_timeout_ms=REBALANCE_MS)
    assert (full.epoch, full.assignment) == (1, reply.assignment)


def test_a_partition_moves_when_its_owner_has_said_that_it_let_go(world: World) -> None:
    join(world, "one")
    two = join(world, "two")
    assert (two.epoch, two.assignment) == (2, ())
    assert state(world) == "Reconciling"
    # It keeps its epoch as long as it has something to give back, and may commit for that.
    one = say(world, "one", 1)
    assert (one.epoch, one.assignment) == (1, (A0, A1))
    assert may_commit(world, "one", 1, A2) is ErrorCode.NONE
    assert say(world, "two", 2).assignment is None
    assert say(world, "one", 1, owned=(A0, A1, A2)).epoch == 1
    one = say(world, "one", 1, owned=(A0, A1))
    assert (one.epoch, one.assignment) == (2, None)
    assert may_commit(world, "one", 1, A2) is ErrorCode.STALE_MEMBER_EPOCH
    two = say(world, "two", 2)
    assert (two.epoch, two.assignment) == (2, (A2,))
    assert state(world) == "Stable"


def test_a_partition_that_its_next_owner_was_not_told_of_is_not_waited_for(world: World) -> None:
    join(world, "m", assignor="range")
    join(world, "n", assignor="range")
    say(world, "m", 1)
    say(world, "m", 1, owned=(A0, A1))
    # A2 is free for n, which has not asked since, when a third one shifts it on.
    assert join(world, "o", assignor="range").assignment == (A2,)
    assert say(world, "n", 2).epoch == 3


def test_who_does_not_let_go_in_time_is_put_out(world: World) -> None:
    join(world, "one")
    join(world, "two")
    say(world, "one", 1)
    for _ in range(3):
        world.pass_time(REBALANCE_MS // 3 - 1)
        say(world, "one", 1)
        say(world, "two", 2)
    assert "one" in world.coordinator.groups[GROUP].members
    world.pass_time(3)
    assert say(world, "one", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(say(world, "two", 2).assignment or ()) == ALL_OF_A


def test_a_silent_members_session_ends(world: World) -> None:
    join(world, "one")
    join(world, "two")
    world.pass_time(SESSION_MS - 1)
    say(world, "two", 2)
    world.pass_time(1)
    two = say(world, "two", 2)
    assert (two.epoch, set(two.assignment or ())) == (3, ALL_OF_A)
    assert say(world, "one", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert may_commit(world, "one", 1, A0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_leaves_is_gone_and_the_epoch_says_so(world: World) -> None:
    join(world, "one")
    assert say(world, "one", LEAVES).epoch == LEAVES
    assert say(world, "one", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    described = world.coordinator.describe(GROUP)
    assert (described.state, described.type) == ("Empty", GroupType.CONSUMER)


def test_another_subscription_is_another_generation(world: World) -> None:
    join(world, "one")
    reply = say(world, "one", 1, topics=("a", "b"))
    assert (reply.epoch, len(reply.assignment or ())) == (2, 5)
    reply = say(world, "one", 2, topics=(), pattern="b.*")
    assert set(reply.assignment or ()) == {TopicPartition("b", 0), TopicPartition("b", 1)}
    assert reply.epoch == 2  # it has still to let go
    world.grow("bb", 1)
    kept = say(world, "one", 2, owned=reply.assignment)
    assert (kept.epoch, len(kept.assignment or ())) == (4, 3)
    assert say(world, "one", 4, pattern="", topics=("b",)).assignment == reply.assignment


# Fencing.


def test_epochs_that_are_not_the_members_are_fenced(world: World) -> None:
    join(world, "one")
    join(world, "two")
    say(world, "one", 1)
    say(world, "one", 1, owned=(A0, A1))
    assert say(world, "one", 3).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert say(world, "one", 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert say(world, "one", 1, owned=(A0, A2)).error is ErrorCode.FENCED_MEMBER_EPOCH
    # It did not get the reply, and has no more than what it was told.
    assert say(world, "one", 1, owned=(A0, A1)).epoch == 2
    assert say(world, "two", 1, owned=()).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_was_fenced_joins_again_under_its_id_with_nothing(world: World) -> None:
    first = join(world, "one")
    again = join(world, "one")
    assert (again.epoch, again.assignment) == (first.epoch, first.assignment)
    assert len(world.coordinator.groups[GROUP].members) == 1


@pytest.mark.parametrize("epoch", [0, 2, -1, 7])
def test_commits_and_looks_in_another_epoch_are_stale(world: World, epoch: int) -> None:
    join(world, "one")
    assert may_commit(world, "one", epoch, A0) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.coordinator.check_fetch(GROUP, "one", epoch) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.coordinator.check_fetch(GROUP, "two", epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_no_member_may_look_and_may_not_commit(world: World) -> None:
    join(world, "one")
    assert world.coordinator.check_fetch(GROUP, None, -1) is ErrorCode.NONE
    assert world.coordinator.check_fetch(GROUP, "one", 1) is ErrorCode.NONE
    assert may_commit(world, "", -1, A0) is ErrorCode.UNKNOWN_MEMBER_ID


# Static members.


def test_a_static_member_comes_back_to_what_it_had(world: World) -> None:
    first = join(world, "one", instance_id="i")
    join(world, "two")
    for name in ("two", "three"):
        assert join(world, name, instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert say(world, "one", GOES_AWAY, instance_id="i").epoch == GOES_AWAY
    assert say(world, "one", first.epoch).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.coordinator.describe(GROUP).members[0].epoch == GOES_AWAY
    assert join(world, "two", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert say(world, "two", 2).assignment == (A2,)
    back = join(world, "three", instance_id="i")
    assert (back.epoch, back.assignment) == (2, (A0, A1))
    assert say(world, "one", 2, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert say(world, "one", LEAVES).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_is_dropped(world: World) -> None:
    join(world, "one", instance_id="i")
    say(world, "one", GOES_AWAY, instance_id="i")
    world.pass_time(SESSION_MS)
    assert state(world) == "Empty"
    assert join(world, "two", instance_id="i").error is ErrorCode.NONE


def test_a_static_member_changes_over_to_the_newer_protocol_and_back(world: World) -> None:
    """One of the older protocol does not say that it goes. So the latest counts, as among its own kind."""
    older = KafkaMember(world, ("a",), instance_id="i")
    older.join()
    assert set(join(world, "one", instance_id="i").assignment or ()) == ALL_OF_A
    assert older.commit() is ErrorCode.FENCED_INSTANCE_ID
    assert older.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    again = KafkaMember(world, ("a",), instance_id="i")
    assert again.join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    say(world, "one", GOES_AWAY, instance_id="i")
    assert again.join() is ErrorCode.NONE
    assert set(again.reading) == ALL_OF_A
    assert len(world.coordinator.groups[GROUP].members) == 1


# Refusals.


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": (A0,)}, ErrorCode.INVALID_REQUEST),
        ({"topics": ()}, ErrorCode.INVALID_REQUEST),
        ({"topics": None}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": None}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"pattern": "a(b"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_what_is_wrong_with_a_join_is_said(world: World, fields: dict[str, Any], error: ErrorCode) -> None:
    reply = join(world, "one", **fields)
    assert reply.error is error
    assert reply.message
    assert not world.coordinator.groups


def test_what_is_wrong_with_an_epoch_is_said(world: World) -> None:
    join(world, "one")
    assert say(world, "one", -3).error is ErrorCode.INVALID_REQUEST
    assert say(world, "one", GOES_AWAY).error is ErrorCode.INVALID_REQUEST
    assert say(world, "", 1).error is ErrorCode.INVALID_REQUEST
    assert say(world, "nobody", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert say(world, "nobody", LEAVES).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_and_lets_its_own_come_again() -> None:
    world = World({"a": 3}, GroupSettings(group_max_size=1))
    join(world, "one")
    assert join(world, "two").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(world, "one").error is ErrorCode.NONE


# Assignors.


def test_the_assignor_that_most_ask_for_is_taken_and_uniform_where_nobody_asks(world: World) -> None:
    join(world, "one")
    assert world.coordinator.describe(GROUP).protocol == "uniform"
    join(world, "two", assignor="range")
    assert world.coordinator.describe(GROUP).protocol == "range"
    join(world, "three", assignor="uniform")
    join(world, "four", assignor="uniform")
    assert world.coordinator.describe(GROUP).protocol == "uniform"


# Beside members of other kinds.


def test_http_consumers_share_a_group_with_the_newer_protocol(world: World) -> None:
    http, newer = Served(world, ("a",)), Reconciles(world, ("a",))
    http.join()
    newer.join()
    assert newer.reading == {}
    http.heartbeat()
    newer.heartbeat()
    assert set(http.reading) | set(newer.reading) == ALL_OF_A
    assert not set(http.reading) & set(newer.reading)
    newer.leave()
    assert http.member_id in world.woken
    http.heartbeat()
    assert set(http.reading) == ALL_OF_A
    assert world.coordinator.describe(GROUP).type is GroupType.CLASSIC


def test_a_group_moves_to_the_newer_protocol_while_it_runs(world: World) -> None:
    """One member after the other is started anew with `group.protocol=consumer`, as an operator would do it."""
    classic, newer = KafkaMember(world, ("a",)), Reconciles(world, ("a",))
    classic.join()
    newer.join()
    assert world.coordinator.describe(GROUP).type is GroupType.CONSUMER
    classic.heartbeat()
    classic.look()
    newer.heartbeat()
    assert set(classic.reading) | set(newer.reading) == ALL_OF_A
    assert not set(classic.reading) & set(newer.reading)
    classic.leave()
    newer.heartbeat()
    assert set(newer.reading) == ALL_OF_A


def test_a_group_whose_members_assign_in_a_way_of_their_own_is_not_entered(world: World) -> None:
    KafkaMember(world, ("a",), protocols=("by-moonlight",)).join()
    assert join(world, "one", assignor="range").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_requests_of_the_older_protocol_do_not_know_these_members(world: World) -> None:
    join(world, "one")
    reply = world.ask(Heartbeat(group_id=GROUP, member_id="one", generation=1))
    assert reply == HeartbeatReply(error=ErrorCode.UNKNOWN_MEMBER_ID)
    older = KafkaMember(world, ("a",), member_id="one")
    assert older.join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.ask(LeaveGroup(GROUP, (Leaver("one"),)))  # as an operator does who removes a member
    assert say(world, "one", 1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_changes_its_type_with_who_comes(world: World) -> None:
    first = KafkaMember(world, ("a",), protocols=("by-moonlight",))
    first.join()
    first.leave()
    assert world.coordinator.describe(GROUP).type is GroupType.CLASSIC
    join(world, "one", assignor="range")
    assert world.coordinator.list_groups()[0].type is GroupType.CONSUMER
    say(world, "one", LEAVES)
    assert world.coordinator.list_groups()[0].type is GroupType.CONSUMER
    assert KafkaMember(world, ("a",), protocols=("other",)).join() is ErrorCode.NONE
    assert world.coordinator.list_groups()[0].type is GroupType.CLASSIC


# Restarts.


def test_members_go_on_after_a_restart_and_are_told_everything_again(world: World) -> None:
    first = join(world, "one")
    join(world, "two")
    world.restart()
    one = say(world, "one", 1, owned=first.assignment)
    assert (one.epoch, one.assignment) == (1, (A0, A1))
    assert say(world, "one", 1, owned=one.assignment).epoch == 2
    assert say(world, "two", 2).assignment == (A2,)


def test_a_group_of_the_newer_type_can_be_deleted_when_it_is_empty(world: World) -> None:
    join(world, "one")
    say(world, "one", LEAVES)
    world.ask(DeleteGroup(GROUP))
    assert GROUP not in world.coordinator.groups
