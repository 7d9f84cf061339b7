"""Consumers as a client of REST Proxy v2 has them, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from tests.http.requests import JSON_V2


@dataclass(slots=True)
class ConsumerOf:
    """A consumer by its path. What is asked of it has to succeed, but for `request`."""

    client: httpx.AsyncClient
    path: str

    async def request(self, method: str, what: str = "", body: Any = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, self.path + what, json=body, headers=named)

    async def done(self, method: str, what: str = "", body: Any = None) -> httpx.Response:
        reply = await self.request(method, what, body)
        assert reply.status_code in (200, 204), reply.text
        return reply

    async def subscribe(self, *topics: str) -> None:
        assert (await self.done("POST", "/subscription", {"topics": topics})).status_code == 204

    async def poll(self, query: str = "timeout=0", **headers: str) -> list[dict[str, Any]]:
        reply = await self.request("GET", f"/records?{query}", **{"Accept": JSON_V2, **headers})
        assert reply.status_code == 200, reply.text
        records: list[dict[str, Any]] = reply.json()
        return records

    async def values(self, query: str = "timeout=0", **headers: str) -> list[Any]:
        return [record["value"] for record in await self.poll(query, **headers)]

    async def assigned(self) -> list[tuple[str, int]]:
        reply = await self.done("GET", "/assignments")
        return sorted((each["topic"], each["partition"]) for each in reply.json()["partitions"])

    async def committed(self, *partitions: tuple[str, int]) -> dict[tuple[str, int], int]:
        body = {"partitions": [place(*each) for each in partitions]} if partitions else None
        reply = await self.done("GET", "/offsets", body)
        return {(each["topic"], each["partition"]): each["offset"] for each in reply.json()["offsets"]}

    async def delete(self) -> None:
        assert (await self.done("DELETE")).status_code == 204


def place(topic: str, partition: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, **more}


async def consumer(client: httpx.AsyncClient, group: str = "readers", **options: Any) -> ConsumerOf:
    """One that reads JSON from the beginning and commits nothing by itself, unless the options say otherwise."""
    defaults = {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    named = {name.replace("_", "."): value for name, value in options.items()}
    reply = await client.post(f"/consumers/{group}", json={**defaults, **named})
    assert reply.status_code == 200, reply.text
    return ConsumerOf(client, httpx.URL(reply.json()["base_uri"]).path)
