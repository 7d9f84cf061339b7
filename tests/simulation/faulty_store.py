"""A store in memory that fails the way a network does: late, not at all, or after the deed.

`Warehouse` is what lies in the store, and is shared. Each broker reaches it over a `FaultyStore` of its own, a
connection whose delays and faults come from a seeded random source or from a test's own rules. A request is on its way
independently of who sent it: it may still arrive when its sender is gone or has been told that it failed.
It holds its own files, because the memory store that is shipped answers from threads, which virtual time can't order.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

from lakelog.clock import Clock
from lakelog.delta.store import FileMissing, FileWriter, StoredFile, StoreRefused, StoreUnavailable

T = TypeVar("T")


class Fate(Enum):
    """What becomes of a request."""

    DONE = "done"
    NEVER_ARRIVES = "never arrives"
    REPLY_LOST = "done, and the reply is lost"
    LATE = "arrives after its sender was told that it failed"
    REFUSED = "refused, however often it is asked"


@dataclass(slots=True)
class Faults:
    """How likely each fate is, and how long requests take. Shared by all connections that are to fail alike."""

    never_arrives: float = 0.0
    reply_lost: float = 0.0
    late: float = 0.0
    delay_ms_max: float = 1.0
    late_ms_max: float = 5_000.0
    outage: bool = False
    refuses: bool = False

    def become(self, other: Faults) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def draw(self, chance: random.Random) -> Fate:
        if self.refuses:
            return Fate.REFUSED
        if self.outage:
            return Fate.NEVER_ARRIVES
        drawn = chance.random()
        for fate, likely in (
            (Fate.NEVER_ARRIVES, self.never_arrives),
            (Fate.REPLY_LOST, self.reply_lost),
            (Fate.LATE, self.late),
        ):
            if drawn < likely:
                return fate
            drawn -= likely
        return Fate.DONE


@dataclass(slots=True)
class Warehouse:
    """The files, and every commit that was ever created, also of those that were cleaned away since."""

    clock: Clock
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    created: list[tuple[str, bytes]] = field(default_factory=list)

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = (data, self.clock.now_ms())

    def create(self, path: str, data: bytes) -> bool:
        if path in self.files:
            return False
        self.put(path, data)
        self.created.append((path, data))
        return True

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.files.pop(path, None)

    def list(self, folder: str) -> list[StoredFile]:
        found = ((path, *file) for path, file in self.files.items() if path.startswith(f"{folder}/"))
        return [StoredFile(path, len(data), modified_ms) for path, data, modified_ms in sorted(found)]


@dataclass(slots=True)
class Rule:
    """What a test wants to happen to the next requests of a kind, in the place of chance."""

    method: str
    path_end: str
    fate: Fate
    times: int
    meanwhile: Callable[[], Awaitable[object]] | None = None
    delay_ms: float | None = None

    def fits(self, method: str, path: str) -> bool:
        return self.times > 0 and method == self.method and path.endswith(self.path_end)


class FaultyStore:
    """One process's connection to a warehouse: a `lakelog.delta.store.Store`."""

    url = "memory://simulation"
    on_object_store = False

    def __init__(self, warehouse: Warehouse, faults: Faults | None = None, chance: random.Random | None = None) -> None:
        self.warehouse = warehouse
        self.faults = faults or Faults()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.on_cut: Callable[[], None] = lambda: None
        self._chance = chance or random.Random(0)
        self._rules: list[Rule] = []
        self._open: set[asyncio.Future[Any]] = set()
        self._calls_left: int | None = None
        self._cut = False

    # -- what a test decides -----------------------------------------------------------------------------------

    def when(
        self,
        method: str,
        path_end: str,
        fate: Fate = Fate.DONE,
        *,
        times: int = 1,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
        delay_ms: float | None = None,
    ) -> Rule:
        """Rule over the next `times` requests. `meanwhile` runs before such a request leaves; `delay_ms` is how long
        the reply takes.
        """
        rule = Rule(method, path_end, fate, times, meanwhile, delay_ms)
        self._rules.append(rule)
        return rule

    def asked(self, method: str, path_part: str = "") -> int:
        return sum(count for (name, path), count in self.calls.items() if name == method and path_part in path)

    def cut(self) -> None:
        """The process is gone: it sends nothing any more and hears nothing. What is on its way may arrive."""
        if self._cut:
            return
        self._cut = True
        for reply in list(self._open):
            reply.cancel()
        self.on_cut()

    def cut_after(self, calls: int | None) -> None:
        """The process dies with one of its next requests, when that has just left or is about to. None: it lives."""
        self._calls_left = calls

    # -- the store ---------------------------------------------------------------------------------------------

    async def get(self, path: str) -> bytes | None:
        return await self._ask("get", path, lambda: self.warehouse.files.get(path, (None, 0))[0])

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return list(await asyncio.gather(*map(self.get, paths)))

    async def put(self, path: str, data: bytes | pa.Buffer) -> None:
        copy = bytes(memoryview(data))
        await self._ask("put", path, lambda: self.warehouse.put(path, copy))

    async def create(self, path: str, data: bytes) -> bool:
        return await self._ask("create", path, lambda: self.warehouse.create(path, data))

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        def read() -> list[pa.Buffer]:
            if path not in self.warehouse.files:
                raise FileMissing(path)
            data = self.warehouse.files[path][0]
            return [pa.py_buffer(data[start:end]) for start, end in ranges]

        return await self._ask("read_ranges", path, read)

    async def files(self, folder: str, *, before_ms: int | None = None) -> list[StoredFile]:
        found = await self._ask("files", folder, lambda: self.warehouse.list(folder))
        return [file for file in found if before_ms is None or file.modified_ms < before_ms]

    async def unfinished(self, folder: str) -> list[StoredFile]:
        return []

    async def folders(self) -> list[str]:
        return await self._ask(
            "folders", "", lambda: sorted({path.split("/", 1)[0] for path in self.warehouse.files if "/" in path})
        )

    async def delete(self, paths: Sequence[str]) -> None:
        await self._ask("delete", paths[0] if paths else "", lambda: self.warehouse.delete(paths))

    def writer(self, path: str) -> FileWriter:
        return _Writer(self, path)

    def close_file(self, path: str, data: bytes) -> None:
        """What a writer does in the end. It is called from plain code, so it fails or works without delay."""
        _, fate = self._decide("writer", path)
        if self._cut or fate is Fate.NEVER_ARRIVES:
            raise StoreUnavailable(f"writer {path}: never arrived")
        if fate is Fate.REFUSED:
            raise StoreRefused(f"writer {path}: refused")
        self.warehouse.put(path, data)
        if fate is not Fate.DONE:
            raise StoreUnavailable(f"writer {path}: no reply")

    # -- requests on their way ---------------------------------------------------------------------------------

    def _decide(self, method: str, path: str) -> tuple[Rule | None, Fate]:
        self.calls[method, path] += 1
        rule = next((rule for rule in self._rules if rule.fits(method, path)), None)
        if rule is None:
            return None, self.faults.draw(self._chance)
        rule.times -= 1
        return rule, rule.fate

    def _pause_s(self) -> float:
        # Never nothing: two things at one instant would have no order.
        return self._chance.uniform(0.05, max(0.1, self.faults.delay_ms_max)) / 1000

    async def _ask(self, method: str, path: str, effect: Callable[[], T]) -> T:
        rule, fate = self._decide(method, path)
        if rule is not None and rule.meanwhile is not None:
            await rule.meanwhile()
        if self._cut:
            raise asyncio.CancelledError  # nobody is there any more: whoever asks ends here
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[T] = loop.create_future()
        self._open.add(reply)
        name = f"{method} {path}"

        def answer(outcome: T | Exception) -> None:
            if reply.done():
                return
            if isinstance(outcome, Exception):
                reply.set_exception(outcome)
            else:
                reply.set_result(outcome)

        def arrive(*, heard: bool) -> None:
            if self._cut and self._chance.random() < 0.5:
                return  # it had not left yet when its sender died
            outcome: T | Exception
            try:
                outcome = effect()
            except FileMissing as error:
                outcome = error
            if heard:
                back_s = rule.delay_ms / 1000 if rule is not None and rule.delay_ms is not None else self._pause_s()
                loop.call_later(back_s, answer, outcome)

        there_s = self._pause_s()
        told_s = there_s + self._pause_s()
        if fate is Fate.DONE:
            loop.call_later(there_s, lambda: arrive(heard=True))
        elif fate is Fate.REFUSED:
            loop.call_later(told_s, answer, StoreRefused(f"{name}: refused"))
        else:
            loop.call_later(told_s, answer, StoreUnavailable(f"{name}: {fate.value}"))
        if fate is Fate.REPLY_LOST:
            loop.call_later(there_s, lambda: arrive(heard=False))
        elif fate is Fate.LATE:
            late_s = self._chance.uniform(0, self.faults.late_ms_max) / 1000
            loop.call_later(told_s + late_s, lambda: arrive(heard=False))
        if self._calls_left is not None:
            self._calls_left -= 1
            if self._calls_left < 0:
                self.cut()
        try:
            return await reply
        finally:
            self._open.discard(reply)


class _Writer:
    def __init__(self, store: FaultyStore, path: str) -> None:
        self._store = store
        self._path = path
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def close(self) -> None:
        self._store.close_file(self._path, b"".join(self._pieces))
