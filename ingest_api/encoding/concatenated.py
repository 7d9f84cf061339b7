"""JSON objects that follow each other in a stream of bytes, with or without space between them.

A protocol without I/O: pieces of any size go in, whole objects come out as they were written. It looks for where an
object ends and at nothing else, so what it hands out may still not be JSON. No byte is looked at twice, however small
the pieces are. What can't be the beginning of an object is a fault, and nothing comes out after it; what came before it
does.
"""

from __future__ import annotations

import re

from ingest_api.errors import HttpError

_OUTSIDE_STRING = re.compile(rb'["{}]')
_INSIDE_STRING = re.compile(rb'["\\]')
_SPACE = re.compile(rb"[ \t\r\n]*")
_ESCAPE_BYTES = 2


class ConcatenatedJson:
    def __init__(self, object_bytes_max: int) -> None:
        self.fault: HttpError | None = None
        self._object_bytes_max = object_bytes_max
        self._buffer = bytearray()
        self._seen = 0  # how far the buffer has been looked at
        self._depth = 0
        self._in_string = False

    @property
    def pending_bytes(self) -> int:
        """Of an object that is not whole yet."""
        return len(self._buffer)

    def feed(self, piece: bytes) -> list[bytes]:
        """The objects that are whole with this piece."""
        self._buffer += piece
        found: list[bytes] = []
        start = self._object_start(0)
        while self.fault is None and (end := self._object_end()) is not None:
            if not self._small_enough(end - start):
                break
            found.append(bytes(self._buffer[start:end]))
            start = self._object_start(end)
        del self._buffer[:start]
        self._seen -= start
        self._small_enough(len(self._buffer))
        return found

    def finish(self) -> None:
        """No more will come: an object that was begun is a fault."""
        if self.fault is None and self._buffer:
            self.fault = HttpError(400, "the body is not JSON: it ends in the middle of a record")

    def _small_enough(self, object_bytes: int) -> bool:
        if self.fault is None and object_bytes > self._object_bytes_max:
            limit = self._object_bytes_max
            self.fault = HttpError(413, f"a record is larger than body_bytes_max, which is {limit} bytes")
        return self.fault is None

    def _object_start(self, after: int) -> int:
        if self._depth:
            return after
        space = _SPACE.match(self._buffer, after)
        start = space.end() if space is not None else after
        self._seen = start
        if start < len(self._buffer) and self._buffer[start] != ord("{"):
            wrong = bytes(self._buffer[start : start + 20]).decode(errors="replace")
            self.fault = HttpError(400, f"the body is not a row of JSON objects: {wrong!r} begins none")
        return start

    def _object_end(self) -> int | None:
        """One past the brace that closes the object, or None if it is still to come."""
        buffer = self._buffer
        while True:
            mark = (_INSIDE_STRING if self._in_string else _OUTSIDE_STRING).search(buffer, self._seen)
            if mark is None:
                self._seen = len(buffer)
                return None
            kind, self._seen = buffer[mark.start()], mark.end()
            if kind == ord("\\"):
                if mark.start() + _ESCAPE_BYTES > len(buffer):
                    self._seen = mark.start()  # what it escapes is in the next piece
                    return None
                self._seen = mark.start() + _ESCAPE_BYTES
            elif kind == ord('"'):
                self._in_string = not self._in_string
            elif kind == ord("{"):
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return self._seen
