"""Tries to break promises 1 to 5 by what several servers on one warehouse may live through.

Each run is a list of steps that Hypothesis makes up: clients send, read and repeat themselves while servers crash and
come back, the store loses requests and replies, tails are merged, logs cut and records deleted. In the end the log has
to say what the clients were told. `LAKELOG_SIMULATION_RUNS` sets how many runs there are; the same ones every time
unless `LAKELOG_SIMULATION_SEED` asks for others (`random` for new ones each time).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.simulation.faulty_store import Faults
from tests.simulation.virtual_time import run
from tests.simulation.world import TOPIC, World, small_steps

RUNS = int(os.environ.get("LAKELOG_SIMULATION_RUNS", "120"))
SEED = os.environ.get("LAKELOG_SIMULATION_SEED", "")

WEATHER = {
    "calm": Faults(),
    "slow": Faults(delay_ms_max=400),
    "rough": Faults(never_arrives=0.08, reply_lost=0.08, late=0.05, delay_ms_max=30),
    "storm": Faults(never_arrives=0.25, reply_lost=0.25, late=0.15, delay_ms_max=100),
    "outage": Faults(outage=True),
    "locked": Faults(refuses=True),
}


@dataclass(frozen=True, slots=True)
class Send:
    producer: int
    server: int
    batches: int
    records: int


@dataclass(frozen=True, slots=True)
class SendOnCondition:
    producer: int
    server: int
    partition: int
    off_by: int


@dataclass(frozen=True, slots=True)
class SendAgain:
    producer: int
    server: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    producer: int
    server: int


@dataclass(frozen=True, slots=True)
class Read:
    reader: int
    server: int
    max_bytes: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class Crash:
    server: int
    in_calls: int


@dataclass(frozen=True, slots=True)
class Restart:
    server: int


@dataclass(frozen=True, slots=True)
class Turn:
    weather: str


@dataclass(frozen=True, slots=True)
class Pass:
    ms: int


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    server: int
    partition: int
    share: float


@dataclass(frozen=True, slots=True)
class AddPartition:
    server: int
    total: int


@dataclass(frozen=True, slots=True)
class AlterConfig:
    server: int
    segment_bytes: int


Step: TypeAlias = (
    Send
    | SendOnCondition
    | SendAgain
    | TakeOver
    | Read
    | Crash
    | Restart
    | Turn
    | Pass
    | DeleteRecords
    | AddPartition
    | AlterConfig
)

SERVERS, PRODUCERS, READERS, PARTITIONS = 3, 4, 2, 2
_server = st.integers(0, SERVERS - 1)
_producer = st.integers(0, PRODUCERS - 1)
_partition = st.integers(0, PARTITIONS - 1)
_send = st.builds(Send, _producer, _server, st.integers(1, 4), st.integers(1, 5))
_step: st.SearchStrategy[Step] = st.one_of(
    # What is there twice happens twice as often.
    _send,
    _send,
    _send,
    _send,
    _send,
    _send,
    st.builds(SendOnCondition, st.sampled_from([0, 3]), _server, _partition, st.sampled_from([0, 0, 0, 1])),
    st.builds(SendAgain, st.sampled_from([1, 2]), _server),
    st.builds(TakeOver, st.sampled_from([1, 2]), _server),
    st.builds(
        Read, st.integers(0, READERS - 1), _server, st.sampled_from([100, 400, 100_000]), st.sampled_from([0, 50])
    ),
    st.builds(Crash, _server, st.integers(0, 25)),
    st.builds(Crash, _server, st.integers(0, 25)),
    st.builds(Restart, _server),
    st.builds(Turn, st.sampled_from(sorted(WEATHER))),
    st.builds(Turn, st.just("calm")),
    st.builds(Pass, st.sampled_from([1, 10, 200, 3_000])),
    st.builds(Pass, st.sampled_from([1, 10, 200, 3_000])),
    st.builds(Pass, st.sampled_from([400_000, 1_500_000])),
    st.builds(DeleteRecords, _server, _partition, st.sampled_from([0.3, 0.9, 1.0])),
    st.builds(AddPartition, _server, st.integers(PARTITIONS, PARTITIONS + 2)),
    st.builds(AlterConfig, _server, st.sampled_from([6_000, 12_000, 100_000])),
)


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    with small_steps():
        yield


async def _take(world: World, step: Step) -> None:
    match step:
        case Send(producer, server, batches, records):
            world.start(world.send(world.producers[producer], server, batches, records))
        case SendOnCondition(producer, server, partition, off_by):
            world.start(world.send_on_condition(world.producers[producer], server, partition, off_by))
        case SendAgain(producer, server):
            world.start(world.send_again(world.producers[producer], server))
        case TakeOver(producer, server):
            world.start(world.take_over(world.producers[producer], server))
        case Read(reader, server, max_bytes, max_wait_ms):
            world.start(world.read(f"reader-{reader}", server, max_bytes, max_wait_ms))
        case Crash(server, in_calls):
            world.servers[server].store.cut_after(in_calls)
        case Restart(server):
            if world.servers[server].gone.done():
                world.servers[server].start()
        case Turn(weather):
            world.faults.become(WEATHER[weather])
        case Pass(ms):
            await asyncio.sleep(ms / 1000)
        case DeleteRecords(server, partition, share):
            world.start(world.delete_records(server, partition, share))
        case AddPartition(server, total):
            world.start(world.change(server, lambda broker: broker.admin.add_partitions(TOPIC, total)))
        case AlterConfig(server, segment_bytes):
            config = {"segment.bytes": str(segment_bytes)}
            world.start(world.change(server, lambda broker: broker.admin.alter_config(TOPIC, config)))


async def _live_through(chance: int, *lives: list[Step]) -> None:
    """A life per topic: the second one has the name of the first, which is deleted before."""
    world = World(chance, SERVERS, PRODUCERS)
    await world.begin(PARTITIONS)
    for number, steps in enumerate(lives):
        if number:
            await world.replace_topic(number)
        for step in steps:
            await _take(world, step)
        await world.check()


def _some_runs(count: int) -> settings:
    return settings(
        max_examples=count,
        derandomize=not SEED,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def _lives(shortest: int, longest: int) -> st.SearchStrategy[list[Step]]:
    return st.lists(_step, min_size=shortest, max_size=longest)


_chance = st.integers(0, 2**32 - 1)


@_some_runs(RUNS)
@given(chance=_chance, steps=_lives(30, 100))
def test_the_log_says_what_its_clients_were_told(chance: int, steps: list[Step]) -> None:
    run(_live_through(chance, steps))


@_some_runs(RUNS // 3)
@given(chance=_chance, first=_lives(1, 30), second=_lives(1, 30))
def test_a_topic_that_takes_the_name_of_a_deleted_one_is_a_log_of_its_own(
    chance: int, first: list[Step], second: list[Step]
) -> None:
    run(_live_through(chance, first, second))


if SEED and SEED != "random":
    for _test in (
        test_the_log_says_what_its_clients_were_told,
        test_a_topic_that_takes_the_name_of_a_deleted_one_is_a_log_of_its_own,
    ):
        seed(int(SEED))(_test)
