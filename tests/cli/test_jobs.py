"""`lakelog jobs run`: what one job can't do is told in a line, and the others are run all the same."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import Result

from compaction_jobs import runner
from compaction_jobs.lease import Lease
from lakelog.broker import Broker
from lakelog.delta.store import StoreUnavailable
from tests.cli.conftest import invoke
from tests.contract.records import COLD, append, records

TOPIC = "customers"
SPARK_JOBS = ("compaction", "merge")


@pytest.fixture
def orphan(tmp_path: Path) -> Path:
    """In a warehouse with something to do for every job: what the vacuum, which is the last one, has to take away."""

    async def fill() -> None:
        async with Broker.open(str(tmp_path), COLD) as broker:
            await broker.admin.create_topic(TOPIC, 1, {"cleanup.policy": "compact", "segment.ms": "1"})
            for value in ("a", "b", "c"):
                await append(broker, TOPIC, records([value], keys=[b"key"]))

    asyncio.run(fill())
    file = tmp_path / TOPIC / "partition=0" / f"{0:020d}-orphan.parquet"
    file.write_bytes(b"nobody's")
    os.utime(file, times=(time.time() - 86_400,) * 2)
    return file


def run_all(warehouse: Path) -> Result:
    return invoke("", "jobs", "run", "all", "--warehouse", str(warehouse))


def assert_told(done: Result, told: str) -> None:
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    lines = done.stderr.splitlines()
    assert [line.partition(told)[0] for line in lines] == [f"lakelog: {job}: " for job in SPARK_JOBS]


def test_without_java_the_jobs_that_need_none_are_run(
    orphan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    assert_told(run_all(tmp_path), "Spark needs Java 17 or later")
    assert not orphan.exists()


def test_a_store_that_fails_under_one_job_is_asked_again_by_the_next(
    orphan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Lease) -> NoReturn:
        raise StoreUnavailable("__maintenance/_leases: connection reset")

    monkeypatch.setattr(Lease, "__aenter__", fails)
    assert_told(run_all(tmp_path), "the store failed: __maintenance/_leases: connection reset")
    assert not orphan.exists()


def test_a_fault_of_one_job_does_not_keep_the_others(
    orphan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> NoReturn:
        raise ZeroDivisionError("a fault of ours")

    for job in SPARK_JOBS:
        monkeypatch.setitem(runner.TOPIC_JOBS, job, fails)
    done = run_all(tmp_path)
    assert done.exit_code == 1
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a fault of ours"] * 2
    assert not orphan.exists()
