"""deploy/backup: a copy that is made while records arrive holds every record that was acknowledged before it began."""

from __future__ import annotations

import threading
from pathlib import Path

import deltalake
import pytest

from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.deploy.tools import DEPLOY, refusal_of, said_by

BACKUP = str(DEPLOY / "backup")
PARTITIONS = 3
RECORDS_BEFORE = 500


def offsets_by_partition(client: LakelogClient, topic: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    for record in client.stream(topic, offset="earliest", follow=False):
        found[record.partition].append(record.offset)
    return found


@pytest.mark.e2e
def test_a_copy_beside_a_busy_gateway_is_a_warehouse(tmp_path: Path) -> None:
    warehouse, copy = tmp_path / "warehouse", tmp_path / "copy"
    enough = threading.Event()
    with LocalGateway(warehouse, tmp_path / "log") as gateway, LakelogClient(gateway.url) as client:
        client.create_topic("orders", PARTITIONS)
        for number in range(RECORDS_BEFORE):
            client.produce("orders", [f"{number}"])

        def go_on() -> None:
            while not enough.is_set():
                client.produce("orders", ["meanwhile"])

        busy = threading.Thread(target=go_on)
        busy.start()
        try:
            said = said_by([BACKUP, str(warehouse), str(copy)])
        finally:
            enough.set()
            busy.join()
        ends = client.offsets_at("orders", "latest")
    assert "orders: version" in said
    with LocalGateway(copy, tmp_path / "log of the copy") as restored, LakelogClient(restored.url) as client:
        found = offsets_by_partition(client, "orders")
        for number, offsets in found.items():
            assert offsets == list(range(len(offsets)))
            assert len(offsets) <= ends[number]
        assert sum(map(len, found.values())) >= RECORDS_BEFORE
        # It is a topic like any other: it goes on where it was.
        assert client.produce("orders", ["again"], partition=0).ranges[0].start_offset == len(found[0])
    assert deltalake.DeltaTable(copy / "orders").version() > 0


def test_every_table_is_copied_once_and_the_internal_ones_first(tmp_path: Path) -> None:
    warehouse, copy = tmp_path / "warehouse", tmp_path / "copy"
    first_commit = Path("_delta_log") / f"{0:020d}.json"
    tables = ["__consumer_offsets", "__groups", "orders", "_schemas", ".x", "-minus", "x_y"]
    for table in tables:
        (warehouse / table / "_delta_log").mkdir(parents=True)
        (warehouse / table / first_commit).write_text("{}")
        (warehouse / table / "partition=0").mkdir()
        (warehouse / table / "partition=0" / "1.parquet").touch()
    (warehouse / "no table").mkdir()
    (warehouse / "created just now" / "_delta_log").mkdir(parents=True)
    said = said_by([BACKUP, str(warehouse), str(copy)]).splitlines()
    copied = [line.removesuffix(": version 0") for line in said]
    assert copied[:2] == tables[:2]
    assert sorted(copied) == sorted(tables)
    assert sorted(path.name for path in copy.iterdir()) == sorted(tables)
    for table in tables:
        assert (copy / table / first_commit).exists()
        assert (copy / table / "partition=0" / "1.parquet").exists()


def test_a_copy_goes_to_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "something").touch()
    assert "is not empty" in refusal_of([BACKUP, str(tmp_path / "warehouse"), str(tmp_path / "copy")])
