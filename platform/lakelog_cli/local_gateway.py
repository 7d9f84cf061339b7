"""A gateway of one's own: a `lakelog serve` process on a free port, for the demo and for tests.

It is started as a person would start it, and speaks through its greeting: the line that names its address says that it
listens. What it writes goes to a file, so that it never waits for a reader.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from lakelog.client import LakelogClient
from lakelog.errors import ErrorCode, LakelogError

ANY_PORT = "127.0.0.1:0"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
_LOOKS_PER_SECOND = 50
_LOG_SHOWN_CHARS = 2000
_GREETING = re.compile(r"^Lakelog serves .* on (http://\S+)\n(?:and Kafka's clients on (\S+)\n)?", re.MULTILINE)


class LocalGateway:
    """Started on entering and stopped on leaving; `settings` are those of `lakelog config`, by name.

    Unless it is asked for, nothing keeps its topics clean: it is not there for long.
    """

    def __init__(
        self,
        warehouse: str | Path,
        log_file: Path,
        settings: Mapping[str, str] | None = None,
        *,
        http: str = ANY_PORT,
        maintenance: bool = False,
    ) -> None:
        self.url = ""
        self.kafka = ""  # where Kafka's clients find it
        self._log_file = log_file
        self._warehouse = str(warehouse)
        self._settings = dict(settings or {})
        self._addresses = {"http": http, "kafka": ANY_PORT}
        self._maintenance = maintenance
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log_file.read_text(errors="replace")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the gateway is not started"
        return self._process

    def start(self) -> None:
        """Start, also again after a stop or a kill. Returns when it serves; if it does not, raises what it said."""
        assert self._process is None or self._process.poll() is not None, "the gateway is running"
        command = [sys.executable, "-m", "lakelog_cli.main", "serve"]
        if not self._maintenance:
            command.append("--no-maintenance")
        for name, value in {"warehouse": self._warehouse, **self._addresses, **self._settings}.items():
            command += [f"--{name.replace('_', '-')}", value]
        # No setting of the surroundings is to reach a gateway whose settings are all given.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKELOG_")}
        with self._log_file.open("wb") as log:
            # A group of its own: Ctrl-C is for the program that started it, which then stops it in order.
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        self.url, self.kafka = self._greeted()
        # Started once more, it is where it was.
        self._addresses = {"http": self.url.removeprefix("http://"), "kafka": self.kafka or "none"}
        with LakelogClient(self.url, retry_timeout_s=START_TIMEOUT_S) as client:
            client.ping()

    def stop(self) -> int:
        """As an operator stops it: what was taken in is committed first. Returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """As a power cut stops it."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            if self._process is not None:
                self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()

    def _greeted(self) -> tuple[str, str]:
        for _ in range(int(START_TIMEOUT_S * _LOOKS_PER_SECOND)):
            if found := _GREETING.search(self.log):
                return found[1], found[2] or ""
            try:
                self.process.wait(1 / _LOOKS_PER_SECOND)
            except subprocess.TimeoutExpired:
                continue
            break
        raise LakelogError(
            ErrorCode.LEADER_NOT_AVAILABLE, f"the gateway did not start: {self.log[-_LOG_SHOWN_CHARS:].strip()}"
        )
