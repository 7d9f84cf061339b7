"""How the partitions of topics are divided among the members of a group: Kafka's four ways, with Kafka's results.

Owns pure functions from subscribers and partition counts to an assignment. Every subscriber gets an entry, every
partition of an existing topic that somebody subscribes to gets exactly one owner (the cooperative way may leave some
out for one round), and the same input gives the same result, in whatever order the subscribers come. Generations,
sessions and bytes must not be known here.

`range` divides each topic by itself, so that topics with as many partitions and the same readers are divided alike.
`roundrobin` deals all partitions out in turn. `sticky` balances as well as subscriptions allow, and moves as little
as it can. `cooperative-sticky` does the same in two rounds: what changes its owner is first taken from the old one,
and is given to the new one by the next rebalance.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member: what it wants, and what it had by its own account in which generation."""

    member_id: str
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None


Assignment: TypeAlias = dict[str, tuple[TopicPartition, ...]]
Assignor: TypeAlias = Callable[[Sequence[Subscriber], Mapping[str, int]], Assignment]


def assign_range(subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    given: dict[str, list[TopicPartition]] = {each.member_id: [] for each in subscribers}
    for topic in _topics_of(subscribers, partition_counts):
        readers = [each for each in _static_first(subscribers) if topic in each.topics]
        share, extra = divmod(partition_counts[topic], len(readers))
        start = 0
        for place, reader in enumerate(readers):
            end = start + share + (place < extra)
            given[reader.member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return _frozen(given)


def assign_round_robin(subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    given: dict[str, list[TopicPartition]] = {each.member_id: [] for each in subscribers}
    turns = deque(_static_first(subscribers))
    for partition in _partitions_of(subscribers, partition_counts):
        while partition.topic not in turns[0].topics:
            turns.rotate(-1)
        given[turns[0].member_id].append(partition)
        turns.rotate(-1)
    return _frozen(given)


def assign_sticky(subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    if not subscribers:
        return {}
    by_id = sorted(subscribers, key=lambda each: each.member_id)
    kept = _rightful(by_id, partition_counts)
    if all(each.topics == by_id[0].topics for each in by_id):
        return _frozen(_stick_alike(kept, _partitions_of(by_id, partition_counts)))
    return _frozen(_stick_unlike(by_id, kept, _partitions_of(by_id, partition_counts)))


def assign_cooperatively(subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """The sticky assignment without the partitions that someone else still has."""
    had = {each.member_id: frozenset(each.owned) for each in subscribers}
    assignment = assign_sticky(subscribers, partition_counts)
    claims = Counter(partition for owned in had.values() for partition in owned)

    def free(member_id: str, partition: TopicPartition) -> bool:
        return claims[partition] == (partition in had[member_id])

    return {
        member_id: tuple(partition for partition in partitions if free(member_id, partition))
        for member_id, partitions in assignment.items()
    }


def _frozen(given: Mapping[str, Iterable[TopicPartition]]) -> Assignment:
    return {member_id: tuple(partitions) for member_id, partitions in given.items()}


def _static_first(subscribers: Sequence[Subscriber]) -> list[Subscriber]:
    """Static members by instance id, then the others by member id: a static one keeps its place when it comes back."""

    def place(each: Subscriber) -> tuple[bool, str]:
        return each.instance_id is None, each.member_id if each.instance_id is None else each.instance_id

    return sorted(subscribers, key=place)


def _topics_of(subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> list[str]:
    wanted = frozenset[str]().union(*(each.topics for each in subscribers))
    return sorted(topic for topic in wanted if topic in partition_counts)


def _partitions_of(subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    topics = _topics_of(subscribers, partition_counts)
    return [TopicPartition(topic, partition) for topic in topics for partition in range(partition_counts[topic])]


def _rightful(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """What each subscriber had and may keep: of two claims the later generation's stands, of equal ones none."""
    latest: dict[TopicPartition, list[Subscriber]] = {}
    for each in subscribers:
        for partition in each.owned:
            rivals = latest.get(partition, [])
            if not rivals or each.generation > rivals[0].generation:
                latest[partition] = [each]
            elif each.generation == rivals[0].generation:
                rivals.append(each)

    def keeps(each: Subscriber, partition: TopicPartition) -> bool:
        exists = 0 <= partition.partition < partition_counts.get(partition.topic, 0)
        return exists and partition.topic in each.topics and latest[partition] == [each]

    return {each.member_id: [partition for partition in each.owned if keeps(each, partition)] for each in subscribers}


def _stick_alike(
    kept: Mapping[str, list[TopicPartition]], partitions: Sequence[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """All want the same topics, so nobody has two partitions more than another.

    `larger` members may have one more than `share`. They are first those who have that many already. Who has too many
    keeps the lowest partitions of each topic, and gives up the highest.
    """
    share, larger = divmod(len(partitions), len(kept))
    given: dict[str, list[TopicPartition]] = {}
    for member_id, owned in kept.items():
        more = larger > 0 and len(owned) > share
        larger -= more
        lowest_first = sorted(owned, key=lambda each: (each.partition, each.topic))
        given[member_id] = lowest_first[: share + more]
    taken = {partition for owned in given.values() for partition in owned}
    free = deque(partition for partition in partitions if partition not in taken)
    at_share = [member_id for member_id, owned in given.items() if len(owned) == share]
    hungry = [member_id for member_id, owned in given.items() if len(owned) < share]
    while hungry:
        for member_id in hungry:
            given[member_id].append(free.popleft())
        at_share += [member_id for member_id in hungry if len(given[member_id]) == share]
        hungry = [member_id for member_id in hungry if len(given[member_id]) < share]
    for member_id, partition in zip(at_share, free, strict=False):
        given[member_id].append(partition)
    return given


def _stick_unlike(
    subscribers: Sequence[Subscriber], kept: Mapping[str, list[TopicPartition]], partitions: Sequence[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """Subscriptions differ: give what is free to those who have least, then move while a move makes it more even.

    Partitions that few can take come first, so that those that many can take are left to even it out.
    """
    readers: dict[str, list[str]] = {}
    for each in subscribers:
        for topic in each.topics:
            readers.setdefault(topic, []).append(each.member_id)
    by_choice = sorted(partitions, key=lambda each: (len(readers[each.topic]), each))
    owner = {partition: member_id for member_id, owned in kept.items() for partition in owned}
    load = Counter({member_id: len(owned) for member_id, owned in kept.items()})

    def least_loaded(partition: TopicPartition) -> str:
        return min(readers[partition.topic], key=lambda member_id: (load[member_id], member_id))

    free = [partition for partition in by_choice if partition not in owner]
    for partition in free:
        owner[partition] = least_loaded(partition)
        load[owner[partition]] += 1

    moved: dict[TopicPartition, tuple[str, str]] = {}

    def even_out(movable: Sequence[TopicPartition]) -> bool:
        """One pass over the partitions; whether anything moved."""
        any_moved = False
        for partition in movable:
            giver, taker = owner[partition], least_loaded(partition)
            if load[giver] <= load[taker] + 1:
                continue
            # If one of this topic went the other way before, it goes back instead: one move less in all.
            back = [each for each, way in moved.items() if way == (taker, giver) and each.topic == partition.topic]
            chosen = min(back, default=partition)
            source = moved.pop(chosen, (giver, taker))[0]
            if source != taker:
                moved[chosen] = (source, taker)
            owner[chosen] = taker
            load[giver] -= 1
            load[taker] += 1
            any_moved = True
        return any_moved

    # What was just given out is moved first: it has nobody to stick to.
    for movable in (free, by_choice):
        while even_out(movable):
            pass
    given: dict[str, list[TopicPartition]] = {each.member_id: [] for each in subscribers}
    for partition in [*(each for owned in kept.values() for each in owned), *free]:
        given[owner[partition]].append(partition)
    return given
