"""One table: open it, follow it, commit to it.

The commit is the heart of the system. A draft is put as the next version of the log if nobody has put that version yet.
Who loses the race takes in what the winner did and asks the draft whether it still holds: if it does, it goes to
the version after; if it does not, its maker is told and makes another. A put whose outcome is unknown is read back and
known again by its id, so nothing is ever committed twice.

What the log adds up to depends on the kind of table, and so does what may be drafted on it: `CommitLog` is the same for
all of them, `Table` is that of a topic.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa

from lakelog.clock import NEVER, Clock, Moment
from lakelog.delta.actions import Action, decode_commit, encode_commit, removed_paths
from lakelog.delta.checkpoint import (
    LAST_CHECKPOINT,
    Checkpoint,
    LastCheckpoint,
    checkpoint_of,
    decode_checkpoint,
    decode_hint,
    encode_checkpoint,
)
from lakelog.delta.state import Changes, TableState
from lakelog.delta.store import Store, StoredFile, StoreUnavailable
from lakelog.delta.tombstones import Tombstones
from lakelog.errors import ErrorCode, LakelogError

# How long the next version is believed to be free without looking at the last checkpoint. Shorter than the shortest
# log retention: a process that slept through the cleaning of the log must not commit into its own past.
STALE_AFTER_MS = 300_000
# Commits stay in the log for at least this long, whatever became of the topic: another process may be about to look.
LOG_KEPT_LEAST_MS = 2 * STALE_AFTER_MS
RETRY_FIRST_MS = 20
RETRY_MOST_MS = 2_000
READ_AHEAD = 16
# So much of the log is read at a time when it is cleaned.
CLEANED_FILES_MOST = 512
CLEANED_BYTES_MOST = 4 * 1024 * 1024
NOT_OURS = 1 << 62  # in the place of a version that a file's name does not have


class Stale(Exception):
    """The draft no longer holds on what the table says now. Nothing of it was committed."""


class OutcomeUnknown(Exception):
    """The store went away around a commit that may have landed. Its files must stay where they are."""


class LogState(Protocol):
    """What the actions of a log add up to."""

    version: int
    tombstones: Tombstones

    @property
    def live(self) -> Mapping[str, object]:
        """The table's files by their paths."""

    def apply(self, version: int, actions: Sequence[Action]) -> Changes:
        """Take in one commit, or a checkpoint when nothing has been taken in before."""

    def require_sound(self) -> None:
        """Raise if another writer has made the table unfit for what it is kept for."""


S = TypeVar("S", bound=LogState)


@dataclass(frozen=True, slots=True)
class DraftOn(Generic[S]):
    """Actions to commit, the id to know them by, and whether they still make sense on a later state."""

    commit_id: str
    actions: list[Action]
    holds: Callable[[S], bool]


class Draft(DraftOn[TableState]):
    """For a topic's table."""

    __slots__ = ()


def commit_path(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


class CommitLog(ABC, Generic[S]):
    """`state` is what the table says as far as this process has seen; `on_changes` hears of every step of it."""

    def __init__(self, store: Store, name: str, clock: Clock, *, commit_timeout_ms: int = 30_000) -> None:
        self.name = name
        self.store = store
        self.state = self.empty_state()
        self.on_changes: Callable[[Changes], None] = lambda changes: None
        self.checkpoint_version = -1
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._lock = asyncio.Lock()
        self.seen = NEVER

    @abstractmethod
    def empty_state(self) -> S:
        """What a table says of which nothing has been read."""

    @abstractmethod
    def checkpoint_content(self) -> Callable[[], Checkpoint]:
        """The state as it is now, to be made in a thread."""

    def path(self, inside: str) -> str:
        return f"{self.name}/{inside}"

    # -- following ---------------------------------------------------------------------------------------------

    @property
    def seen_ago_ms(self) -> float:
        """How long ago the state was known to be the newest there is."""
        return self.seen.ago_ms(self._clock)

    async def refresh(self, *, max_age_ms: float = 0) -> None:
        """Take in what others committed, unless that was done within `max_age_ms`."""
        if self.seen_ago_ms <= max_age_ms and self.state.version >= 0:
            return
        asked = Moment.of(self._clock)
        async with self._lock:
            # While we waited for the lock its holder may have done it.
            if self.seen.monotonic_ms < asked.monotonic_ms:
                await self._catch_up()

    async def _catch_up(self) -> None:
        slept = self.seen_ago_ms > STALE_AFTER_MS
        if slept:
            hint = await self._hint()
            if hint is not None and hint.version > self.state.version:
                await self._load(hint)
        asked = Moment.of(self._clock)
        window = 1  # mostly there is nothing new, and one look tells
        while True:
            first = self.state.version + 1
            found = await asyncio.gather(*(self._read(commit_path(first + ahead)) for ahead in range(window)))
            for data in found:
                if data is None:
                    break
                self._apply(self.state.version + 1, self._decoded(data))
            else:
                window = READ_AHEAD
                continue
            break
        # The newest commit is always there. If ours is not, the log went on and was cleaned, whatever the hint says.
        if self.state.version < 0 or (slept and await self._read(commit_path(self.state.version)) is None):
            await self._load_without_hint()
        self.seen = asked

    async def _load(self, checkpoint: LastCheckpoint) -> None:
        parts: list[bytes] = []
        for path in checkpoint.paths:
            data = await self._read(path)
            if data is None:
                return  # cleaned meanwhile; a newer one will be found the next time
            parts.append(data)
        state, changes = await asyncio.to_thread(self._state_at, checkpoint, parts)
        self.state = state
        self.checkpoint_version = checkpoint.version
        self.on_changes(changes)

    def _state_at(self, checkpoint: LastCheckpoint, parts: Sequence[bytes]) -> tuple[S, Changes]:
        with self._reading_log():
            content = decode_checkpoint(parts)
        state = self.empty_state()
        state.tombstones.extend(content.removed)
        return state, state.apply(checkpoint.version, content.actions)

    async def _load_without_hint(self) -> None:
        """A log whose beginning was cleaned and whose hint is lost: rare, so the folder is listed only here."""
        whole = [file.path for file in await self._log_files() if file.path.endswith(".checkpoint.parquet")]
        newest = max((_version_of(path) for path in whole if _version_of(path) < NOT_OURS), default=-1)
        if newest > self.state.version:
            await self._load(LastCheckpoint(newest))
            if self.state.version >= 0:
                await self._catch_up()

    async def _log_files(self, *, before_ms: int | None = None) -> list[StoredFile]:
        return await self.store.files(self.path("_delta_log"), before_ms=before_ms)

    async def _hint(self) -> LastCheckpoint | None:
        data = await self._read(LAST_CHECKPOINT)
        try:
            return decode_hint(data) if data is not None else None
        except msgspec.DecodeError:
            return None

    async def _read(self, path: str) -> bytes | None:
        return await self.store.get(self.path(path))

    def _decoded(self, commit: bytes) -> list[Action]:
        with self._reading_log():
            return decode_commit(commit)

    @contextmanager
    def _reading_log(self) -> Iterator[None]:
        try:
            yield
        except (msgspec.DecodeError, pa.ArrowException, OSError) as error:  # Parquet's own complaint is an OSError
            raise LakelogError(
                ErrorCode.UNSUPPORTED_TABLE, f"the log of {self.name!r} is not Delta's: {error}"
            ) from error

    def _apply(self, version: int, actions: list[Action]) -> None:
        self.on_changes(self.state.apply(version, actions))

    # -- committing --------------------------------------------------------------------------------------------

    async def commit(self, draft: DraftOn[S]) -> int:
        """Put the draft as one version of the table and return it.

        Raises OutcomeUnknown when it may have landed. With Stale, and with a LakelogError where another writer has
        made the table unfit, it has not.
        """
        data = encode_commit(draft.actions)
        async with self._lock:
            if self.seen_ago_ms > STALE_AFTER_MS:
                await self._catch_up()
            while draft.holds(self._sound_state()):
                version = self.state.version + 1
                started = Moment.of(self._clock)
                winner = await self._put(version, data, draft.commit_id)
                if winner is not None:
                    self._apply(version, winner)
                    continue
                # Asked again: the process may have slept at any step since.
                if self.seen_ago_ms > STALE_AFTER_MS:
                    await self._make_sure(version)
                self._apply(version, draft.actions)
                self.seen = started
                return version
        raise Stale(self.name)

    def _sound_state(self) -> S:
        """What may be served and built upon. Raises if another writer has made the table unfit."""
        self.state.require_sound()
        return self.state

    async def _put(self, version: int, data: bytes, commit_id: str) -> list[Action] | None:
        """None when the version is ours now, else the actions of whoever has it. Whatever the store does, it ends."""
        path = self.path(commit_path(version))
        trouble = StoreUnavailable(f"{path}: no reply")
        pause_ms = float(RETRY_FIRST_MS)
        try:
            async with asyncio.timeout(self._commit_timeout_ms / 1000):
                while True:
                    try:
                        if await self.store.create(path, data):
                            return None
                        existing = await self.store.get(path)
                        if existing is not None:
                            actions = self._decoded(existing)
                            return None if _id_of(actions) == commit_id else actions
                        trouble = StoreUnavailable(f"{path} is taken, and not there to be read")
                    except StoreUnavailable as error:
                        trouble = error
                    await asyncio.sleep(random.uniform(0.5, 1.0) * pause_ms / 1000)
                    pause_ms = min(pause_ms * 2, RETRY_MOST_MS)
        except TimeoutError:
            raise OutcomeUnknown(str(trouble)) from trouble

    async def _make_sure(self, version: int) -> None:
        """A put by what was known so long ago may have filled a version that was cleaned away meanwhile: then it counts
        for nothing. Or others have built upon it. Nobody can tell any more, so its files must not be dropped.
        """
        hint = await self._hint()
        if hint is not None and hint.version >= version:
            self.seen = NEVER  # whoever comes next starts from that checkpoint
            raise OutcomeUnknown(f"version {version} was put, and the log has been cut beyond it since")

    # -- keeping the log short ---------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Write what the table says now as a checkpoint and point readers to it."""
        # Of the sound state alone: files that are not ours would be missing in it.
        version, content = self._sound_state().version, self.checkpoint_content()

        def encoded() -> tuple[pa.Buffer, int]:
            made = content()
            return encode_checkpoint(made), len(made)

        data, actions = await asyncio.to_thread(encoded)
        hint = LastCheckpoint(version, size=actions)
        await self.store.put(self.path(hint.paths[0]), data)
        await self.store.put(self.path(LAST_CHECKPOINT), msgspec.json.encode(hint))
        self.checkpoint_version = version

    async def clean_log(self, *, before_ms: int) -> int:
        """Delete commits and checkpoints that are older and no longer needed, and the files that those commits removed.

        A removed file so lives exactly as long as the commit that removed it. That is longer than the state remembers
        it, so the commits are asked.
        """
        old = await self._covered(before_ms)
        for window in _windows(old):
            await self._delete_removed_by(window)
            await self.store.delete([file.path for file in window])
        return len(old)

    async def delete_removed_files(self) -> None:
        """Delete what the commits up to the checkpoint removed, and leave the commits to those who follow them."""
        for window in _windows(await self._covered(None)):
            await self._delete_removed_by(window)

    async def _covered(self, before_ms: int | None) -> list[StoredFile]:
        """Log files that are older, if a time is given, and that the checkpoint stands for; the oldest first."""
        kept_from, files = self.checkpoint_version, await self._log_files(before_ms=before_ms)

        def covered() -> list[StoredFile]:
            return [file for file in files if _version_of(file.path) < kept_from]

        return await asyncio.to_thread(covered)  # there may be hundreds of thousands

    async def _delete_removed_by(self, log_files: Sequence[StoredFile]) -> None:
        commits = await self.store.get_many([file.path for file in log_files if file.path.endswith(".json")])
        removed = await asyncio.to_thread(self._removed_by, commits)
        await self.store.delete([self.path(path) for path in removed if path not in self.state.live])

    def _removed_by(self, commits: Sequence[bytes | None]) -> list[str]:
        with self._reading_log():
            return [path for commit in commits if commit is not None for path in removed_paths(commit)]


class Table(CommitLog[TableState]):
    """A topic's."""

    def empty_state(self) -> TableState:
        return TableState(on_object_store=self.store.on_object_store)

    def checkpoint_content(self) -> Callable[[], Checkpoint]:
        self.state.tombstones.forget_before(self._clock.now_ms() - self.state.config.file_delete_delay_ms)
        return checkpoint_of(self.state)


def _version_of(path: str) -> int:
    """The version of a log file, or one that no cleaning reaches for files that are not ours to clean."""
    stem = path.rsplit("/", 1)[-1].split(".", 1)[0]
    return int(stem) if len(stem) == 20 and stem.isdigit() else NOT_OURS


def _windows(files: Sequence[StoredFile]) -> Iterator[list[StoredFile]]:
    """All of them, in their order, some at a time."""
    window: list[StoredFile] = []
    size = 0
    for file in files:
        if window and (len(window) >= CLEANED_FILES_MOST or size + file.size > CLEANED_BYTES_MOST):
            yield window
            window, size = [], 0
        window.append(file)
        size += file.size
    if window:
        yield window


def _id_of(actions: list[Action]) -> str | None:
    return next((a.commitInfo.txnId for a in actions if a.commitInfo is not None), None)


def storage_error(error: Exception, doing: str) -> LakelogError:
    return LakelogError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing}: {error}")
