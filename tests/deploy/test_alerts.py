"""The alert rules: Prometheus takes them, they fire when they should on metrics that there are; the guide has each."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import yaml

from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.deploy.tools import DEPLOY, program, said_by

RULES = DEPLOY / "prometheus" / "alerts.yml"


def promtool(*words: str) -> str:
    return said_by([program("promtool", "deploy/setup/ensure-deploy-tools fetches it on Debian"), *words])


def rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert isinstance(group["rules"], list)
    return group["rules"]


def test_prometheus_takes_rules_and_example() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", str(DEPLOY / "prometheus" / "alerts-test.yml"))


def test_every_alert_is_tried_and_in_the_guide() -> None:
    names = [rule["alert"] for rule in rules()]
    tried = (DEPLOY / "prometheus" / "alerts-test.yml").read_text()
    guide = re.findall(r"^### (Lakelog\w+)$", (DEPLOY / "OPERATIONS.md").read_text(), re.MULTILINE)
    assert guide == names
    assert all(f"alertname: {name}" in tried for name in names)


def test_alerts_look_at_metrics_that_there_are(tmp_path: Path) -> None:
    with LocalGateway(tmp_path / "warehouse", tmp_path / "log") as gateway:
        with LakelogClient(gateway.url) as client:
            client.produce("orders", ["one"])
        exported = re.findall(r"^# TYPE (\S+) (\S+)$", httpx.get(f"{gateway.url}/metrics").text, re.MULTILINE)
    series = {
        f"{name}{suffix}" for name, kind in exported for suffix in ("", "_bucket") if kind == "histogram" or not suffix
    }
    used = {name for rule in rules() for name in re.findall(r"\b(?:lakelog|process)_[a-z_]+", rule["expr"])}
    assert used <= series
