"""A process that appends to a warehouse on a disk until it is told to stop, or killed.

`python -m tests.e2e.writer_process WAREHOUSE TOPIC NAME JOURNAL`. What was acknowledged goes to the journal, a line of
JSON per request with its values, partitions and offsets, and is flushed before a line on standard output says so. A
line on standard input stands for one request and its end for the end; with `--on-its-own` requests follow each other
until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TextIO

from lakelog.broker import Broker
from lakelog.model.batch import ListRecords

PARTITIONS = 2
IN_FLIGHT = 4
RECORDS = 3


async def append(broker: Broker, topic: str, name: str, number: int, journal: TextIO) -> None:
    """Records of one request for one partition, named so that each is known again."""
    values = [f"{name}/{number}/{position}" for position in range(RECORDS)]
    partitions = [number % PARTITIONS] * RECORDS
    records = ListRecords([value.encode() for value in values], sum(map(len, values)), partitions=partitions)
    appended = await broker.append(topic, records)
    assert appended is not None
    entry = {"values": values, "partition": partitions[0], "offsets": appended.offsets.tolist()}
    journal.write(json.dumps(entry) + "\n")
    journal.flush()
    print(time.monotonic_ns(), flush=True)


async def on_its_own(broker: Broker, topic: str, name: str, journal: TextIO) -> None:
    """Several requests in flight at any time."""
    loop = asyncio.get_running_loop()
    told_to_stop = loop.run_in_executor(None, sys.stdin.read)

    async def one_after_the_other(first: int) -> None:
        number = first
        while not told_to_stop.done():
            await append(broker, topic, name, number, journal)
            number += IN_FLIGHT

    await asyncio.gather(*(one_after_the_other(first) for first in range(IN_FLIGHT)))


async def on_request(broker: Broker, topic: str, name: str, journal: TextIO) -> None:
    loop = asyncio.get_running_loop()
    number = 0
    while await loop.run_in_executor(None, sys.stdin.readline):
        await append(broker, topic, name, number, journal)
        number += 1


async def write(warehouse: str, topic: str, name: str, journal: TextIO, *, alone: bool) -> None:
    async with Broker.open(warehouse) as broker:
        await (on_its_own if alone else on_request)(broker, topic, name, journal)


def main(warehouse: str, topic: str, name: str, journal_path: str, *flags: str) -> None:
    with Path(journal_path).open("a") as journal:
        asyncio.run(write(warehouse, topic, name, journal, alone="--on-its-own" in flags))


if __name__ == "__main__":
    main(*sys.argv[1:])
