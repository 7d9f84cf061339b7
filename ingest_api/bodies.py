"""Request bodies: read within limits of size, time and memory, and unpacked if they are compressed."""

from __future__ import annotations

import asyncio

import pyarrow as pa
from starlette.requests import ClientDisconnect, Request

from ingest_api.errors import HttpError
from ingest_api.patience import within
from ingest_api.settings import GatewaySettings
from lakelog.flow import Room, Share

CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
UNPACK_STEP_BYTES = 1 << 20
# Who announces much, or does not say how much, gets this before it has sent anything, and the rest as it arrives.
FIRST_BYTES = 1 << 20


class Bodies:
    """What the bodies of all requests share."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.room = Room(settings.bodies_bytes_max, settings.bodies_wait_ms, "bodies_bytes_max")

    def read(self, request: Request) -> BodyOf:
        return BodyOf(request, self)


class BodyOf:
    """A request's body as a context: whole inside of it, and its room given back at the end."""

    def __init__(self, request: Request, bodies: Bodies) -> None:
        self._request = request
        self._bodies = bodies
        self._share = Share(bodies.room)

    async def __aenter__(self) -> bytes:
        limit = self._bodies.settings.body_bytes_max
        length = self._request.headers.get("content-length", "")
        # A body that does not say how long it is might be as long as is allowed.
        size = int(length) if length.isdecimal() else limit
        if size > limit:
            raise too_large(limit)
        codec = _codec_of(self._request)
        await self._share.take(min(size, FIRST_BYTES))
        try:
            body = await self._receive(limit)
            self._share.keep(len(body))
            return body if codec is None else await self._unpacked(body, codec, limit)
        except BaseException:
            self._share.keep(0)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._share.keep(0)

    async def _unpacked(self, body: bytes, codec: str, limit: int) -> bytes:
        unpacked = await asyncio.to_thread(_unpack, body, codec, limit)
        self._share.claim(len(unpacked))
        return unpacked

    async def _receive(self, limit: int) -> bytes:
        timeout_ms = self._bodies.settings.body_timeout_ms
        try:
            return await within(timeout_ms / 1000, self._whole(limit))
        except TimeoutError:
            raise HttpError(408, f"the body did not arrive within {timeout_ms} ms") from None
        except ClientDisconnect:
            raise HttpError(400, "the body ended before it was whole") from None

    async def _whole(self, limit: int) -> bytes:
        pieces, size = [], 0
        async for piece in self._request.stream():
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            if size > self._share.bytes:
                await self._share.take(size - self._share.bytes)
            pieces.append(piece)
        return b"".join(pieces)


def too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is larger than body_bytes_max, which is {limit} bytes; send fewer records at once")


def _codec_of(request: Request) -> str | None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in CODECS:
        raise HttpError(415, f"the content encoding {encoding!r} is not taken; send gzip, zstd or nothing")
    return CODECS[encoding]


def _unpack(body: bytes, codec: str, limit: int) -> bytes:
    pieces, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while piece := stream.read(UNPACK_STEP_BYTES):
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                pieces.append(piece)
    except (pa.ArrowException, OSError) as error:
        raise HttpError(400, f"the body is not {codec}: {error}") from None
    return b"".join(pieces)
