"""The installed command as its users run it: a process, with pipes, signals and a terminal's width."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import command, environment, run

LAKELOG = str(Path(sys.executable).parent / "lakelog")


def test_the_installed_command_speaks_to_a_gateway(server: LocalGateway) -> None:
    options = {"env": environment(server.url), "check": True, "timeout": 60}
    subprocess.run([LAKELOG, "produce", "piped"], input=b"one\ntwo\n", **options)  # type: ignore[call-overload]
    done = subprocess.run([LAKELOG, "consume", "piped"], capture_output=True, **options)  # type: ignore[call-overload]
    assert (done.stdout, done.stderr) == (b"one\ntwo\n", b"")


def test_an_error_is_one_line_on_stderr(server: LocalGateway) -> None:
    done = run(server.url, ["consume", "nowhere"])
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"lakelog: there is no topic 'nowhere'\n"


def test_a_reader_that_has_had_enough_is_no_error(server: LocalGateway) -> None:
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    assert run(server.url, ["produce", "long"], stdin=lines).returncode == 0
    with subprocess.Popen(
        [LAKELOG, "consume", "long"], env=environment(server.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"0\n"
        reader.stdout.close()
        assert reader.stderr.read() == b""
    assert reader.returncode == 0


@pytest.mark.parametrize(
    "arguments", [("topics", "list"), ("topics", "list", "--json"), ("consume", "unread"), ("config",)]
)
def test_nobody_who_reads_is_no_error_and_no_room_is_one(server: LocalGateway, arguments: tuple[str, ...]) -> None:
    run(server.url, ["produce", "unread"], stdin=b"one\n")
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    for output, code, said in ((writer, 0, b""), (full, 1, b"lakelog: [Errno 28] No space left on device\n")):
        done = subprocess.run(
            command(*arguments), env=environment(server.url), stdout=output, stderr=subprocess.PIPE, timeout=60
        )
        os.close(output)
        assert (done.returncode, done.stderr) == (code, said)


def test_a_follower_prints_at_once_and_ends_with_ctrl_c(server: LocalGateway) -> None:
    run(server.url, ["produce", "followed"], stdin=b"one\n")
    with subprocess.Popen(
        [LAKELOG, "consume", "followed", "--follow", "-b"],
        env=environment(server.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == b"one\n"
        run(server.url, ["produce", "followed"], stdin=b"two\n")
        assert follower.stdout.readline() == b"two\n"
        follower.send_signal(signal.SIGINT)
        assert b"Traceback" not in follower.stderr.read()
    assert follower.returncode == 130


def test_every_setting_is_shown_with_where_it_comes_from(server: LocalGateway, tmp_path: Path) -> None:
    file = tmp_path / "lakelog.toml"
    file.write_text("num_partitions = 3\nheartbeat_ms = 1000\n")
    done = subprocess.run(
        [LAKELOG, "config", "--json", "--config", str(file), "--requests-max", "7"],
        env={**environment(server.url), "LAKELOG_HEARTBEAT_MS": "2000"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    shown = {row["name"]: (row["value"], row["source"]) for row in map(json.loads, done.stdout.splitlines())}
    assert shown["num_partitions"] == ("3", str(file))
    assert shown["heartbeat_ms"] == ("2000", "environment")
    assert shown["requests_max"] == ("7", "flag")
    assert shown["warehouse"] == ("./data", "default")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("config", "--http", "nonsense"), b"http is 'nonsense', but it takes an address as HOST:PORT"),
        (("serve", "--requests-max", "0"), b"requests_max"),
        (("serve", "--config", "missing.toml"), b"missing.toml"),
    ],
)
def test_a_wrong_setting_is_named(server: LocalGateway, arguments: tuple[str, ...], said: bytes) -> None:
    done = run(server.url, arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


# So that each line that is printed ends by itself.
ENDINGS = {"--from-beginning": "--from-beginning --max-messages 1", " demo": " demo --help"}


def test_what_the_greeting_tells_to_try_can_be_copied(tmp_path: Path) -> None:
    # Where `make run` is typed: the command lies under this folder, and the shell finds it nowhere else.
    here = Path(LAKELOG).parents[2]
    folders = [folder for folder in os.get_exec_path() if not Path(folder, "lakelog").exists()]
    surroundings = {**environment(""), "PATH": os.pathsep.join(folders)}
    del surroundings["LAKELOG_URL"]
    options = ["--http", "127.0.0.1:0", "--kafka", "none", "--access-log", "off", "--no-maintenance"]
    with subprocess.Popen(
        [LAKELOG, "serve", "--warehouse", str(tmp_path), *options],
        env=surroundings,
        cwd=here,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            told = list(itertools.takewhile(lambda line: "Ctrl-C" not in line, server.stdout))
            commands = [line.strip() for line in told if line.startswith("  ")]
            assert len(commands) == 5
            shown = []
            for command in commands:
                for open_end, ending in ENDINGS.items():
                    command = command.replace(open_end, ending)
                done = subprocess.run(command, shell=True, env=surroundings, cwd=here, capture_output=True, timeout=60)
                assert done.returncode == 0, (command, done.stderr)
                shown.append(done.stdout.decode())
            produced, fetched, listed, consumed, _ = shown
            assert '"offset":0' in produced
            assert '"world"' in fetched
            assert "hello" in listed
            assert consumed == '"world"\n'
        finally:
            server.terminate()


def test_an_address_that_is_taken_is_named(server: LocalGateway, tmp_path: Path) -> None:
    address = server.url.removeprefix("http://")
    done = run(server.url, ["serve", "--warehouse", str(tmp_path), "--http", address])
    assert done.returncode == 1
    assert f"can't serve on {address}".encode() in done.stderr
    assert b"choose another address with --http" in done.stderr


def test_the_tour_runs_from_beginning_to_end(server: LocalGateway) -> None:
    done = run(server.url, ["demo", "--records", "500", "--live", "5"])
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode()
    assert [f"{chapter}. " in shown for chapter in range(1, 6)] == [True] * 5
    assert "500 rides made up, sent and committed to 3 partitions" in shown
    assert "5 rides seen" in shown
    assert "All 50" in shown  # those of the second chapter, and those that were followed live
