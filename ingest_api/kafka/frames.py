"""Frames: how a stream of bytes is cut into requests. A frame is four bytes of length and that many bytes more.

A protocol without I/O. It holds no more than one frame that is under way and what came with it, and refuses one that
is too long as soon as it is announced.
"""

from __future__ import annotations

LENGTH_BYTES = 4


class FrameTooLarge(Exception):
    """More is announced than is taken, or less than nothing."""


class FrameBuffer:
    def __init__(self, bytes_max: int) -> None:
        self.under_way_bytes = 0  # how long the frame is that has begun and not ended
        self._bytes_max = bytes_max
        self._held = bytearray()

    @property
    def arrived_bytes(self) -> int:
        """What is here of the frame that has begun and not ended."""
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete, without their lengths."""
        if self._held:
            self._held += data
            view = memoryview(self._held)
        else:
            view = memoryview(data)
        frames: list[bytes] = []
        at, self.under_way_bytes = 0, 0
        while at + LENGTH_BYTES <= len(view):
            size = int.from_bytes(view[at : at + LENGTH_BYTES], "big", signed=True)
            if not 0 <= size <= self._bytes_max:
                raise FrameTooLarge(f"a request of {size} bytes; body_bytes_max is {self._bytes_max}")
            end = at + LENGTH_BYTES + size
            if end > len(view):
                self.under_way_bytes = size
                break
            frames.append(bytes(view[at + LENGTH_BYTES : end]))
            at = end
        if at == len(view):
            self._held = bytearray()
            return frames
        self.under_way_bytes = self.under_way_bytes or len(view) - at
        if at or not self._held:
            self._held = bytearray(view[at:])
        return frames
