"""What tests ask again and again: a topic made, records sent, records read."""

from __future__ import annotations

from typing import Any

from aiokafka.record.memory_records import MemoryRecords

from tests.kafka.plain_client import PlainClient, to_fetch, to_produce


async def topic(client: PlainClient, name: str, partitions: int = 1, **configs: str) -> None:
    reply = await client.ask(
        "create_topics",
        7,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": -1,
                "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
            }
        ],
    )
    assert reply["topics"][0]["error_code"] == 0, reply


async def produced(client: PlainClient, *partitions: tuple[str, int, bytes], acks: int = -1) -> list[dict[str, Any]]:
    reply = await client.ask("produce", 9, **to_produce(*partitions, acks=acks))
    return [each for topic in reply["responses"] for each in topic["partition_responses"]]


async def fetched(client: PlainClient, *positions: tuple[str, int, int], **options: Any) -> list[dict[str, Any]]:
    reply = await client.ask("fetch", 12, **to_fetch(*positions, **options))
    assert reply["error_code"] == 0
    return [each for topic in reply["responses"] for each in topic["partitions"]]


def values(records: bytes | None) -> list[bytes | None]:
    found: list[bytes | None] = []
    reader = MemoryRecords(records or b"")
    while (each := reader.next_batch()) is not None:
        assert each.validate_crc()
        found += [record.value for record in each]
    return found
