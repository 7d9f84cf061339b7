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

    def read(self, request: Request, bytes_max: int | None = None) -> BodyOf:
        """The body of a request: of so many bytes, if that is said and less than what any body may have."""
        limit = self.settings.body_bytes_max
        return BodyOf(request, self, limit if bytes_max is None else min(bytes_max, limit))


class BodyOf:
    """A request's body as a context: whole inside of it, and its room given back at the end."""

    def __init__(self, request: Request, bodies: Bodies, limit: int) -> None:
        self._request = request
        self._bodies = bodies
        self._limit = limit
        self._share = Share(bodies.room)

    async def take(self, size: int) -> None:
        """Room for what is made of the body, until its own is given back."""
        await self._share.take(size)

    async def __aenter__(self) -> bytes:
        length = self._request.headers.get("content-length", "")
        # A body that does not say how long it is might be as long as is allowed.
        size = int(length) if length.isdecimal() else self._limit
        if size > self._limit:
            raise self._too_large()
        codec = _codec_of(self._request)
        await self._share.take(min(size, FIRST_BYTES))
        try:
            body = await self._receive()
            self._share.keep(len(body))
            return body if codec is None else await self._unpacked(body, codec)
        except BaseException:
            self._share.keep(0)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._share.keep(0)

    async def _unpacked(self, body: bytes, codec: str) -> bytes:
        """Piece by piece, each when there is room for it: nobody knows how much a few bytes stand for."""
        pieces, size, whole = [], 0, False
        try:
            stream = pa.CompressedInputStream(pa.BufferReader(body), codec)
            while not whole:
                await self._share.take(UNPACK_STEP_BYTES)
                piece = await asyncio.to_thread(stream.read, UNPACK_STEP_BYTES)
                size += len(piece)
                if size > self._limit:
                    raise self._too_large()
                pieces.append(piece)
                whole = len(piece) < UNPACK_STEP_BYTES
        except (pa.ArrowException, OSError) as error:
            raise HttpError(400, f"the body is not {codec}: {error}") from None
        self._share.keep(size)
        return b"".join(pieces)

    async def _receive(self) -> bytes:
        timeout_ms = self._bodies.settings.body_timeout_ms
        try:
            return await within(timeout_ms / 1000, self._whole())
        except TimeoutError:
            raise HttpError(408, f"the body did not arrive within {timeout_ms} ms") from None
        except ClientDisconnect:
            raise HttpError(400, "the body ended before it was whole") from None

    async def _whole(self) -> bytes:
        pieces, size = [], 0
        async for piece in self._request.stream():
            size += len(piece)
            if size > self._limit:
                raise self._too_large()
            if size > self._share.bytes:
                await self._share.take(size - self._share.bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def _too_large(self) -> HttpError:
        if self._limit == self._bodies.settings.body_bytes_max:
            return too_large(self._limit)
        return HttpError(413, f"the body is larger than the {self._limit} bytes that are taken here")


def too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is larger than body_bytes_max, which is {limit} bytes; send fewer records at once")


def _codec_of(request: Request) -> str | None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in CODECS:
        raise HttpError(415, f"the content encoding {encoding!r} is not taken; send gzip, zstd or nothing")
    return CODECS[encoding]
