"""Consumers of groups over HTTP: how soon a new group has its first record, and how fast polls go.

Two consumers share a topic and poll it to its end, over and over. Beside Kafka's own consumer-perf-test, if there is a
peer to compare with (see `tests.bench.peers`).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pyarrow as pa
import uvloop

from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.bench.load import Connection, request
from tests.bench.peers import kafka
from tests.bench.report import figure, headline, milliseconds, rate, sample_records, scratch_folder

A = TypeVar("A")
R = TypeVar("R")

RECORDS = 2_000_000
PARTITIONS = 2
PASSES = 3
NEW_GROUPS = 100
POLL_BYTES = 8_000_000
JSON = "application/json"
FORMS = {
    "arrow": ("application/vnd.apache.arrow.stream", 2.0),
    "binary": ("application/vnd.kafka.binary.v2+json", 0.5),
    "json": ("application/vnd.kafka.json.v2+json", 0.5),
}
# A reply without records is shorter, in any form.
EMPTY_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Passes:
    """Read a topic to its end `times` times, by as many consumers as it has partitions."""

    url: str
    format: str
    times: int


def run() -> None:
    headline("consumers: groups over HTTP, records of 100 bytes")
    theirs = _consumer_perf_test()
    if theirs is not None:
        figure("Kafka, consumer-perf-test (C)", rate(theirs, 1))
    with scratch_folder() as folder, LocalGateway(folder / "warehouse", folder / "gateway.log", None) as gateway:
        with LakelogClient(gateway.url) as client:
            client.create_topic("small", 1)
            client.produce("small", [{"filling": "x" * 100}])
            client.create_topic("large", PARTITIONS)
            values = pa.table({"value": sample_records(10_000).batch.column("value")})
            for number in range(RECORDS // 10_000):
                client.produce("large", values, partition=number % PARTITIONS)
        samples = _apart(_first_records, gateway.url)
        figure("a new group's first record, from three requests", milliseconds(samples), aim="p50 under 50 ms")
        for format, (_, factor) in FORMS.items():
            seconds = _apart(_read_through, Passes(gateway.url, format, PASSES))
            ours = RECORDS * PASSES / seconds
            against = "" if theirs is None else f"{ours / theirs:.2f} C"
            figure(f"polls in {format}", rate(ours, 1), against=against, aim=f"at least {factor:g} C")


def _consumer_perf_test() -> float | None:
    with kafka() as peer:
        if peer is None:
            return None
        options = (
            "--parts=produce,consume",
            "--sizes=100",
            "--acks=all",
            "--batches=131072",
            "--compressions=none",
            "--times=1",
        )
        runs = peer.measure("kafka_bench.py", *options)
    return statistics.median(each["rec_s"] for each in runs if each["part"] == "consume")


def _apart(work: Callable[[A], R], argument: A) -> R:
    """In a process of its own, so that what the client costs is not taken for the gateway's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (argument,))


def _first_records(url: str) -> list[float]:
    async def measure() -> list[float]:
        connection = await Connection.open(url)
        samples = []
        for number in range(NEW_GROUPS):
            started = time.perf_counter()
            path = await _consumer(connection, url, f"group-{number}", "json", "small")
            reply = await connection.exchange(request(url, "GET", f"{path}/records?timeout=10000", {}))
            samples.append(time.perf_counter() - started)
            assert len(msgspec.json.decode(reply)) == 1
        return samples

    return uvloop.run(measure())


def _read_through(passes: Passes) -> float:
    async def measure() -> float:
        connections = [await Connection.open(passes.url) for _ in range(PARTITIONS)]
        group = f"all-of-{passes.format}"
        paths = [await _consumer(each, passes.url, group, passes.format, "large") for each in connections]
        readers = [Reader(passes, *pair) for pair in zip(connections, paths, strict=True)]
        for _ in range(PARTITIONS):  # until each has heard of the others
            for reader in readers:
                await reader.assigned()
        for reader in readers:
            await reader.to_the_end()  # and the memory is warm
        started = time.perf_counter()
        await asyncio.gather(*(reader.all_passes() for reader in readers))
        return time.perf_counter() - started

    return uvloop.run(measure())


class Reader:
    def __init__(self, passes: Passes, connection: Connection, path: str) -> None:
        accept, _ = FORMS[passes.format]
        self._passes = passes
        self._connection = connection
        self._path = path
        self._poll = request(passes.url, "GET", f"{path}/records?timeout=0&max_bytes={POLL_BYTES}", {"Accept": accept})

    async def assigned(self) -> bytes:
        return await self._connection.exchange(request(self._passes.url, "GET", f"{self._path}/assignments", {}))

    async def to_the_end(self) -> None:
        while len(await self._connection.exchange(self._poll)) > EMPTY_BYTES:
            pass

    async def all_passes(self) -> None:
        mine = await self.assigned()
        for _ in range(self._passes.times):
            await self._connection.exchange(_post(self._passes.url, f"{self._path}/positions/beginning", mine))
            await self.to_the_end()


async def _consumer(connection: Connection, url: str, group: str, format: str, topic: str) -> str:
    options = {"format": format, "auto.offset.reset": "earliest", "auto.commit.enable": False}
    made = await connection.exchange(_post(url, f"/consumers/{group}", msgspec.json.encode(options)))
    path = f"/consumers/{group}/instances/{msgspec.json.decode(made)['instance_id']}"
    await connection.exchange(_post(url, f"{path}/subscription", msgspec.json.encode({"topics": [topic]})))
    return path


def _post(url: str, path: str, body: bytes) -> bytes:
    return request(url, "POST", path, {"Content-Type": JSON}, body)
