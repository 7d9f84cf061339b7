"""The gateway's settings, and where settings come from: flags, then the environment, then a file, then defaults.

One row per setting, as in `lakelog.config`, whose rows for the log itself stand in the same table. Nothing else in the
gateway reads the environment.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consumer_groups.group_settings import GroupSettings
from lakelog.config import MIB, ConfigEntry, ConfigRow, ServerSettings, Settings, Text, int_of, long_of, row
from lakelog.errors import ErrorCode, LakelogError

ENVIRONMENT_PREFIX = "LAKELOG_"
FILE_VARIABLE = "LAKELOG_CONFIG"
STORAGE_TABLE = "storage"
# In the place of an address.
NO_LISTENER = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(Settings):
    warehouse: str = row(
        Text("a directory, or a URL: s3://, gs://, az://, memory://"),
        "./data",
        "Where the topics are: a local directory, or a URL of an object store.",
    )
    http: str = row(
        Text("an address as HOST:PORT"),
        "localhost:8082",
        "The address that HTTP is served on. 0.0.0.0:8082 serves every network that the machine is in.",
    )
    public_url: str = row(
        Text("a URL, http:// or https://, without a query"),
        "",
        "Where clients find the gateway, and what links in replies begin with: https://streams.example.com behind a "
        "proxy that speaks TLS. Unless it is set, links go to where the client sent its request, by http://.",
    )
    cluster_id: str = row(
        Text("a name of letters, digits, '.', '_' and '-'"),
        "lakelog",
        "What the cluster is called, to Kafka's clients and in v3: a name of letters, digits, '.', '_' and '-'.",
    )
    kafka: str = row(
        Text("an address as HOST:PORT, or none"),
        "localhost:9092",
        "The address that Kafka's protocol is served on. 0.0.0.0:9092 serves every network that the machine is in, "
        "none turns it off.",
    )
    kafka_advertised: str = row(
        Text("an address as HOST:PORT"),
        "",
        "The address that Kafka's clients are told to come back to, where it is not the one that they reached: behind "
        "a load balancer, or in a container with another port outside.",
    )
    kafka_connections_max: int = row(
        int_of(1),
        10_000,
        "How many connections of Kafka's clients are held at the same time. Those beyond are closed at once.",
    )
    kafka_idle_timeout_ms: int = row(
        long_of(1),
        600_000,
        "How long a connection of a Kafka client may be silent before it is closed.",
    )
    body_bytes_max: int = row(
        long_of(1),
        64 * MIB,
        "The largest request body, before and after decompression. A larger one is refused with 413.",
    )
    body_timeout_ms: int = row(
        long_of(1),
        30_000,
        "How long a request's body may take to arrive before it is refused with 408.",
    )
    bodies_bytes_max: int = row(
        long_of(1),
        128 * MIB,
        "How many bytes of request bodies are held at the same time. Requests beyond wait for room; one that is half "
        "read may go beyond.",
    )
    bodies_wait_ms: int = row(
        long_of(0),
        10_000,
        "How long a request waits for that room before it is refused with 429.",
    )
    replies_bytes_max: int = row(
        long_of(1),
        64 * MIB,
        "How many bytes of fetched records are held at the same time for readers who have yet to take them. Fetches "
        "beyond wait for room.",
    )
    replies_wait_ms: int = row(
        long_of(0),
        10_000,
        "How long a fetch waits for that room before it is refused with 429.",
    )
    reply_timeout_ms: int = row(
        long_of(1),
        60_000,
        "How long a reader may leave the next piece of a reply untaken before its connection is closed.",
    )
    request_records_max: int = row(
        int_of(1),
        1_000_000,
        "The most records in one request. One with more is refused with 413.",
    )
    requests_max: int = row(
        int_of(1),
        4_096,
        "How many requests are served at the same time, long polls and streams included. Those beyond are "
        "refused with 503.",
    )
    request_timeout_ms: int = row(
        long_of(1),
        60_000,
        "How long a produce request waits for its commit when it does not say, and the longest that a fetch waits.",
    )
    heartbeat_ms: int = row(
        int_of(10),
        10_000,
        "How often a stream without records sends a sign of life.",
    )
    consumers_max: int = row(
        int_of(1),
        10_000,
        "How many consumers there are at the same time. One more is refused with 429.",
    )
    consumer_instance_timeout_ms: int = row(
        long_of(1),
        300_000,
        "How long a consumer that nobody asks anything of is kept, and with it, unless it says otherwise, its place in "
        "the group.",
    )
    stop_timeout_ms: int = row(
        long_of(0),
        20_000,
        "How long requests under way have to finish once the process is told to stop.",
    )
    cors_origins: str = row(
        Text("origins with commas between them, or *"),
        "",
        "Which web pages may call the gateway: origins such as https://example.com with commas between them, * for "
        "all, nothing for none.",
    )
    access_log: str = row(
        Text("json, text or off"),
        "json",
        "How each request is logged: json (one object a line), text, or off.",
    )

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.access_log not in ("json", "text", "off"):
            raise self.rows()["access_log"].refusal(self.access_log)
        if not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", self.cluster_id):
            raise self.rows()["cluster_id"].refusal(self.cluster_id)
        if self.public_url and not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", self.public_url):
            raise self.rows()["public_url"].refusal(self.public_url)
        split_address(self.http)
        if self.kafka != NO_LISTENER:
            split_address(self.kafka, "kafka")
        if self.kafka_advertised:
            split_address(self.kafka_advertised, "kafka_advertised")


def split_address(address: str, setting: str = "http") -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise GatewaySettings.rows()[setting].refusal(address)
    return host.strip("[]") or "localhost", int(port)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """All settings of a gateway process, and where each one that is not a default came from."""

    gateway: GatewaySettings
    log: ServerSettings
    groups: GroupSettings = field(default_factory=GroupSettings)
    storage: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> list[ConfigEntry]:
        return [*self.gateway.describe(), *self.groups.describe(), *self.log.describe()]


def all_rows() -> dict[str, ConfigRow]:
    """Every setting of a gateway process, in the order of the documentation."""
    return {**GatewaySettings.rows(), **GroupSettings.rows(), **ServerSettings.rows()}


def load_settings(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None = None) -> LoadedSettings:
    """What is said nearer wins: a flag over a variable, a variable over the file."""
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    written, storage = _read_file(file) if file is not None else ({}, {})
    texts: dict[str, str] = {}
    sources: dict[str, str] = {}
    variables = {name: environment.get(ENVIRONMENT_PREFIX + name.upper()) for name in all_rows()}
    for source, values in ((str(file), written), ("environment", variables), ("flag", flags)):
        for name, text in values.items():
            if text is not None:
                texts[name], sources[name] = text, source
    for_log = {name: texts.pop(name) for name in list(texts) if name in ServerSettings.rows()}
    for_groups = {name: texts.pop(name) for name in list(texts) if name in GroupSettings.rows()}
    return LoadedSettings(
        gateway=GatewaySettings.parse(texts),
        log=ServerSettings.parse(for_log),
        groups=GroupSettings.parse(for_groups),
        storage=storage,
        sources=sources,
    )


def _read_file(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Settings at the top level of a TOML file, and the options of the object store in its table [storage]."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise LakelogError(ErrorCode.INVALID_CONFIG, f"the settings file {path} can't be read: {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LakelogError(ErrorCode.INVALID_CONFIG, f"the settings file {path} is not TOML: {error}") from None
    storage = content.pop(STORAGE_TABLE, {})
    if not isinstance(storage, dict):
        raise LakelogError(ErrorCode.INVALID_CONFIG, f"{path}: {STORAGE_TABLE} should be a table, [{STORAGE_TABLE}]")
    return _texts(path, content), _texts(path, storage)


def _texts(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Values as they are written in a flag: what is in a list has commas between it."""
    texts = {}
    for name, value in values.items():
        several = value if isinstance(value, list) else [value]
        if any(isinstance(each, list | dict) for each in several):
            raise LakelogError(ErrorCode.INVALID_CONFIG, f"{path}: {name} should be a value or a list of values")
        texts[name] = ",".join(str(each).lower() if isinstance(each, bool) else str(each) for each in several)
    return texts
