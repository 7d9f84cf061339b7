"""The systemd units: systemd takes them, they are closed in, a gateway can serve so, and has time to stop."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compaction_jobs.surroundings import FSYNC_VARIABLE, OFFSETS_RETENTION_MINUTES, RETENTION_VARIABLE
from ingest_api.settings import load_settings
from tests.deploy.tools import DEPLOY, ROOT, TIMEOUT_S, program, said_by

UNITS = DEPLOY / "systemd"
SYSTEMS_OWN = Path("/lib/systemd/system")
EXPOSURE_MAX = "20"  # of 100, in tenths of what `systemd-analyze security` prints
# A process that forbids itself, and the gateway that it starts, what MemoryDenyWriteExecute forbids a unit.
UNFORBIDDEN = 77
SERVES_CLOSED_IN = f"""
import ctypes, sys
from pathlib import Path
from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway

PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    sys.exit({UNFORBIDDEN})
folder = Path(sys.argv[1])
with LocalGateway(folder / "warehouse", folder / "log") as gateway, LakelogClient(gateway.url) as client:
    client.produce("orders", ["one", "two"])
    assert len(client.fetch("orders")) == 2
"""


class Unit(configparser.RawConfigParser):
    """One unit's file. The last of several lines with the same name counts here, as for most settings it does there."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, interpolation=None)
        self.read(UNITS / name)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root as after the installation: the units, the program that they start, and the system's own targets."""
    if not SYSTEMS_OWN.is_dir():
        pytest.skip("there is no systemd on this machine")
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(SYSTEMS_OWN, root / "usr/lib/systemd/system", ignore_dangling_symlinks=True)
    (root / "etc/systemd/system").mkdir(parents=True)
    for path in UNITS.iterdir():
        if path.suffix in (".service", ".timer"):
            shutil.copy(path, root / "etc/systemd/system")
    started = root / "opt/lakelog/bin/lakelog"
    started.parent.mkdir(parents=True)
    started.touch(0o755)
    return root


def analyze(*words: str) -> str:
    return said_by([program("systemd-analyze", "it comes with systemd"), *words])


def test_systemd_takes_the_units(root: Path) -> None:
    names = sorted(path.name for path in (root / "etc/systemd/system").iterdir())
    assert names == ["lakelog-jobs.service", "lakelog-jobs.timer", "lakelog.service"]
    analyze("verify", "--man=no", "--recursive-errors=no", f"--root={root}", *names)


@pytest.mark.parametrize("name", ["lakelog.service", "lakelog-jobs.service"])
def test_the_services_are_closed_in(root: Path, name: str) -> None:
    analyze("security", "--offline=true", "--no-pager", f"--root={root}", f"--threshold={EXPOSURE_MAX}", name)


def test_a_gateway_serves_without_memory_that_is_written_and_executed(tmp_path: Path) -> None:
    assert Unit("lakelog.service")["Service"]["MemoryDenyWriteExecute"] == "yes"
    command = [sys.executable, "-c", SERVES_CLOSED_IN, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode == UNFORBIDDEN:
        pytest.skip("this kernel does not forbid it")
    assert done.returncode == 0, done.stderr


def test_a_gateway_has_time_to_stop() -> None:
    stop_s = load_settings({}, {}).gateway.stop_timeout_ms / 1000
    assert int(Unit("lakelog.service")["Service"]["TimeoutStopSec"]) >= stop_s + 10


def test_gateway_and_jobs_share_user_warehouse_and_settings() -> None:
    gateway, jobs = Unit("lakelog.service")["Service"], Unit("lakelog-jobs.service")["Service"]
    for name in ("User", "Group", "StateDirectory", "EnvironmentFile", "WorkingDirectory", "UMask"):
        assert gateway[name] == jobs[name]


def test_the_environment_file_is_taken() -> None:
    lines = (UNITS / "lakelog.env").read_text().splitlines()
    pairs = (line.lstrip("#").split("=", 1) for line in lines if "=" in line and not line.startswith("# "))
    # The local disk's lines and the object store's: both at once are refused.
    variables = {name: value for name, value in pairs if not value.startswith("s3://")}
    settings = load_settings({}, variables)
    assert settings.log.fsync
    assert settings.gateway.access_log == "off"
    assert variables[RETENTION_VARIABLE] == str(OFFSETS_RETENTION_MINUTES)
    assert FSYNC_VARIABLE in variables, "of the jobs too"
    named = "warehouse http public_url kafka kafka_advertised fsync offsets_retention_minutes access_log"
    assert settings.sources.keys() == set(named.split())
