"""The schedules under deploy/ start jobs that exist, in words that the command line takes."""

from __future__ import annotations

import ast
import runpy
import sys
from contextlib import nullcontext
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    (application,) = yaml.safe_load_all((FOLDER / "kubernetes-spark-application.yaml").read_text())
    driver = application["spec"]["template"]["driver"]["template"]
    assert driver["spec"]["activeDeadlineSeconds"] == SPARK_LIMIT_S
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


class Task:
    """As much of an operator of Airflow as says when it runs. Airflow itself need not be there."""

    def __init__(self, task_id: str, trigger_rule: str = "all_success", **_: object) -> None:
        self.task_id = task_id
        self.rule = trigger_rule
        self.upstream: list[Task] = []
        self.is_leaf = True

    def __rshift__(self, later: Task) -> Task:
        later.upstream.append(self)
        self.is_leaf = False
        return later

    def __rrshift__(self, earlier: list[Task]) -> Task:
        for each in earlier:
            _ = each >> self
        return self

    def well(self, failing: str | None) -> bool:
        """Whether it runs and goes well."""
        runs = self.rule == "all_done" or all(each.well(failing) for each in self.upstream)
        return runs and self.task_id != failing


def airflow_tasks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Task]:
    made: list[Task] = []

    def operator(**given: Any) -> Task:
        made.append(Task(**given))
        return made[-1]

    providers = "airflow.providers"
    for module, name, thing in (
        ("airflow.sdk", "DAG", lambda **_: nullcontext()),
        (f"{providers}.apache.spark.operators.spark_submit", "SparkSubmitOperator", operator),
        (f"{providers}.standard.operators.bash", "BashOperator", operator),
        (f"{providers}.standard.operators.empty", "EmptyOperator", operator),
    ):
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{name: thing}))
    runpy.run_path(str(FOLDER / "airflow_dag.py"))
    return {task.task_id: task for task in made}


@pytest.mark.parametrize("failing", [None, "retention", "compaction_and_merge", "offsets_and_vacuum"])
def test_in_airflow_a_job_that_fails_keeps_no_other_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, failing: str | None
) -> None:
    tasks = airflow_tasks(monkeypatch)
    leaves = [task for task in tasks.values() if task.is_leaf]
    jobs = [task for task in tasks.values() if not task.is_leaf]
    assert [task.task_id for task in jobs if not task.well(failing)] == ([failing] if failing else [])
    assert all(task.well(failing) for task in leaves) == (failing is None)
