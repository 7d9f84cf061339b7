"""`lakelog jobs run`: what one job can't do is told in a line, and the others are run all the same."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from typer.testing import Result

from compaction_jobs import runner, scheduler
from compaction_jobs.application import Ended
from compaction_jobs.context import Context
from compaction_jobs.lease import Lease
from compaction_jobs.outcome import Amount, Outcome, Tell
from compaction_jobs.report import ProgressBar
from lakelog.broker import Broker
from lakelog.delta.store import StoreUnavailable
from lakelog.upkeep import Upkeep
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


@pytest.mark.parametrize("flushes", [False, True])
def test_jobs_flush_what_they_write_where_gateways_do(
    orphan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: bool
) -> None:
    flushed: list[int] = []
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(flush(descriptor) or 1))
    if flushes:
        monkeypatch.setenv("LAKELOG_FSYNC", "true")
    assert invoke("", "jobs", "run", "vacuum", "--warehouse", str(tmp_path)).exit_code == 0
    assert bool(flushed) == flushes


def test_a_topic_that_is_not_there_has_no_status(orphan: Path, tmp_path: Path) -> None:
    done = invoke("", "jobs", "status", "--topic", "nowhere", "--warehouse", str(tmp_path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nowhere" in done.stderr


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


def test_what_a_job_did_before_it_stopped_is_shown(
    orphan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(context: Context, topics: object, tell: Tell) -> NoReturn:
        tell(Outcome(job="merge", topic=TOPIC, partition=0, reason="small files", before=Amount(7, 70, 70)))
        raise StoreUnavailable("connection reset")

    monkeypatch.setitem(runner.TOPIC_JOBS, "merge", fails)
    done = invoke("", "jobs", "run", "merge", "--warehouse", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr == "lakelog: merge: the store failed: connection reset\n"
    assert f"{TOPIC}-0: small files" in done.stdout


def test_a_topic_that_goes_before_its_turn_does_not_fail_what_the_schedule_starts(
    orphan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def application(command: Sequence[str], environment: Mapping[str, str], **_: Any) -> Ended:
        begun.extend(command[command.index("run") :])
        return Ended(0, "")

    async def start() -> None:
        async with Broker.open(str(tmp_path), COLD) as broker:
            context = Context(broker, str(tmp_path))
            assert await scheduler._spark_application(context, ["compaction", "merge"], ["gone"])

    monkeypatch.setattr(scheduler, "run_application", application)
    asyncio.run(start())
    done = invoke("", "jobs", *begun)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "compaction: nothing to do\nmerge: nothing to do\n"
    named = [word for word in begun if word != "--if-exists"]
    done = invoke("", "jobs", *named)
    assert done.exit_code == 1
    assert "gone failed: there is no topic 'gone'" in done.stdout


def test_status_tells_what_is_due_what_waits_and_what_can_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the leader might merge some of the files before it stops.
    monkeypatch.setattr(Upkeep, "appended", lambda self, topic: None)

    async def fill() -> None:
        async with Broker.open(str(tmp_path), COLD) as broker:
            await broker.admin.create_topic("small", 1, {"segment.ms": "1"})
            await broker.admin.create_topic("waits", 1, {"retention.ms": "1", "segment.ms": "3600000"})
            await broker.admin.create_topic("unfit", 1)
            for topic in ("small", "waits"):
                for _ in range(8):
                    await append(broker, topic, records(["a"], timestamps_ms=[time.time_ns() // 1_000_000 - 60_000]))

    asyncio.run(fill())
    (tmp_path / "unfit" / "_delta_log" / f"{1:020d}.json").write_bytes(b"not JSON")
    done = invoke("", "jobs", "status", "--warehouse", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr.startswith("lakelog: unfit: the log of 'unfit' is not Delta's: ")
    lines = done.stdout.splitlines()
    assert "merge of small-0 is due: 8 small files" in lines
    assert "waits-0: 8 files are past retention.ms but not yet past segment.ms (3600000), so still active" in lines


def test_a_progress_bar_shows_on_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> str:
        with ProgressBar() as bar:
            bar.begin("merge", 4)
            bar.advance()
            bar.detail("3 of 7 tasks of Spark")
        return capsys.readouterr().err

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert shown() == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    assert all(part in shown() for part in ("merge", "1/4", "3 of 7 tasks of Spark"))


def test_serve_hands_the_scheduler_what_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []

    def begin(command: list[str], **_: object) -> SimpleNamespace:
        begun.append(command)
        return SimpleNamespace(stdin=io.BytesIO(), wait=lambda timeout: 0)

    monkeypatch.setattr("lakelog_cli.maintenance.subprocess", SimpleNamespace(Popen=begin, PIPE=None))

    def serve(*_: object, beside: AbstractContextManager[None], **__: object) -> None:
        with beside:
            pass

    monkeypatch.setattr("ingest_api.server.serve", serve)
    limits = ("--maintenance-io-bytes-per-second", "2000", "--maintenance-every-seconds", "7")
    done = invoke("", "serve", "--warehouse", str(tmp_path), *limits, "--offsets-retention-minutes", "11")
    assert done.exit_code == 0, done.exc_info
    ((_, _, _, *words),) = begun
    seen: list[Context] = []

    async def keep_clean(context: Context, every_s: float, until: object) -> None:
        seen.append(context)
        assert every_s == 7

    monkeypatch.setattr(scheduler, "keep_clean", keep_clean)
    monkeypatch.setattr(os, "nice", lambda by: by)
    assert invoke("", "jobs", *words).exit_code == 0
    assert [(each.url, each.io_bytes_per_second, each.offsets_retention_minutes) for each in seen] == [
        (str(tmp_path), 2000, 11)
    ]
