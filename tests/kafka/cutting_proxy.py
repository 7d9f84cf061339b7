"""A network that breaks: a proxy that cuts connections at random."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 60


class CuttingProxy:
    """Passes bytes on to a gateway that thinks it is reached directly, and cuts each connection after some of them."""

    def __init__(self, upstream: str, every_bytes: int, seed: int) -> None:
        host, port = upstream.rsplit(":", 1)
        self._upstream = (host, int(port))
        self._every_bytes, self._random = every_bytes, random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:{1}".format(*self._listening.getsockname())
        self.cuts = 0

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        left = self._random.randrange(1_000, 2 * self._every_bytes)
        try:
            while data := source.recv(min(left, 16_384)):
                left -= len(data)
                # In the middle of a request, of a reply, or just before one that the client now waits for in vain.
                if left <= 0:
                    target.sendall(data[: self._random.randrange(len(data) + 1)])
                    self.cuts += 1
                    return
                target.sendall(data.replace(*self._addresses))
        except OSError:
            pass
        finally:
            for each in (source, target):
                each.close()

    @property
    def _addresses(self) -> tuple[bytes, bytes]:
        """What the gateway says of its address in metadata, and what is said instead, of the same length."""
        there, here = self._upstream[1], self._listening.getsockname()[1]
        address = b"\x0a127.0.0.1"
        return address + there.to_bytes(4, "big"), address + here.to_bytes(4, "big")

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@contextmanager
def cutting_proxy(upstream: str, every_bytes: int, seed: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(upstream, every_bytes, seed)
    serving = threading.Thread(target=proxy.serve)
    serving.start()
    try:
        yield proxy
    finally:
        proxy.close()
        serving.join(PATIENCE_S)
