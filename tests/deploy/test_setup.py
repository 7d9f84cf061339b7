"""The scripts that set a machine up and copy a warehouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.tools import DEPLOY, program, said_by

SCRIPTS = [*sorted((DEPLOY / "setup").iterdir()), DEPLOY / "backup"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_script_is_sound_and_can_be_run(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    said_by([program("shellcheck", "it is in the extra `dev`"), str(script)])
