"""How fast the gateway takes records in and gives them out, beside a Kafka broker if there is one to compare with.

The figures of Kafka (`tests.bench.peers`) are those of its own performance tools.
"""

from __future__ import annotations

import asyncio
import base64
import statistics
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import uvloop

from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.bench import peers
from tests.bench.load import Connection, Load, Outcome, request
from tests.bench.load import run as send
from tests.bench.report import Stopwatch, figure, headline, milliseconds, rate, sample_records, scratch_folder

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
SECONDS = 5.0
LONE_RECORDS = 300
# A topic that is idle: its commit budget is never used up.
PAUSE_S = 0.03
FETCHED_RECORDS = 2_000_000
FETCH_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class Kafka:
    """Records a second of Kafka's producer-perf-test and consumer-perf-test, in this run."""

    produce: float
    fetch: float


def run() -> None:
    headline("gateway: records of 100 bytes over HTTP, acks=all")
    kafka = _kafka()
    if kafka is not None:
        figure("Kafka, producer-perf-test, 128 KiB batches (K)", rate(kafka.produce, 1))
        figure("Kafka, consumer-perf-test (C)", rate(kafka.fetch, 1))
    with scratch_folder() as folder, LocalGateway(folder / "warehouse", folder / "gateway.log", None) as gateway:
        with LakelogClient(gateway.url) as client:
            client.create_topic("bench", 1)
            client.create_topic("quiet", 1)
            client.create_topic("fetched", 1)
        _lone(gateway.url)
        _one_a_request(gateway.url)
        _produce(gateway.url, kafka)
        _fetch(gateway.url, kafka)
        figure("most resident memory of the gateway", f"{_peak_mb(gateway.process.pid):,.0f} MB", aim="under 600 MB")


def _lone(url: str) -> None:
    figure("a lone record", milliseconds(uvloop.run(_lone_seconds(url))), aim="p50 under 6 ms")
    _seen(url)


async def _lone_seconds(url: str) -> list[float]:
    connection, body = await Connection.open(url), _body(url, "quiet", JSON, 1)
    samples: list[float] = []
    for _ in range(LONE_RECORDS):
        await asyncio.sleep(PAUSE_S)
        watch = Stopwatch()
        await connection.exchange(body)
        samples.append(watch.seconds)
    connection.close()
    return samples


def _seen(url: str) -> None:
    """From before the send until a fetch that was waiting has the record."""
    with LakelogClient(url) as client:
        (end,) = client.offsets_at("quiet", "latest").values()
    samples = uvloop.run(_seen_seconds(url, end))
    figure("seen by a waiting fetch", milliseconds(samples), aim="p50 under 10 ms")


async def _seen_seconds(url: str, end: int) -> list[float]:
    samples: list[float] = []
    producer, reader = await Connection.open(url), await Connection.open(url)
    body = _body(url, "quiet", JSON, 1)
    for offset in range(end, end + LONE_RECORDS):
        path = f"/topics/quiet/partitions/0/records?offset={offset}&timeout=10000"
        waiting = asyncio.create_task(reader.exchange(request(url, "GET", path, {"Accept": JSON})))
        await asyncio.sleep(PAUSE_S)
        watch = Stopwatch()
        sent = asyncio.create_task(producer.exchange(body))
        await waiting
        samples.append(watch.seconds)
        await sent
    producer.close()
    reader.close()
    return samples


def _one_a_request(url: str) -> None:
    for connections, aim in ((32, 1_500), (256, 5_000)):
        outcome = send(Load(url, [_body(url, "bench", JSON, 1)], connections=connections, seconds=SECONDS))
        figure(
            f"one record a request, {connections} connections",
            rate(outcome.requests_per_second, 1, "requests/s"),
            against=f"[{min(outcome.rates()):,.0f} to {max(outcome.rates()):,.0f}] {milliseconds(outcome.latencies_s)}",
            aim=f"at least {aim:,}",
        )


def _produce(url: str, kafka: Kafka | None) -> None:
    for form, name, records, connections, factor in (
        (JSON, "JSON", 100, 64, 0.5),
        (BINARY, "binary", 100, 64, 0.5),
        (JSON, "JSON", 1_000, 32, 1.0),
        (BINARY, "binary", 1_000, 32, 1.0),
        (ARROW, "Arrow", 10_000, 8, 3.0),
    ):
        outcome = send(Load(url, [_body(url, "bench", form, records)], connections=connections, seconds=SECONDS))
        _compared(
            f"{name} produce, {records:,} a request", outcome, records, kafka.produce if kafka else None, factor, "K"
        )


def _fetch(url: str, kafka: Kafka | None) -> None:
    with LakelogClient(url) as client:
        values = pa.table({"value": sample_records(10_000).batch.column("value")})
        for _ in range(FETCHED_RECORDS // 10_000):
            client.produce("fetched", values)
        for form, name, factor in ((ARROW, "Arrow", 3.0), (BINARY, "binary", 0.5), (JSON, "JSON", 0.5)):
            starts, position = [0], 0
            while position < FETCHED_RECORDS:
                position = client.fetch("fetched", positions={0: position}, max_bytes=FETCH_BYTES).next_positions[0]
                starts.append(position)
            per_fetch = FETCHED_RECORDS / (len(starts) - 1)
            path = "/topics/fetched/partitions/0/records?max_bytes={}&offset={}"
            fetches = [request(url, "GET", path.format(FETCH_BYTES, at), {"Accept": form}) for at in starts[:-1]]
            outcome = send(Load(url, fetches, connections=2, seconds=SECONDS))
            _compared(f"{name} fetch", outcome, per_fetch, kafka.fetch if kafka else None, factor, "C")


def _compared(name: str, outcome: Outcome, records: float, theirs: float | None, factor: float, letter: str) -> None:
    ours = outcome.requests_per_second * records
    against = f"[{min(outcome.rates()) * records:,.0f} to {max(outcome.rates()) * records:,.0f}]"
    if theirs is not None:
        against = f"{ours / theirs:.2f} {letter} {against}"
    figure(name, rate(ours, 1), against=against, aim=f"at least {factor:g} {letter}")


def _body(url: str, topic: str, form: str, records: int) -> bytes:
    values = sample_records(records).batch.column("value")
    if form == ARROW:
        batch = pa.record_batch({"value": values})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = sink.getvalue().to_pybytes()
    else:
        texts = [value.decode() for value in values.to_pylist()]
        if form == BINARY:
            texts = [base64.b64encode(text.encode()).decode() for text in texts]
        content = msgspec.json.encode({"records": [{"value": text} for text in texts]})
    return request(url, "POST", f"/topics/{topic}", {"Content-Type": form}, content)


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) / 1000


def _kafka() -> Kafka | None:
    with peers.kafka() as broker, scratch_folder() as scratch:
        if broker is None:
            return None
        options = ("--parts=produce,consume", "--sizes=100", "--acks=all", "--batches=131072", "--compressions=none")
        runs = broker.measure("kafka_bench.py", *options, "--out", str(scratch / "kafka.jsonl"))
    return Kafka(
        statistics.median(each["rec_s"] for each in runs if each["part"] == "produce"),
        statistics.median(each["rec_s"] for each in runs if each["part"] == "consume"),
    )
