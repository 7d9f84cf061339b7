"""Records as lines of JSON: what `consume` prints and `produce --json-lines` takes, so that one can feed the other.

A key or value is JSON where its bytes are, else text, else base64 in a field of its own; with `exact`, always base64,
so that every byte comes through. Pure.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from lakelog.client import FetchedRecord, Record


class Header(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    key: str
    value: str | None = None
    value_base64: bytes | None = None


class Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`topic` and `offset` tell where a printed record was; a record that is to be sent gets new ones."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    key: Any = None
    key_base64: bytes | None = None
    value: Any = msgspec.UNSET
    value_base64: bytes | None = None
    headers: list[Header] | dict[str, str | None] = []


_decoder = msgspec.json.Decoder(Line)


def to_line(topic: str, record: FetchedRecord, *, exact: bool = False) -> bytes:
    line: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_field("key", record.key, exact),
        **_field("value", record.value, exact),
    }
    if record.headers:
        line["headers"] = [{"key": name, **_header_value(value, exact)} for name, value in record.headers]
    return msgspec.json.encode(line)


def from_line(text: bytes) -> Record:
    """A record of a line; ValueError with the reason if it is none."""
    try:
        line = _decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if line.value is msgspec.UNSET and line.value_base64 is None:
        raise ValueError("it has neither a value nor a value_base64; a record without a value says null")
    value = line.value if line.value_base64 is None else line.value_base64
    headers = (
        list(line.headers.items())
        if isinstance(line.headers, dict)
        else [(each.key, each.value if each.value_base64 is None else each.value_base64) for each in line.headers]
    )
    return Record(
        value=value,
        key=line.key if line.key_base64 is None else line.key_base64,
        headers=headers,
        timestamp=line.timestamp,
        partition=line.partition,
    )


def _field(name: str, content: bytes | None, exact: bool) -> dict[str, Any]:
    if content is None:
        return {name: None}
    if not exact:
        try:
            # Checked, and passed on as it stands but for line ends, which are only ever between the parts of JSON.
            msgspec.json.decode(content)
            return {name: msgspec.Raw(content.replace(b"\r", b" ").replace(b"\n", b" "))}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # a value may be nested deeper than anybody who reads the line could follow
        try:
            return {name: content.decode()}
        except UnicodeDecodeError:
            pass
    return {f"{name}_base64": base64.b64encode(content).decode()}


def _header_value(content: bytes | None, exact: bool) -> dict[str, Any]:
    if content is not None and not exact:
        try:
            return {"value": content.decode()}
        except UnicodeDecodeError:
            pass
    return {"value": None} if content is None else {"value_base64": base64.b64encode(content).decode()}
