"""What there is to set and to watch is written down: settings and topic configs in tables, metrics in a dashboard."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ingest_api.settings import all_rows
from lakelog.config import ConfigRow, topic_rows
from tests.gateway_process import PATIENCE_S, command, environment
from tests.http.conftest import Served
from tests.http.requests import send

ROOT = Path(__file__).parents[2]
README = (ROOT / "ingest_api" / "README.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "lakelog.json").read_text())
# Of what every Python process exports, the dashboard shows memory, processor and files.
STANDARD = re.compile(r"^(python|process)_")


def _line(row: ConfigRow) -> str:
    default, there = row.kind.text(row.default), row.kind.text(row.default_on_object_store)
    shown = f"`{default}`" if default else "none"
    if there != default:
        shown += f", on object stores `{there}`"
    return f"| `{row.name}` | {shown} | {row.doc} |"


@pytest.mark.parametrize("row", [*all_rows().values(), *topic_rows()], ids=lambda row: row.name)
def test_every_setting_has_its_line(row: ConfigRow) -> None:
    assert row.doc.endswith(".")
    assert _line(row) in README.splitlines()


def test_no_line_is_of_a_setting_that_is_gone() -> None:
    tables = README[README.index("## Settings") :]
    documented = re.findall(r"^\| `([a-z0-9_.]+)` \|", tables, re.MULTILINE)
    assert documented == [*all_rows(), *(row.name for row in topic_rows())]


def test_the_command_line_shows_every_setting() -> None:
    shown = subprocess.run(
        command("config", "--json"), env=environment(""), capture_output=True, check=True, timeout=PATIENCE_S
    )
    entries = {entry["name"]: entry for entry in map(json.loads, shown.stdout.splitlines())}
    assert list(entries) == list(all_rows())
    for name, row in all_rows().items():
        assert (entries[name]["default"], entries[name]["doc"]) == (row.kind.text(row.default), row.doc)


def _panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def _expressions() -> list[str]:
    return [target["expr"] for panel in _panels() for target in panel["targets"]]


async def test_every_metric_is_in_the_dashboard_and_every_name_there_is_a_metric(served: Served) -> None:
    await send(served, "orders", "v")
    await served.get("/topics/orders/records")
    text = (await served.get("/metrics")).text
    exported = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    ours = {name for name in exported if not STANDARD.match(name)}
    used = set(re.findall(r"\b(?:lakelog|process)_[a-z_]+", " ".join(_expressions())))
    histograms = {name for name, kind in exported.items() if kind == "histogram"}
    shown = {name for name in histograms if f"{name}_bucket" in used} | (used & set(exported))
    assert ours - shown == set(), "exported, and nowhere to be seen"
    series = {f"{name}{suffix}" for name in histograms for suffix in ("_bucket", "_sum", "_count")}
    assert used - set(exported) - series == set(), "shown, and nowhere to come from"


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["uid"]
    assert DASHBOARD["id"] is None, "the number is Grafana's to give"
    source = DASHBOARD["templating"]["list"][0]
    assert (source["name"], source["type"], source["query"]) == ("DS_PROMETHEUS", "datasource", "prometheus")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in _panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
