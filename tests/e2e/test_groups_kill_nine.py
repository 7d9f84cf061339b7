"""A coordinator that is killed without warning, over and over, loses no offset and no member that was acknowledged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from consumer_groups.assignors import TopicPartition
from consumer_groups.requests import GroupDescription
from consumer_groups.service import GroupService
from lakelog.broker import Broker
from tests.e2e.committer_process import MEMBERS

pytestmark = pytest.mark.e2e

TOPIC = "orders"
GROUPS = 20
DEATHS = 4
ROOT = Path(__file__).parents[2]


def _acknowledged_until_killed(warehouse: Path, lines: int) -> dict[str, int]:
    """The last offset of each group that a process said was durable before it died, in the middle of others."""
    command = [sys.executable, "-m", "tests.e2e.committer_process", str(warehouse), TOPIC, str(GROUPS)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said: dict[str, int] = {}
    try:
        for _ in range(lines):
            group, offset = process.stdout.readline().split()
            said[group] = int(offset)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for line in process.stdout.read().splitlines():  # said before it died, and not read yet
        if len(parts := line.split()) == 2:
            said[parts[0]] = int(parts[1])
    process.stdout.close()
    return said


async def _found(warehouse: Path) -> tuple[dict[str, int], GroupDescription]:
    key = TopicPartition(TOPIC, 0)
    async with Broker.open(str(warehouse)) as broker, GroupService(broker) as service:
        groups = [each.group_id for each in await service.list_groups()]
        offsets = {group: await service.committed(group) for group in groups}
        for committed in offsets.values():
            assert all(each.metadata == str(each.offset) for each in committed.values())
        return {g: each[key].offset for g, each in offsets.items() if each}, await service.describe(MEMBERS)


async def test_what_was_acknowledged_is_there_after_every_death(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    async with Broker.open(str(warehouse)) as broker:
        await broker.admin.create_topic(TOPIC, 4)
    luck, last, members = random.Random(5), {f"group-{number}": 0 for number in range(GROUPS)}, []
    for _ in range(DEATHS):
        said = _acknowledged_until_killed(warehouse, luck.randrange(50, 2_000))
        found, group = await _found(warehouse)
        for name, offset in said.items():
            # At most the one that was under way has come in unsaid.
            assert found[name] in (offset, offset + 1)
        assert all(found.get(name, 0) >= offset for name, offset in last.items())
        last |= found
        members.append(sorted(each.member_id for each in group.members))
        assert sum(len(each.assignment) for each in group.members) == 4
    assert len(members[0]) == 1
    assert all(each == members[0] for each in members)
