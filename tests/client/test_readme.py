"""The example in the documentation runs as it is written."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from lakelog.client import DEFAULT_URL
from lakelog_cli.local_gateway import LocalGateway

README = Path(__file__).parents[2] / "platform" / "README.md"


def test_the_example_of_the_client_runs(server: LocalGateway, capsys: pytest.CaptureFixture[str]) -> None:
    lines = README.read_text().splitlines()
    first = lines.index("    from lakelog.client import LakelogClient, Record")
    end = next(number for number in range(first, len(lines)) if lines[number] and not lines[number].startswith("    "))
    example = textwrap.dedent("\n".join(lines[first:end]))
    assert DEFAULT_URL in example
    exec(compile(example.replace(DEFAULT_URL, server.url), str(README), "exec"), {})
    assert "{'id': 1}" in capsys.readouterr().out
