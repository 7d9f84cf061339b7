"""The same jobs on a real cluster: a master and two workers, started by Spark's own script, and spark-submit."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from lakelog.broker import Broker
from lakelog.spark import SparkUnavailable
from lakelog.spark.session import require_java
from tests.conftest import SHORT_LIVED_JAVA
from tests.contract.records import COLD
from tests.spark.job_runs import COMPACTED, put, served

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

TOPICS = ("customers", "orders")
PARTITIONS = 3
PATIENCE_S = 240.0
SPARK_BIN = Path(pyspark.__file__).parent / "bin"
# Small, for two workers beside everything else on a machine.
MEMORY = "512m"


def surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAKELOG_", "PYSPARK_"))}
    daemons = {"SPARK_DAEMON_MEMORY": MEMORY, "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JAVA}
    return {**kept, **daemons, "PYSPARK_PYTHON": sys.executable, "COLUMNS": "200"}


class Daemon:
    """A master or a worker, which says in its log what it has come to."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as written:
            command = [str(SPARK_BIN / "spark-class"), *arguments]
            self.process = subprocess.Popen(command, stdout=written, stderr=written, env=surroundings())

    def said(self, pattern: str) -> str:
        for _ in range(int(PATIENCE_S * 10)):
            if found := re.search(pattern, self._log.read_text(errors="replace")):
                return found[0]
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        raise AssertionError(f"no {pattern!r} in: {self._log.read_text(errors='replace')[-3000:]}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with two workers of one core each."""
    try:
        require_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        lead = Daemon(tmp_path / "master.log", "org.apache.spark.deploy.master.Master", *here)
        stack.callback(lead.stop)
        url = lead.said(r"spark://127\.0\.0\.1:\d+")
        workers: list[Daemon] = []
        for name in ("first", "second"):
            share = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name))
            workers.append(
                Daemon(tmp_path / f"{name}.log", "org.apache.spark.deploy.worker.Worker", *here, *share, url)
            )
            stack.callback(workers[-1].stop)
        for worker in workers:
            worker.said("Successfully registered with master")
        yield url


async def _fill(warehouse: str) -> None:
    async with Broker.open(warehouse, COLD) as broker:
        for topic in TOPICS:
            await broker.admin.create_topic(topic, PARTITIONS, {**COMPACTED, "segment.ms": "1"})
            for partition in range(PARTITIONS):
                for number in range(3):
                    pairs = [(b"%d" % key, b"%s-%d" % (topic.encode(), number)) for key in range(20)]
                    await put(broker, topic, pairs, partition=partition)


async def _check(warehouse: str) -> None:
    async with Broker.open(warehouse, COLD) as broker:
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                latest = [(40 + key, b"%d" % key, b"%s-2" % topic.encode()) for key in range(20)]
                assert await served(broker, topic, partition) == latest


def test_every_topic_is_compacted_over_the_cluster(master: str, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    asyncio.run(_fill(warehouse))
    entry = str(Path(sys.modules["compaction_jobs"].__path__[0]) / "__main__.py")
    submit = [str(SPARK_BIN / "spark-submit"), "--master", master]
    settings = (
        "spark.driver.host=127.0.0.1",
        "spark.ui.enabled=false",
        f"spark.executor.memory={MEMORY}",
        f"spark.executor.extraJavaOptions={SHORT_LIVED_JAVA}",
    )
    for setting in settings:
        submit += ["--conf", setting]
    done = subprocess.run(
        [*submit, entry, "run", "all", "--warehouse", warehouse],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=surroundings(),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("60 → 20") == len(TOPICS) * PARTITIONS
    asyncio.run(_check(warehouse))
    # Both workers had a part in it.
    assert all(list((tmp_path / name).glob("app-*/*/stderr")) for name in ("first", "second"))
