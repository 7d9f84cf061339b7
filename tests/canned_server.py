"""An HTTP server that gives the same answer whatever it is asked, as a stranger does or a service in distress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class CannedServer(ThreadingHTTPServer):
    """`asked` are the paths of the requests so far, `headers` what came with them."""

    def __init__(self, status_of: Callable[[str], int], page: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status_of = status_of
        self.page = page
        self.asked: list[str] = []
        self.headers: list[Message] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: CannedServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.headers.append(self.headers)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.server.status_of(self.path))
        self.send_header("Content-Length", str(len(self.server.page)))
        self.send_header("ETag", '"1"')  # stores give their files one
        self.end_headers()
        self.wfile.write(self.server.page)

    do_POST = do_PUT = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what is asserted is enough."""


@contextmanager
def canned_server(status_of: Callable[[str], int], page: bytes = b"") -> Iterator[CannedServer]:
    with CannedServer(status_of, page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
