"""Kafka's own command-line tools, by class, from where `deploy/setup/ensure-kafka-tools` puts them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "kafka-tools"
PRODUCER_TEST = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_TEST = "org.apache.kafka.tools.ConsumerPerformance"
# For tools that are started often and for little: the compiler that starts fast and the simplest collector.
QUICK_START = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
PATIENCE_S = 120


def missing() -> str:
    """Why there are none, or nothing."""
    if not list(FOLDER.glob(".kafka-*")):
        return "Kafka's tools are not there: `make kafka-clients` fetches them where Maven is installed"
    if shutil.which("java") is None:
        return "Kafka's tools need Java: deploy/setup/ensure-java installs it"
    return ""


def run_tool(
    bootstrap: str, name: str, *arguments: str, stdin: str = "", jvm_options: tuple[str, ...] = QUICK_START
) -> str:
    command = [*_command(bootstrap, name, jvm_options), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start_tool(bootstrap: str, name: str, *arguments: str) -> subprocess.Popen[str]:
    """One that goes on until it is told to stop."""
    command = [*_command(bootstrap, name, QUICK_START), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _command(bootstrap: str, name: str, jvm_options: tuple[str, ...]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={FOLDER / 'log4j2.properties'}"
    return ["java", *jvm_options, logging, "-cp", f"{FOLDER / 'libs'}/*", name, "--bootstrap-server", bootstrap]
