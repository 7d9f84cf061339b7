"""Media types: what a request's body is, and which form of reply its sender takes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache

from ingest_api.errors import HttpError

V2 = "application/vnd.kafka.v2+json"
V2_SHORT = "application/vnd.kafka+json"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"


class Embedded(Enum):
    """How keys and values are written inside JSON."""

    BINARY = "binary"
    JSON = "json"
    TEXT = "text"

    @property
    def media_type(self) -> str:
        return f"application/vnd.kafka.{self.value}.v2+json"


RECORDS_IN: dict[str, Embedded | None] = {
    Embedded.BINARY.media_type: Embedded.BINARY,
    Embedded.JSON.media_type: Embedded.JSON,
    Embedded.TEXT.media_type: Embedded.TEXT,
    JSON: Embedded.JSON,
    ARROW: None,
}
# The first is what a sender gets who does not say.
RECORDS_OUT: dict[str, Embedded | None] = {
    JSON: Embedded.JSON,
    Embedded.JSON.media_type: Embedded.JSON,
    Embedded.BINARY.media_type: Embedded.BINARY,
    Embedded.TEXT.media_type: Embedded.TEXT,
    ARROW: None,
}
STREAMS_OUT = (EVENTS, LINES)
METADATA_OUT = (V2, V2_SHORT, JSON)


@lru_cache(maxsize=256)
def body_type(content_type: str) -> Embedded | None:
    """The embedded format of a produce request, or None for Arrow."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in RECORDS_IN:
        shown = f"the content type {kind!r} is not taken" if kind else "the request has no Content-Type"
        raise HttpError(415, f"{shown}; records come as {', '.join(RECORDS_IN)}")
    return RECORDS_IN[kind]


@lru_cache(maxsize=1024)
def negotiate(accept: str, offered: Sequence[str]) -> str:
    """The offered type that the Accept header likes best; among equals the one that is offered first."""
    if not accept.strip():
        return offered[0]
    ranges = [_range_of(part) for part in accept.split(",")]
    best, best_quality = "", 0.0
    for kind in offered:
        # The most specific range that fits decides how much a type is liked.
        fitting = [(specificity, quality) for pattern, specificity, quality in ranges if _fits(pattern, kind)]
        quality = max(fitting)[1] if fitting else 0.0
        if quality > best_quality:
            best, best_quality = kind, quality
    if not best:
        raise HttpError(406, f"none of the forms in Accept: {accept[:200]} is offered; there are {', '.join(offered)}")
    return best


def _range_of(part: str) -> tuple[str, int, float]:
    pattern, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = float(parameter[2:])
            except ValueError:
                quality = 0.0
    return pattern, 0 if pattern == "*/*" else 1 if pattern.endswith("/*") else 2, quality


def _fits(pattern: str, kind: str) -> bool:
    return pattern in ("*/*", kind) or (pattern.endswith("/*") and kind.startswith(pattern[:-1]))
