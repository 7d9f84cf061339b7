"""From a record's sending until it is in the table, beside the way from Kafka over Spark to Delta.

Ours is measured up to the acknowledgement, which comes after the commit: whoever reads the table then finds the record.
Theirs ends when the commit stands that adds the record's file.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping

import deltalake

from lakelog.client import AsyncLakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.bench.peers import kafka
from tests.bench.report import figure, headline, milliseconds, scratch_folder

RATE = 100
SECONDS = 30
WARMUP_S = 20
TOPIC = "seen"
VALUE = "x" * 100
# Delta's default of fifty partitions for its own log is for clusters, and makes Kafka's way several times longer here.
TUNED = "spark.databricks.delta.snapshotPartitions=2"
# By default a busy topic writes fifty files a second: half of the records wait for the next one.
BUDGET = "flush.files.per.second"


def run() -> None:
    headline(f"visible: {RATE} records a second, from the sending until a reader of the Delta table finds the record")
    with kafka() as broker:
        theirs = None
        if broker is not None:
            broker.create_topic(TOPIC, 1)
            options = ("--rate", str(RATE), "--seconds", str(SECONDS), "--warmup", str(WARMUP_S), "--conf", TUNED)
            (theirs,) = broker.measure_spark("stream", "--topic", TOPIC, "--repeat", "1", *options)
            figure("Kafka, Spark, Delta (S)", f"p50 {theirs['p50_ms']:,.0f} ms, p99 {theirs['p99_ms']:,.0f} ms")
    for label, configs in (("a topic", {}), ("a topic, flush.files.per.second=200", {BUDGET: "200"})):
        samples = _measure(configs)
        against = ""
        if theirs is not None:
            against = f"{theirs['p50_ms'] / 1000 / statistics.median(samples):,.0f} times sooner than S"
        figure(label, milliseconds(samples), against=against, aim="at least 100 times sooner")


def _measure(configs: Mapping[str, str]) -> list[float]:
    with scratch_folder() as folder, LocalGateway(folder / "warehouse", folder / "gateway.log") as gateway:
        samples = asyncio.run(_send(gateway.url, configs))
        table = deltalake.DeltaTable(folder / "warehouse" / TOPIC)
        assert sum(table.get_add_actions(flatten=True).column("num_records").to_pylist()) == RATE * SECONDS
        return samples


async def _send(url: str, configs: Mapping[str, str]) -> list[float]:
    """At a steady rate, whether earlier ones have been answered or not."""
    samples: list[float] = []

    async def send(client: AsyncLakelogClient) -> None:
        started = time.perf_counter()
        await client.produce(TOPIC, [VALUE])
        samples.append(time.perf_counter() - started)

    async with AsyncLakelogClient(url) as client, asyncio.TaskGroup() as group:
        await client.create_topic(TOPIC, 1, configs)
        due = time.perf_counter()
        for _ in range(RATE * SECONDS):
            group.create_task(send(client))
            due += 1 / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return samples
