"""What the log tells of its work to whoever counts it.

Owns the occasions, and nothing of how they are counted: a server that exports metrics hands a Broker an observer of its
own. Calls come from the event loop, on the hot path, and must return at once.
"""

from __future__ import annotations


class Observer:
    """Hears nothing. Override what is wanted."""

    def committed(
        self, topic: str, *, records: int, size_bytes: int, requests: int, files: int, seconds: float
    ) -> None:
        """Appends of one or more requests stand in the table; `seconds` is from the end of gathering to the commit."""

    def fetched(self, topic: str, *, records: int, size_bytes: int) -> None:
        """Records of a topic were handed to a reader."""

    def read(self, *, from_memory: bool) -> None:
        """A fetch took its next records out of the hot tail, or out of a file."""


class Observers(Observer):
    """Several observers in the place of one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def committed(
        self, topic: str, *, records: int, size_bytes: int, requests: int, files: int, seconds: float
    ) -> None:
        for each in self._observers:
            each.committed(
                topic, records=records, size_bytes=size_bytes, requests=requests, files=files, seconds=seconds
            )

    def fetched(self, topic: str, *, records: int, size_bytes: int) -> None:
        for each in self._observers:
            each.fetched(topic, records=records, size_bytes=size_bytes)

    def read(self, *, from_memory: bool) -> None:
        for each in self._observers:
            each.read(from_memory=from_memory)
