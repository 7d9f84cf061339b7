"""The process: uvicorn around the application, told when to stop, and the words that greet who starts it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from contextlib import AbstractContextManager, nullcontext
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ingest_api.app import create_app, front_of
from ingest_api.gateway import Gateway
from ingest_api.heads import BoundedHeads
from ingest_api.settings import NO_LISTENER, LoadedSettings, split_address
from lakelog.client import DEFAULT_URL
from lakelog.delta.store import open_store
from lakelog.errors import ErrorCode, LakelogError
from lakelog.interpreter import set_for_serving

# On these the command line finds a gateway without being told, if the port is its own.
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0", "::")


class GatewayServer(uvicorn.Server):
    """Greets once it serves, and can be stopped. Lets streams and long polls know when the process is told to stop:
    without that they would hold it up.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, greeting: str) -> None:
        super().__init__(config)
        self._app = app
        self._greeting = greeting

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        gateway = getattr(self._app.state, "gateway", None)
        if isinstance(gateway, Gateway):
            # A signal may arrive in the middle of anything; the event is set where its waiters live.
            self._loop.call_soon_threadsafe(gateway.stopping.set)
        # Not the method that this stands for: it would have the process end by the signal once all is done, as if it
        # had failed. A second Ctrl-C does not wait for anybody.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._greeting, flush=True)


def serve(
    settings: LoadedSettings, *, beside: AbstractContextManager[None] | None = None, command: str = "lakelog"
) -> None:
    """Run until told to stop. Raises LakelogError if the address can't be had or the warehouse can't be opened.

    `beside` is entered once that is known, for as long as the gateway serves. `command` is how whoever is greeted can
    call the command line.
    """
    _log_to_stderr(settings)
    open_store(settings.gateway.warehouse, settings.storage, fsync=settings.log.fsync)
    host, port = split_address(settings.gateway.http)
    listener = _listen(host, port, "--http")
    kafka = None
    if settings.gateway.kafka != NO_LISTENER:
        kafka = _listen(*split_address(settings.gateway.kafka), "--kafka, or none to leave it out")
    app = create_app(settings, kafka)
    set_for_serving()
    config = uvicorn.Config(
        front_of(app, settings),
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http=BoundedHeads,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # Anybody can send them. The setting public_url says what a proxy would.
        timeout_graceful_shutdown=max(1, settings.gateway.stop_timeout_ms // 1000),
    )
    # The port that was given may be 0, for any that is free.
    greeting = _greeting(host, listener.getsockname()[1], kafka, settings.gateway.warehouse, command)
    with beside or nullcontext():
        GatewayServer(config, app, greeting).run([listener])


def _listen(host: str, port: int, flag: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        raise LakelogError(
            ErrorCode.INVALID_CONFIG, f"can't serve on {host}:{port}: {error}; choose another address with {flag}"
        ) from None
    return listener


def _log_to_stderr(settings: LoadedSettings) -> None:
    # No line of ours says which thread or process it comes from: finding out would cost every request.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    access = logging.getLogger("lakelog.access")
    access.propagate = False
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(logging.Formatter("%(message)s"))
    access.handlers = [lines]


def _greeting(host: str, port: int, kafka: socket.socket | None, warehouse: str, command: str) -> str:
    clients = ""
    if kafka is not None:
        address, kafka_port = kafka.getsockname()[:2]
        clients = f"and Kafka's clients on {address}:{kafka_port}\n"
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    found = host in _LOCAL_HOSTS and f"http://localhost:{port}" == DEFAULT_URL
    at = "" if found else f" --url {url}"
    return f"""
Lakelog serves {warehouse} on {url}
{clients}
  curl -X POST {url}/topics/hello -H 'Content-Type: application/json' -d '{{"records": [{{"value": "world"}}]}}'
  curl '{url}/topics/hello/records'
  {command} topics list{at}
  {command} consume hello --follow --from-beginning{at}
  {command} demo
  {url}/ui shows it all, {url}/docs describes the API. Ctrl-C stops.
"""
