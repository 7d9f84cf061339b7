"""The assignors against Kafka: the examples of its documentation, and what its own code makes of random groups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_groups.assignors import (
    Assignment,
    Assignor,
    Subscriber,
    TopicPartition,
    assign_cooperatively,
    assign_range,
    assign_round_robin,
    assign_sticky,
)

# By Kafka's names.
ASSIGNORS: Mapping[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}

# Written by KafkaAssignments.java, beside it, from Kafka 4.3.1.
RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "kafka_assignments" / "cases.jsonl").read_text().splitlines()
]


def subscribers(**topics: str) -> list[Subscriber]:
    """Members by name, each with its topics, as C0="t0 t1"."""
    return [Subscriber(name, frozenset(wanted.split())) for name, wanted in topics.items()]


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """As Kafka's documentation writes them: t0p1 t1p0."""
    return tuple(TopicPartition(topic, int(number)) for topic, number in (each.split("p") for each in text.split()))


def expected(**assigned: str) -> Assignment:
    return {name: partitions(text) for name, text in assigned.items()}


def as_sets(assignment: Assignment) -> dict[str, frozenset[TopicPartition]]:
    return {member_id: frozenset(owned) for member_id, owned in assignment.items()}


def after(before: Assignment, members: Sequence[Subscriber], generation: int = 1) -> list[Subscriber]:
    """The members as they come again, with what they had."""
    return [
        Subscriber(each.member_id, each.topics, before.get(each.member_id, ()), generation, each.instance_id)
        for each in members
    ]


def test_range_divides_each_topic_by_itself() -> None:
    members = subscribers(C0="t0 t1", C1="t0 t1")
    assert ASSIGNORS["range"](members, {"t0": 3, "t1": 3}) == expected(C0="t0p0 t0p1 t1p0 t1p1", C1="t0p2 t1p2")


def test_range_keeps_the_place_of_a_static_member_that_is_back_under_another_id() -> None:
    topics, counts = frozenset({"t0", "t1"}), {"t0": 3, "t1": 3}
    before = [Subscriber(f"C{n}", topics, instance_id=f"I{n}") for n in range(3)]
    assigned = expected(C0="t0p0 t1p0", C1="t0p1 t1p1", C2="t0p2 t1p2")
    assert ASSIGNORS["range"](before, counts) == assigned
    back = [*before[1:], Subscriber("C9", topics, instance_id="I0")]
    assert ASSIGNORS["range"](back, counts) == expected(C9="t0p0 t1p0", C1="t0p1 t1p1", C2="t0p2 t1p2")


def test_round_robin_deals_out_in_turn() -> None:
    members = subscribers(C0="t0 t1", C1="t0 t1")
    dealt = ASSIGNORS["roundrobin"](members, {"t0": 3, "t1": 3})
    assert dealt == expected(C0="t0p0 t0p2 t1p1", C1="t0p1 t1p0 t1p2")


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    members = subscribers(C0="t0", C1="t0 t1", C2="t0 t1 t2")
    dealt = ASSIGNORS["roundrobin"](members, {"t0": 1, "t1": 2, "t2": 3})
    assert dealt == expected(C0="t0p0", C1="t1p0", C2="t1p1 t2p0 t2p1 t2p2")


def test_sticky_leaves_everything_where_it_is_when_a_member_goes() -> None:
    topics, counts = "t0 t1 t2 t3", {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
    members = subscribers(C0=topics, C1=topics, C2=topics)
    before = ASSIGNORS["sticky"](members, counts)
    assert as_sets(before) == as_sets(expected(C0="t0p0 t1p1 t3p0", C1="t0p1 t2p0 t3p1", C2="t1p0 t2p1"))
    left = ASSIGNORS["sticky"](after(before, [members[0], members[2]]), counts)
    # The documentation hands t0p1 and t2p0 out the other way round; this is what the code of Kafka 4.3.1 does.
    assert as_sets(left) == as_sets(expected(C0="t0p0 t1p1 t3p0 t0p1", C2="t1p0 t2p1 t2p0 t3p1"))


def test_sticky_with_subscriptions_that_differ() -> None:
    counts = {"t0": 1, "t1": 2, "t2": 3}
    members = subscribers(C0="t0", C1="t0 t1", C2="t0 t1 t2")
    before = ASSIGNORS["sticky"](members, counts)
    assert as_sets(before) == as_sets(expected(C0="t0p0", C1="t1p0 t1p1", C2="t2p0 t2p1 t2p2"))
    left = ASSIGNORS["sticky"](after(before, members[1:]), counts)
    assert as_sets(left) == as_sets(expected(C1="t0p0 t1p0 t1p1", C2="t2p0 t2p1 t2p2"))


def test_cooperative_sticky_gives_on_the_second_time_what_it_took_on_the_first() -> None:
    members = subscribers(C0="t0", C1="t0")
    before = {"C0": partitions("t0p0 t0p1 t0p2 t0p3")}
    first = ASSIGNORS["cooperative-sticky"](after(before, members), {"t0": 4})
    assert first == expected(C0="t0p0 t0p1", C1="")
    second = ASSIGNORS["cooperative-sticky"](after(first, members, generation=2), {"t0": 4})
    assert second == expected(C0="t0p0 t0p1", C1="t0p2 t0p3")


def test_of_two_claims_the_later_generations_stands() -> None:
    claims = [
        Subscriber("stale", frozenset({"t0"}), partitions("t0p0 t0p1"), generation=1),
        Subscriber("fresh", frozenset({"t0"}), partitions("t0p1"), generation=2),
    ]
    assert ASSIGNORS["sticky"](claims, {"t0": 2}) == expected(stale="t0p0", fresh="t0p1")


def _members_of(case: Mapping[str, Any]) -> list[Subscriber]:
    return [
        Subscriber(
            each["id"],
            frozenset(each["topics"]),
            tuple(TopicPartition(*place) for place in each["owned"]),
            each["generation"],
            each["instance"],
        )
        for each in case["members"]
    ]


def _more_hold_the_larger_share_than_may(members: Sequence[Subscriber], counts: Mapping[str, int]) -> bool:
    """Then Kafka takes them in the order of its hash table, which is nobody's promise."""
    wanted = {topic for each in members for topic in each.topics}
    share, larger = divmod(sum(counts[topic] for topic in wanted), len(members))
    return 0 < larger < sum(len(each.owned) > share for each in members)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_random_groups_are_divided_as_kafka_divides_them(name: str) -> None:
    compared = 0
    for case in RECORDED:
        members = _members_of(case)
        ours = ASSIGNORS[name](members, case["counts"])
        kafkas = {
            member_id: tuple(TopicPartition(*place) for place in owned) for member_id, owned in case[name].items()
        }
        if "sticky" in name and _more_hold_the_larger_share_than_may(members, case["counts"]):
            assert Counter(map(len, ours.values())) == Counter(map(len, kafkas.values()))
        else:
            assert as_sets(ours) == as_sets(kafkas), case
            compared += 1
    assert compared > 150


@st.composite
def rounds(draw: st.DrawFn) -> tuple[dict[str, int], list[list[Subscriber]]]:
    """Topics, and a group that changes: who is in it at each time, without what they own."""
    counts = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 8), min_size=1))
    topics = st.sets(st.sampled_from(["a", "b", "c", "missing"]), min_size=1)
    alike = draw(st.booleans())
    common = draw(topics)
    members = [
        Subscriber(
            f"m{number}",
            frozenset(common if alike else draw(topics)),
            instance_id=draw(st.sampled_from([None, f"i{number}"])),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    present = st.lists(st.sampled_from(members), min_size=1, unique_by=lambda each: each.member_id)
    return counts, draw(st.lists(present, min_size=2, max_size=4))


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(changing=rounds())
def test_every_partition_has_one_owner_that_wants_it(
    name: str, changing: tuple[dict[str, int], list[list[Subscriber]]]
) -> None:
    counts, groups = changing
    before: Assignment = {}
    for generation, members in enumerate(groups):
        assigned = ASSIGNORS[name](after(before, members, generation), counts)
        reversed_order = ASSIGNORS[name](after(before, members[::-1], generation), counts)
        assert assigned == reversed_order
        owned = [partition for partitions in assigned.values() for partition in partitions]
        wanted = {topic for each in members for topic in each.topics if topic in counts}
        assert sorted(owned) == [TopicPartition(topic, n) for topic in sorted(wanted) for n in range(counts[topic])]
        assert all(key.topic in each.topics for each in members for key in assigned[each.member_id])
        before = assigned


@given(changing=rounds())
def test_sticky_is_even_and_moves_nothing_that_may_stay(
    changing: tuple[dict[str, int], list[list[Subscriber]]],
) -> None:
    counts, groups = changing
    before: Assignment = {}
    for generation, members in enumerate(groups):
        assigned = ASSIGNORS["sticky"](after(before, members, generation), counts)
        again = ASSIGNORS["sticky"](after(assigned, members, generation + 1), counts)
        assert as_sets(again) == as_sets(assigned)
        for giver in members:
            for taker in members:
                movable = any(key.topic in taker.topics for key in assigned[giver.member_id])
                assert not movable or len(assigned[giver.member_id]) <= len(assigned[taker.member_id]) + 1
        before = assigned
