"""Jobs beside real gateways, killed without warning, and as they are started by people and schedules."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from compaction_jobs.command import app
from lakelog.broker import Broker
from lakelog.client import LakelogClient, Record
from lakelog_cli.local_gateway import LocalGateway
from tests.conftest import Warehouse
from tests.contract.records import COLD
from tests.gateway_process import environment, gateway
from tests.spark.job_runs import COMPACTED, put, run, served

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

TOPIC = "accounts"
PARTITIONS = 2
KEYS = 10
PATIENCE_S = 180.0

Places = dict[tuple[int, int], tuple[bytes, bytes]]


class Traffic:
    """A producer and a reader of a gateway, each in a thread of its own, until told to stop."""

    def __init__(self, url: str) -> None:
        self.acknowledged: Places = {}
        self.read: list[tuple[int, int, bytes | None, bytes | None]] = []
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._read)]
        self._failures: list[BaseException] = []
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert self._failures == []

    def _produce(self) -> None:
        try:
            with LakelogClient(self._url) as client:
                number = 0
                while not self._stop.is_set():
                    partition = number % PARTITIONS
                    pairs = [(b"%d" % ((number + i) % KEYS), b"%d.%d" % (number, i)) for i in range(5)]
                    records = [Record(value, key=key) for key, value in pairs]
                    (range_,) = client.produce(TOPIC, records, partition=partition).ranges
                    offsets = range(range_.start_offset, range_.end_offset)
                    self.acknowledged |= {(partition, o): pair for o, pair in zip(offsets, pairs, strict=True)}
                    number += 1
        except BaseException as error:
            self._failures.append(error)

    def _read(self) -> None:
        try:
            with LakelogClient(self._url) as client:
                while not self._stop.is_set():
                    # From the beginning each time, so that it reads what jobs are rewriting.
                    stream = client.stream(TOPIC, offset="earliest", follow=False)
                    self.read += [(each.partition, each.offset, each.key, each.value) for each in stream]
                    self.read.append((-1, -1, None, None))
        except BaseException as error:
            self._failures.append(error)

    @property
    def readings(self) -> Iterator[list[tuple[int, int, bytes | None, bytes | None]]]:
        reading: list[tuple[int, int, bytes | None, bytes | None]] = []
        for row in self.read:
            if row[0] < 0:
                yield reading
                reading = []
            else:
                reading.append(row)


async def test_beside_a_live_gateway_nothing_is_lost_and_no_reader_breaks(spark: SparkSession, tmp_path: Path) -> None:
    with gateway(tmp_path, {"hot_tail_bytes_max": "0"}) as server:
        with LakelogClient(server.url) as client:
            client.create_topic(TOPIC, PARTITIONS, {**COMPACTED, "segment.ms": "300"})
        traffic = Traffic(server.url)
        warehouse = Warehouse(str(tmp_path / "warehouse"), {})
        cleaned = 0
        try:
            async with Broker.open(warehouse.url, COLD) as broker, asyncio.timeout(PATIENCE_S):
                while cleaned < 4 * PARTITIONS:
                    for job in ("compaction", "merge", "vacuum"):
                        outcomes = await run(job, broker, warehouse, spark, force=True)
                        assert all(each.error is None or "next run" in each.error for each in outcomes)
                        cleaned += sum(each.job == "compaction" and each.error is None for each in outcomes)
        finally:
            await asyncio.to_thread(traffic.finish)
        async with Broker.open(warehouse.url, COLD) as broker:
            await _check(broker, traffic)


async def _check(broker: Broker, traffic: Traffic) -> None:
    acknowledged = traffic.acknowledged
    for partition in range(PARTITIONS):
        rows = await served(broker, TOPIC, partition)
        mine = {offset: pair for (number, offset), pair in acknowledged.items() if number == partition}
        described = await broker.admin.describe_topic(TOPIC)
        assert described.partitions[partition].high_watermark == len(mine)
        assert all(mine[offset] == (key, value) for offset, key, value in rows), "no offset has changed"
        latest = {key: offset for offset, (key, _) in sorted(mine.items())}
        assert set(latest.values()) <= {offset for offset, _, _ in rows}, "the latest of every key is there"
    for reading in traffic.readings:
        for partition in range(PARTITIONS):
            offsets = [offset for number, offset, _, _ in reading if number == partition]
            assert offsets == sorted(set(offsets))
        assert all(acknowledged[number, offset] == (key, value) for number, offset, key, value in reading)


def command(warehouse: str, *arguments: str) -> Result:
    """The jobs' command line in this process, where it finds the session that is there."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--warehouse", warehouse])


async def _dirty(warehouse: str, partitions: int = 1, value: bytes = b"") -> None:
    """A topic that is due: in each partition a hundred keys, three times over."""
    async with Broker.open(warehouse, COLD) as broker:
        await broker.admin.create_topic(TOPIC, partitions, {**COMPACTED, "segment.ms": "1"})
        for partition in range(partitions):
            for number in range(3):
                pairs = [(b"%d" % key, b"%d" % number + value) for key in range(100)]
                await put(broker, TOPIC, pairs, partition=partition)


async def _offsets(warehouse: str, partitions: int = 1) -> list[list[int]]:
    async with Broker.open(warehouse, COLD) as broker:
        return [[row[0] for row in await served(broker, TOPIC, partition)] for partition in range(partitions)]


DIRTY_OFFSETS = list(range(300))
CLEAN_OFFSETS = list(range(200, 300))


def test_a_job_killed_half_way_leaves_the_table_right_and_the_next_run_finishes(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = str(tmp_path / "warehouse")
    # More partitions than are written at the same time, so that some files are done and others are not begun.
    partitions = 2 * (os.cpu_count() or 1) + 1
    asyncio.run(_dirty(warehouse, partitions, random.Random(6).randbytes(1000)))
    before = {str(path) for path in Path(warehouse, TOPIC).glob("*/*.parquet")}
    slowly = [sys.executable, "-m", "compaction_jobs", "run", "compaction", "--warehouse", warehouse]
    slowly += ["--io-bytes-per-second", "200000"]
    log = (tmp_path / "log").open("wb")
    job = subprocess.Popen(slowly, stdout=log, stderr=log, start_new_session=True, env=environment(""))
    try:
        _wait_until(job, lambda: len(list(Path(warehouse, TOPIC).glob("*/*.parquet"))) > len(before))
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        log.close()
    assert asyncio.run(_offsets(warehouse, partitions)) == [DIRTY_OFFSETS] * partitions

    done = command(warehouse, "run", "compaction")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("300 → 100") == partitions
    assert asyncio.run(_offsets(warehouse, partitions)) == [CLEAN_OFFSETS] * partitions


def _wait_until(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S * 10)):
        if happened():
            return
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError("the process did not get there")


def test_the_command_says_what_it_did_and_its_exit_code_tells(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    asyncio.run(_dirty(warehouse))
    status = command(warehouse, "status")
    assert status.exit_code == 0, status.output
    assert "dirty ratio 1.00, over 0.5" in status.stdout
    dry = command(warehouse, "run", "compaction", "--dry-run")
    assert (dry.exit_code, "would" in dry.stdout) == (0, True), dry.output
    assert asyncio.run(_offsets(warehouse)) == [DIRTY_OFFSETS]
    (first, *_) = sorted(Path(warehouse, TOPIC, "partition=0").glob("*.parquet"))
    whole = first.read_bytes()
    first.write_bytes(whole[:-20] + bytes(20))
    failed = command(warehouse, "run", "compaction")
    assert (failed.exit_code, TOPIC in failed.stdout) == (1, True), failed.output
    first.write_bytes(whole)
    assert command(warehouse, "run", "all").exit_code == 0
    assert asyncio.run(_offsets(warehouse)) == [CLEAN_OFFSETS]
    assert "compaction" in command(warehouse, "status").stdout, "among the last runs"
    wrong = command(warehouse, "run", "sweep")
    assert (wrong.exit_code, "no job 'sweep'" in wrong.stderr) == (2, True)
    nowhere = command(warehouse, "run", "merge", "--topic", "nowhere")
    assert (nowhere.exit_code, "no topic 'nowhere'" in nowhere.stdout) == (1, True)


def test_a_gateway_keeps_its_topics_clean_and_takes_the_scheduler_with_it(tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    asyncio.run(_dirty(warehouse))
    server = LocalGateway(warehouse, tmp_path / "log", {"maintenance_every_seconds": "1"}, maintenance=True)
    server.start()
    try:
        commits = Path(warehouse, TOPIC, "_delta_log")
        _wait_until(server.process, lambda: any('"COMPACT"' in path.read_text() for path in commits.glob("*.json")))
    finally:
        server.kill()
    assert asyncio.run(_offsets(warehouse)) == [CLEAN_OFFSETS]
    assert "compaction of accounts is due" in server.log
    with subprocess.Popen(["sleep", str(PATIENCE_S)]) as patience:
        _wait_until(patience, lambda: not processes_of(warehouse))
        patience.kill()


def processes_of(warehouse: str) -> list[Path]:
    """Those that were started with the name of a warehouse."""
    found: list[Path] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if warehouse.encode() in (process / "cmdline").read_bytes():
                found.append(process)
        except OSError:
            continue
    return found
