"""The gateway goes away under a client again and again: nothing is lost, nothing is stored twice, readers go on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from lakelog.client import AsyncLakelogClient, LakelogClient
from tests.gateway_process import gateway

pytestmark = pytest.mark.e2e
BATCHES = 60
EXPECTED = [f"{number}{part}".encode() for number in range(BATCHES) for part in "abc"]


def test_each_record_is_stored_once_however_often_the_gateway_dies(tmp_path: Path) -> None:
    with gateway(tmp_path) as server, LakelogClient(server.url, retry_timeout_s=60) as client:
        client.create_topic("orders", 1)
        seen: list[bytes | None] = []
        # One for each kill: it is set when the sender has got that far, and is in the middle of its work.
        under_way = {BATCHES * part // 4: threading.Event() for part in (1, 2, 3)}

        def read() -> None:
            seen.extend(record.value for record in client.stream("orders", offset="earliest", max_records=3 * BATCHES))

        def send() -> None:
            for number in range(BATCHES):
                if number in under_way:
                    under_way[number].set()
                client.produce("orders", [f"{number}{part}" for part in "abc"])

        threads = [threading.Thread(target=read), threading.Thread(target=send)]
        for thread in threads:
            thread.start()
        for far_enough in under_way.values():
            far_enough.wait()
            server.kill()
            server.start()
        for thread in threads:
            thread.join()
        assert [record.value for record in client.fetch("orders")] == EXPECTED
        assert seen == EXPECTED


async def test_a_producer_in_an_event_loop_outlives_the_gateway(tmp_path: Path) -> None:
    with gateway(tmp_path) as server:
        async with AsyncLakelogClient(server.url, retry_timeout_s=60) as client:
            await client.create_topic("orders", 1)
            halfway = asyncio.Event()

            async def send() -> None:
                async with client.producer("orders", linger_ms=0) as producer:
                    for number, value in enumerate(EXPECTED):
                        delivery = await producer.send(value)
                        if number == len(EXPECTED) // 2:
                            await delivery
                            halfway.set()

            async def read() -> list[bytes | None]:
                stream = client.stream("orders", offset="earliest", max_records=len(EXPECTED))
                return [record.value async for record in stream]

            sender, reader = asyncio.create_task(send()), asyncio.create_task(read())
            await halfway.wait()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await sender
            assert await reader == EXPECTED


def test_a_gateway_that_is_stopped_in_order_is_missed_by_nobody(tmp_path: Path) -> None:
    with gateway(tmp_path) as server, LakelogClient(server.url, retry_timeout_s=60) as client:
        client.create_topic("orders", 1)
        records = iter(client.stream("orders", offset="earliest", max_records=2))
        client.produce("orders", ["before"])
        assert next(records).value == b"before"
        rest: list[bytes | None] = []
        reader = threading.Thread(target=lambda: rest.extend(record.value for record in records))
        reader.start()
        assert server.stop() == 0
        server.start()
        client.produce("orders", ["after"])
        reader.join()
        assert rest == [b"after"]
