"""The examples in the documentation run as they are written, and show what is written there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakelog.client import DEFAULT_URL
from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import environment, gateway

ROOT = Path(__file__).parents[2]
COMMANDS = Path(sys.executable).parent


def test_the_example_of_the_client_runs(server: LocalGateway, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (ROOT / "platform" / "README.md").read_text().splitlines()
    first = lines.index("    from lakelog.client import LakelogClient, Record")
    end = next(number for number in range(first, len(lines)) if lines[number] and not lines[number].startswith("    "))
    example = textwrap.dedent("\n".join(lines[first:end]))
    assert DEFAULT_URL in example
    exec(compile(example.replace(DEFAULT_URL, server.url), "README.md", "exec"), {})
    assert "{'id': 1}" in capsys.readouterr().out


@dataclass
class Step:
    """What is typed at a prompt, and what is shown then."""

    prompt: str
    typed: str
    shown: list[str] = field(default_factory=list)


def steps(lines: Iterable[str]) -> list[Step]:
    found: list[Step] = []
    for line in lines:
        if not line.startswith("    "):
            continue
        prompt, _, typed = line[4:].partition(" ")
        if prompt in ("$", ">>>"):
            found.append(Step(prompt, typed))
        elif found[-1].typed.endswith("\\"):
            found[-1].typed += f"\n{line}"
        else:
            found[-1].shown.append(line[4:])
    return found


def alike(text: str) -> list[str]:
    """Without what is another at each time: the moment, and what it adds to the size of a file."""
    text = re.sub(r"\b\d{13}\b", "TIME", re.sub(r"[\d.]+ (Ki)?B\b", "SIZE", text))
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed: `make kafka-clients` does that")
def test_the_first_session_goes_as_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    session = steps(readme.partition("\n## A first session\n")[2].partition("\n## ")[0].splitlines())
    names: dict[str, object] = {}
    with gateway(tmp_path) as server:
        here = {
            "LakelogClient()": f'LakelogClient("{server.url}")',
            DEFAULT_URL: server.url,
            DEFAULT_URL.removeprefix("http://"): server.url.removeprefix("http://"),
            "localhost:9092": server.kafka,
            "127.0.0.1:9092": server.kafka,
            "./data": str(tmp_path / "warehouse"),
            '"data/': f'"{tmp_path}/warehouse/',
            ".venv/bin": str(COMMANDS),
        }

        def moved(text: str) -> str:
            return re.sub("|".join(map(re.escape, here)), lambda found: here[found[0]], text)

        for step in session:
            typed, shown = moved(step.typed), moved("\n".join(step.shown))
            if step.typed == "make run":
                assert shown in server.log
            elif step.prompt == ">>>":
                exec(compile(typed, "README.md", "single"), names)
                assert alike(capsys.readouterr().out) == alike(shown)
            elif step.typed != ".venv/bin/python":
                done = subprocess.run(typed, shell=True, env=environment(server.url), capture_output=True, timeout=60)
                assert (done.returncode, alike(done.stdout.decode())) == (0, alike(shown)), done.stderr
    assert len(session) > 12
