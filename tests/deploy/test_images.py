"""The images and the compose file: what can be checked without an engine that builds and starts them.

The compose file's store and gateway are started as it says, as processes: their commands and settings are real ones.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ingest_api.settings import all_rows, load_settings
from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.conftest import free_port, wait_until_it_answers
from tests.deploy.tools import DEPLOY, ROOT, program, said_by

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# What `lakelog serve` and the clients take beside the settings.
OTHER_VARIABLES = {"LAKELOG_CONFIG", "LAKELOG_NO_MAINTENANCE", "LAKELOG_MAINTENANCE_EVERY_SECONDS", "LAKELOG_URL"}


def compose() -> dict[str, Any]:
    words = [program("compose-config", "deploy/setup/ensure-deploy-tools builds it where Go is installed")]
    # In its own folder, as docker compose has it: paths in the file are relative to that.
    loaded = json.loads(said_by([*words, "-format", "json", "compose.yaml"], cwd=DEPLOY))
    assert isinstance(loaded, dict)
    return loaded


def test_the_dockerfile_is_clean() -> None:
    said_by([program("hadolint", "it is in the extra `dev`"), "--failure-threshold", "style", str(DOCKERFILE)])


def test_the_dockerfile_copies_what_there_is() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    ignore = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source}" in ignore, "the builder does not get it"
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages | {"platform"} <= set(sources), "a package that the image would lack"


def test_the_images_end_as_nobody_in_particular() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)
    finals = [stage for stage in stages if re.match(r"\S+ AS (gateway|jobs)\n", stage)]
    assert len(finals) == 2
    for stage in finals:
        assert re.findall(r"^USER (.+)$", stage, re.MULTILINE)[-1] == "10001:10001"
        assert re.search(r'^CMD \["lakelog", ', stage, re.MULTILINE), "signals reach lakelog itself, not a shell"


def test_the_services_are_built_from_stages_that_there_are() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE))
    built = {name: service for name, service in compose()["services"].items() if "build" in service}
    assert set(built) == {"gateway", "jobs"}
    for service in built.values():
        assert service["build"]["target"] in stages
        assert Path(service["build"]["context"]).resolve() == ROOT
        assert service["image"].endswith(f":{VERSION}")


def test_what_spark_shuffles_goes_to_a_disk_and_not_into_memory() -> None:
    loaded = compose()
    jobs = loaded["services"]["jobs"]
    assert "tmpfs" not in jobs
    (scratch,) = (mount for mount in jobs["volumes"] if mount["target"] == "/tmp")
    assert scratch["type"] == "volume"
    assert scratch["source"] in loaded["volumes"]


def test_no_file_sets_what_is_no_setting() -> None:
    known = OTHER_VARIABLES | {f"LAKELOG_{name.upper()}" for name in all_rows()}
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            used = set(re.findall(r"\bLAKELOG_[A-Z_]+", path.read_text()))
            assert used <= known, path.relative_to(ROOT)


@contextmanager
def store_of(service: dict[str, Any], folder: Path) -> Iterator[str]:
    """The compose file's store as a process, with a folder for its volume."""
    server = program("versitygw", "`make s3` builds it where Go is installed")
    port = free_port()
    (volume,) = (mount["target"] for mount in service["volumes"])
    replaced = {":7070": f"127.0.0.1:{port}", volume: str(folder)}
    words = [replaced.get(word, word) for word in service["command"]]
    # Not every file system that tests run on can keep attributes with the files.
    words[words.index("posix") + 1 : words.index("posix") + 1] = ["--sidecar", str(folder.parent)]
    log = folder.parent / "store.log"
    with log.open("wb") as output:
        process = subprocess.Popen([server, *words], env=service["environment"], stdout=output, stderr=output)
    try:
        wait_until_it_answers(process, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.s3
@pytest.mark.e2e
def test_store_gateway_and_jobs_of_the_compose_file_work_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = compose()["services"]
    buckets = tmp_path / "buckets"
    (volume,) = (mount["target"] for mount in services["bucket"]["volumes"])
    for word in services["bucket"]["command"]:
        if word.startswith(volume):
            (buckets / Path(word).relative_to(volume)).mkdir(parents=True)
    with store_of(services["store"], buckets) as endpoint:
        path = services["store"]["healthcheck"]["test"][-1].partition(":7070")[2]
        with urllib.request.urlopen(f"{endpoint}{path}") as reply:
            assert reply.status == 200
        for service in ("gateway", "jobs"):
            assert services[service]["environment"]["AWS_ENDPOINT_URL"] == "http://store:7070"
        for name, value in {**services["gateway"]["environment"], "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)
        warehouse = load_settings({}, services["gateway"]["environment"]).gateway.warehouse
        with LocalGateway(warehouse, tmp_path / "gateway.log") as gateway, LakelogClient(gateway.url) as client:
            client.produce("orders", ["one", "two"])
            assert len(client.fetch("orders")) == 2
        assert list((buckets / "lakelog" / "topics" / "orders" / "_delta_log").glob("*.json"))
        said_by([sys.executable, "-m", "lakelog_cli.main", "jobs", "run", "retention", "vacuum"])
