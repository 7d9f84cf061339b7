"""The gateway is killed under a client again and again: nothing is lost, nothing is stored twice, readers go on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lakelog.client import LakelogClient
from tests.gateway_process import gateway

pytestmark = pytest.mark.e2e
BATCHES = 60


def test_each_record_is_stored_once_however_often_the_gateway_dies(tmp_path: Path) -> None:
    with gateway(tmp_path) as server, LakelogClient(server.url, retry_timeout_s=60) as client:
        client.create_topic("orders", 1)
        seen: list[bytes | None] = []

        def read() -> None:
            seen.extend(record.value for record in client.stream("orders", offset="earliest", max_records=3 * BATCHES))

        reader = threading.Thread(target=read)
        reader.start()
        sent = threading.Event()

        def send() -> None:
            for number in range(BATCHES):
                client.produce("orders", [f"{number}{part}" for part in "abc"])
            sent.set()

        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(3):
            sent.wait(0.3)  # let some through between two kills
            server.kill()
            server.start()
        sender.join()
        reader.join()
        expected = [f"{number}{part}".encode() for number in range(BATCHES) for part in "abc"]
        assert [record.value for record in client.fetch("orders")] == expected
        assert seen == expected
