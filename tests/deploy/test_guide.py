"""The guides speak of settings, metrics, files and commands that there are."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.testing import CliRunner

from ingest_api.settings import all_rows
from lakelog.config import topic_rows
from lakelog_cli.main import app
from tests.deploy.tools import DEPLOY

GUIDE = (DEPLOY / "OPERATIONS.md").read_text()
GUIDES = [GUIDE, (DEPLOY / "README.md").read_text(), (DEPLOY / "jobs" / "README.md").read_text()]
# Between backticks, or in the lines of a block; what is left open in the text can't be tried.
COMMANDS = sorted(
    {
        command.strip()
        for guide in GUIDES
        for command in re.findall(r"(?:`|^ {4}|&& |-- )lakelog ([^`&\n]+)", guide, re.MULTILINE)
        if "…" not in command
    }
)


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
    for text in GUIDES[:2]:
        for target in re.findall(r"\]\(([^)#]*)", text):
            assert not target or (DEPLOY / target).exists(), target
    assert set(re.findall(r"\]\(#([^)]+)\)", GUIDE)) <= headings


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_taken_as_they_are_written(command: str) -> None:
    """With --help they are read to their ends, and not run."""
    told = CliRunner().invoke(app, [*shlex.split(command), "--help"])
    assert told.exit_code == 0, told.output


def test_there_are_commands_in_the_guides() -> None:
    assert {"jobs status", "topics list"} <= set(COMMANDS)
