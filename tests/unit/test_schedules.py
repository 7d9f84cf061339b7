"""The schedules under deploy/ start jobs that exist, in words that the command line takes."""

from __future__ import annotations

import ast
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from compaction_jobs.scheduler import SPARK_LIMIT_S
from compaction_jobs.surroundings import JOB_NAMES

FOLDER = Path(__file__).parents[2] / "deploy" / "jobs"


def jobs_in(words: list[str]) -> list[str]:
    """What follows `run`, up to the first option."""
    named = words[words.index("run") + 1 :]
    return list(takewhile(lambda word: not word.startswith("-"), named))


def crontab() -> list[list[str]]:
    lines = (FOLDER / "crontab").read_text().splitlines()
    return [jobs_in(line.split()) for line in lines if " jobs run " in line and not line.startswith("#")]


def kubernetes(name: str) -> list[list[str]]:
    found = []
    for document in yaml.safe_load_all((FOLDER / name).read_text()):
        spec = document.get("spec", {})
        if document["kind"] == "CronJob":
            (container,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
            found.append(jobs_in(container["command"]))
        elif document["kind"] == "ScheduledSparkApplication":
            found.append(jobs_in(spec["template"]["arguments"]))
    return found


def airflow() -> list[list[str]]:
    """Out of the program's texts and lists of texts: Airflow itself need not be there."""
    found = []
    for node in ast.walk(ast.parse((FOLDER / "airflow_dag.py").read_text())):
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            found.append(str(node.values[0].value).split())
        elif isinstance(node, ast.List):
            found.append([str(each.value) for each in node.elts if isinstance(each, ast.Constant)])
    return [jobs_in(words) for words in found if "run" in words]


def test_a_run_that_hangs_does_not_keep_the_next_ones_for_ever() -> None:
    """Where the schedule starts no second one beside it. As long as the built-in scheduler and the other schedules."""
    for job in yaml.safe_load_all((FOLDER / "kubernetes-cronjobs.yaml").read_text()):
        if job["kind"] == "CronJob":
            assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == SPARK_LIMIT_S
    locked = [line for line in (FOLDER / "crontab").read_text().splitlines() if "flock" in line]
    assert locked
    assert all(f"timeout {SPARK_LIMIT_S // 3600}h " in line for line in locked)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (crontab(), set(JOB_NAMES)),
        (kubernetes("kubernetes-cronjobs.yaml"), set(JOB_NAMES)),
        (kubernetes("kubernetes-spark-application.yaml"), {"compaction", "merge"}),
        (airflow(), set(JOB_NAMES)),
    ],
)
def test_every_job_is_started(schedule: list[list[str]], expected: set[str]) -> None:
    assert {name for names in schedule for name in names} == expected
