"""How a consumer was asked to be when it was made: REST Proxy v2's options by their names, and their defaults.

Pure: what a request says goes in, and options come out or the refusal that REST Proxy gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ingest_api import media
from ingest_api.errors import HttpError
from ingest_api.media import Embedded
from lakelog.fetch import Position

INVALID_CONFIG = 42204
INVALID_FETCH_MIN_BYTES = 40001
FETCH_MIN_BYTES_MOST = 10_000_000
# REST Proxy's own defaults, and Kafka's where it hands them on.
REQUEST_TIMEOUT_MS = 1_000
AUTO_COMMIT_INTERVAL_MS = 5_000

ARROW = "arrow"
FORMATS: dict[str, Embedded | None] = {**{each.value: each for each in Embedded}, ARROW: None}
RESETS: dict[str, Position | None] = {"latest": Position.LATEST, "earliest": Position.EARLIEST, "none": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """`embedded` is None for a consumer that reads Arrow, `reset` where a missing offset is an error."""

    embedded: Embedded | None = Embedded.BINARY
    reset: Position | None = Position.LATEST
    auto_commit: bool = True
    auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS
    fetch_min_bytes: int = 1
    request_timeout_ms: int | None = None
    session_timeout_ms: int | None = None
    group_instance_id: str | None = None

    def poll_timeout_ms(self, asked_ms: int | None) -> int:
        """How long a poll waits: as long as it says, but no longer than the consumer was made to."""
        if asked_ms is None or asked_ms < 0:
            return self.request_timeout_ms if self.request_timeout_ms is not None else REQUEST_TIMEOUT_MS
        return asked_ms if self.request_timeout_ms is None else min(asked_ms, self.request_timeout_ms)

    def reply_type(self, accept: str) -> str:
        """The media type of a poll's reply. Arrow is to be had from every consumer."""
        own = [media.ARROW] if self.embedded is None else [self.embedded.media_type, *media.METADATA_OUT, media.ARROW]
        try:
            return media.negotiate(accept, tuple(own))
        except HttpError:
            media.negotiate(accept, tuple(media.RECORDS_OUT))
            raise HttpError(
                406,
                f"the consumer reads {ARROW if self.embedded is None else self.embedded.value}, which is none of the "
                f"forms in Accept: {accept[:200]}; make one with another format",
                40601,
            ) from None


def format_of(text: str) -> Embedded | None:
    if text.lower() not in FORMATS:
        raise HttpError(422, f"there is no format {text[:50]!r}; there are {', '.join(FORMATS)}")
    return FORMATS[text.lower()]


def reset_of(text: str) -> Position | None:
    if text.lower() not in RESETS:
        raise invalid("auto.offset.reset", text, ", ".join(RESETS))
    return RESETS[text.lower()]


def switch_of(name: str, value: str | bool) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise invalid(name, value, "true or false")
    return text == "true"


def min_bytes_of(value: int) -> int:
    """REST Proxy's -1 waits for its timeout though there are records. Here every poll ends when there are some."""
    if not -1 <= value <= FETCH_MIN_BYTES_MOST:
        raise HttpError(
            422, f"fetch.min.bytes is {value}; it is from -1 to {FETCH_MIN_BYTES_MOST}", INVALID_FETCH_MIN_BYTES
        )
    return max(1, value)


def milliseconds_of(name: str, value: int | None, least: int) -> int | None:
    if value is not None and not least <= value < 2**31:
        raise invalid(name, value, f"a number of milliseconds from {least} on")
    return value


def invalid(name: str, value: Any, expected: str) -> HttpError:
    return HttpError(422, f"{name} is {str(value)[:50]!r}; it should be {expected}", INVALID_CONFIG)
