"""The console's files: read once, packed once, and served so that a browser asks for each of them once per version.

Modules and styles lie under a folder named after the content of all of them, and may be kept for ever; the page that
names the folder is asked for again each time. Nothing comes from anywhere else, and the page's policy says so.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ingest_api.errors import HttpError

PAGE = "index.html"
VERSION_MARK = b"{{version}}"
VERSION_CHARS = 12
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    packed: bytes
    kind: str
    tag: str

    @classmethod
    def of(cls, content: bytes, kind: str) -> Asset:
        return cls(content, gzip.compress(content, mtime=0), kind, f'"{_digest(content)}"')


@cache
def assets() -> tuple[str, dict[str, Asset]]:
    """The version, and the files by their paths."""
    found = dict(_walk(files("ingest_api.ui") / "static", ""))
    version = _digest(b"".join(name.encode() + content for name, content in sorted(found.items())))
    found[PAGE] = found[PAGE].replace(VERSION_MARK, version.encode())
    return version, {name: Asset.of(content, KINDS[_ending(name)]) for name, content in found.items()}


@router.get("/ui")
async def to_the_page(request: Request) -> Response:
    # Relative, so that it also leads there behind a proxy that puts a path in front.
    return RedirectResponse("ui/", 307)


@router.get("/docs")
async def to_the_description(request: Request) -> Response:
    return RedirectResponse("ui/#/api", 307)


@router.get("/ui/")
async def page(request: Request) -> Response:
    response = _answer(request, assets()[1][PAGE], ASK_AGAIN)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


@router.get("/ui/static/{version}/{path:path}")
async def asset(request: Request, version: str, path: str) -> Response:
    current, found = assets()
    if path not in found:
        raise HttpError(404, f"there is nothing at {request.url.path}")
    # A page of another version may still be open while gateways are replaced: it gets what there is, for now.
    return _answer(request, found[path], FOR_EVER if version == current else ASK_AGAIN)


def _answer(request: Request, asset: Asset, caching: str) -> Response:
    headers = {
        "Cache-Control": caching,
        "ETag": asset.tag,
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if asset.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.kind)
    return Response(asset.content, headers=headers, media_type=asset.kind)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif _ending(entry.name) in KINDS:
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


def _ending(name: str) -> str:
    return name[name.rfind(".") :]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:VERSION_CHARS]
