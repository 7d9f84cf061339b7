"""A Kafka broker to measure beside, started for one benchmark and stopped after it.

LAKELOG_PEERS names a folder with the scripts that do it: `kafka-up.sh`, `kafka-down.sh`, `kafka-tool.sh` (any of
Kafka's own tools by class), and benchmarks that print a JSON object a run. What they fetch and write goes to PEERS_DIR.
Without LAKELOG_PEERS figures stand alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.report import scratch_folder

BOOTSTRAP = "127.0.0.1:19092"


@dataclass(frozen=True, slots=True)
class Kafka:
    """A broker that runs. `peers_dir` holds its data, under `kafka-run/data`."""

    scripts: Path
    peers_dir: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PEERS_DIR": str(self.peers_dir)}

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        options = [word for item in (config or {}).items() for word in ("--config", "=".join(item))]
        options += ["--partitions", str(partitions), "--replication-factor", "1"]
        self._tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", name, *options)

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        settings = ",".join("=".join(item) for item in config.items())
        entity = ("--entity-type", "topics", "--entity-name", topic)
        self._tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", settings)

    def produce(self, topic: str, lines: Iterable[bytes], *, keyed: bool = False) -> None:
        """A record a line; `keyed` ones have a key up to the first tabulator."""
        options = ["--topic", topic, "--reader-property", f"parse.key={str(keyed).lower()}"]
        options += ["--batch-size", "131072", "--request-required-acks", "all"]
        command = self._command("org.apache.kafka.tools.ConsoleProducer", *options)
        with subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as producer:
            assert producer.stdin is not None
            for piece in lines:
                producer.stdin.write(piece)
        if producer.returncode:
            raise subprocess.CalledProcessError(producer.returncode, command)

    def measure(self, script: str, *options: str, python: Path | None = None) -> list[dict[str, Any]]:
        """What a benchmark of theirs printed, an object for each of its runs."""
        done = subprocess.run(
            [python or sys.executable, self.scripts / script, *options],
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]

    def measure_spark(self, *options: str) -> list[dict[str, Any]]:
        """Spark with its own Kafka source, in an installation of its own, which is made at first."""
        subprocess.run([self.scripts / "spark-fetch.sh"], env=self.environment, check=True, stdout=subprocess.DEVNULL)
        python = self.peers_dir / "venv-spark" / "bin" / "python"
        return self.measure("spark_kafka_bench.py", "--bootstrap", BOOTSTRAP, *options, python=python)

    def _command(self, tool: str, *options: str) -> list[str | Path]:
        return [self.scripts / "kafka-tool.sh", tool, "--bootstrap-server", BOOTSTRAP, *options]

    def _tool(self, tool: str, *options: str) -> None:
        command = self._command(tool, *options)
        subprocess.run(command, env=self.environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def kafka(properties: Mapping[str, str] | None = None) -> Iterator[Kafka | None]:
    """A broker without any data, with stock settings but for these; None if there is none to be had."""
    scripts = os.environ.get("LAKELOG_PEERS")
    if not scripts:
        yield None
        return
    with scratch_folder() as scratch:
        broker = Kafka(Path(scripts), Path(os.environ.get("PEERS_DIR", scratch)))
        extra = "\\n".join("=".join(item) for item in (properties or {}).items())
        environment = {**broker.environment, "KAFKA_EXTRA_PROPS": extra}
        subprocess.run(
            [broker.scripts / "kafka-up.sh", "--clean"], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        try:
            yield broker
        finally:
            subprocess.run([broker.scripts / "kafka-down.sh"], env=environment, check=True, stdout=subprocess.DEVNULL)
