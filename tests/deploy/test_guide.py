"""The operations guide speaks of settings, metrics, files and commands that there are."""

from __future__ import annotations

import re

from ingest_api.settings import all_rows
from lakelog.config import topic_rows
from tests.deploy.tools import DEPLOY

GUIDE = (DEPLOY / "OPERATIONS.md").read_text()


def table(heading: str) -> list[str]:
    """What stands between backticks in the first column."""
    rows = GUIDE[GUIDE.index(f"| {heading} |") :].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_settings_to_think_about_are_settings() -> None:
    assert set(table("setting")) <= set(all_rows())
    assert set(table("topic config")) <= {row.name for row in topic_rows()}


def test_limits_that_are_added_up_are_settings_and_add_up() -> None:
    memory = GUIDE[GUIDE.index("**Memory**") : GUIDE.index("**Processors.**")]
    limits = re.findall(r"`(\w+_bytes_max)`", memory)
    total = sum(int(all_rows()[name].kind.text(all_rows()[name].default)) for name in limits)
    assert f"({total // 2**20} MiB by default)" in memory


def test_links_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in re.findall(r"^#+ (.+)$", GUIDE, re.M)
    }
    for text in (GUIDE, (DEPLOY / "README.md").read_text()):
        for target in re.findall(r"\]\(([^)#]*)", text):
            assert not target or (DEPLOY / target).exists(), target
    assert set(re.findall(r"\]\(#([^)]+)\)", GUIDE)) <= headings
