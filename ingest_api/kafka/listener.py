"""The listener: who is connected, how many there may be, and who was silent, or slow, for too long."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from types import TracebackType
from typing import Self

from ingest_api.gateway import Gateway
from ingest_api.kafka.calls import Node
from ingest_api.kafka.connection import Connection
from ingest_api.settings import split_address

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0


class KafkaListener:
    """Serves a socket that listens already, as an async context."""

    def __init__(self, gateway: Gateway, listening: socket.socket) -> None:
        self._gateway = gateway
        self._listening = listening
        self._connections: set[Connection] = set()
        settings = gateway.settings
        advertised = split_address(settings.kafka_advertised, "kafka_advertised") if settings.kafka_advertised else None
        self._node = Node(settings.cluster_id, advertised)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=self._listening)
        self._sweeper = loop.create_task(self._sweep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sweeper.cancel()
        self._server.close()
        draining = [asyncio.ensure_future(each.drain()) for each in self._connections]
        if draining:
            _, late = await asyncio.wait(draining, timeout=self._gateway.settings.stop_timeout_ms / 1000)
            for each in late:
                each.cancel()
        for connection in list(self._connections):
            connection.close("the server is shutting down")

    def _connection(self) -> Connection:
        return Connection(self._gateway, self._node, self._opened, self._closed)

    def _opened(self, connection: Connection) -> bool:
        limit = self._gateway.settings.kafka_connections_max
        if len(self._connections) >= limit:
            log.warning("%s is refused: kafka_connections_max is %d", connection.client_host, limit)
            self._gateway.metrics.refused.labels("kafka_connections_max").inc()
            return False
        self._connections.add(connection)
        self._count()
        return True

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._count()

    def _count(self) -> None:
        self._gateway.metrics.kafka_connections.set(len(self._connections))

    async def _sweep(self) -> None:
        settings = self._gateway.settings
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.monotonic()
            for each in list(self._connections):
                silent_ms = (now - each.last_heard) * 1000
                if each.frame_age(now) * 1000 > settings.body_timeout_ms:
                    each.close(f"a request that has not arrived within {settings.body_timeout_ms} ms")
                elif not each.busy and silent_ms > settings.kafka_idle_timeout_ms:
                    each.close(f"silent for {settings.kafka_idle_timeout_ms} ms")
