"""A warehouse with several servers, their clients and their accidents, in virtual time.

Everything that is under test is real: brokers with all their parts. What is made up is the store, the clock, and the
clients, who keep a ledger of what they were told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pytest

from lakelog import produce, upkeep
from lakelog.broker import Broker
from lakelog.config import ServerSettings
from lakelog.delta.store import Store
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import FetchFrom, Position
from lakelog.log import tiers
from lakelog.log.producers import TOPIC_STREAM, ProducerBatch
from tests.simulation.faulty_store import Faults, FaultyStore, Warehouse
from tests.simulation.ledger import Batch, Ledger, Log, Record, check_history
from tests.simulation.virtual_time import VirtualClock

T = TypeVar("T")

TOPIC = "orders"
# Nothing that a client asks for may take longer: retries inside a server end long before.
PATIENCE_S = 60.0
ATTEMPTS_MAX = 8
SETTINGS = ServerSettings(
    commit_timeout_ms=2_000,
    in_flight_bytes_max=4_096,
    in_flight_wait_ms=1_000,
    hot_tail_bytes_max=64 * 1024,
    read_cache_bytes_max=8 * 1024,
    follow_interval_ms=20,
    auto_create_topics_enable=False,
    encode_threads=1,
)


@contextmanager
def small_steps() -> Iterator[None]:
    """Merges, checkpoints and cleaning of the log every few commits, where production does them every few hundred."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "FAN", 3)
        patch.setattr(upkeep, "CHECKPOINT_COMMITS", 4)
        patch.setattr(upkeep, "CHECKPOINT_INTERVAL_MS", 100)
        patch.setattr(upkeep, "CLEAN_INTERVAL_MS", 1_000)
        patch.setattr(produce, "IN_PLACE_BYTES", 200)
        yield


class ServerGone(Exception):
    """The connection broke: nobody knows what became of the request."""


def broker_on(store: Store, *, skew_ms: int = 0, settings: ServerSettings = SETTINGS) -> Broker:
    return Broker(store, settings, clock=VirtualClock(skew_ms=skew_ms))


class Server:
    """One process: it dies without a word, and comes back knowing nothing but what the store holds."""

    def __init__(self, warehouse: Warehouse, faults: Faults, chance: random.Random, skew_ms: int) -> None:
        self._warehouse = warehouse
        self._faults = faults
        self._chance = chance
        self._skew_ms = skew_ms
        self.start()

    def start(self) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.store = FaultyStore(self._warehouse, self._faults, self._chance)
        self.store.on_cut = lambda: self.gone.set_result(None)
        self.broker = broker_on(self.store, skew_ms=self._skew_ms)

    async def ask(self, request: Callable[[Broker], Awaitable[T]]) -> T:
        """As a client over a connection: it ends with the server, and it does not wait for ever."""
        gone = self.gone
        if gone.done():
            raise ServerGone
        answer = asyncio.ensure_future(request(self.broker))
        either: set[asyncio.Future[T] | asyncio.Future[None]] = {answer, gone}
        await asyncio.wait(either, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and not answer.cancelled():
            return answer.result()
        answer.cancel()
        assert gone.done(), "a request hangs"
        raise ServerGone


@dataclass(slots=True)
class Producer:
    """A client that appends. An idempotent one sends again until it is told that it worked; a plain one may give up."""

    name: str
    number: int
    idempotent: bool
    partition: int | None
    sent: int = 0
    epoch: int = 0
    next_sequence: int = 0
    # Sent and not answered for, with their sequences, and answered for.
    open: list[tuple[int, Batch]] = field(default_factory=list)
    done: list[tuple[int, Batch]] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def new_batch(self, records: int, now_ms: int) -> Batch:
        made = []
        for _ in range(records):
            key = f"key-{self.sent % 7}".encode() if self.sent % 3 else None
            headers = (("trace", str(self.sent).encode()), ("empty", None)) if self.sent % 5 == 0 else ()
            value = f"{self.name}/{self.sent}".encode()
            made.append(Record(value, key, headers, now_ms if self.sent % 2 else None))
            self.sent += 1
        batch = Batch(self.name, tuple(made), self.partition, self.idempotent)
        if self.idempotent:
            self.open.append((self.next_sequence, batch))
            self.next_sequence += records
        return batch

    def header(self, sequence: int) -> ProducerBatch:
        stream = TOPIC_STREAM if self.partition is None else self.partition
        return ProducerBatch(self.number, self.epoch, sequence, stream)


class World:
    def __init__(self, seed: int, servers: int, producers: int) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.warehouse = Warehouse(self.clock)
        self.faults = Faults()
        self.servers = [
            Server(self.warehouse, self.faults, self.chance, skew_ms=self.chance.choice([0, 0, -90_000, 90_000]))
            for _ in range(servers)
        ]
        # Of each three one is plain, one counts over the topic, and one counts in a partition.
        self.producers = [
            Producer(f"producer-{n}", 1_000 + n, idempotent=n % 3 != 0, partition=0 if n % 3 == 2 else None)
            for n in range(producers)
        ]
        self.ledger = Ledger()
        self.positions: dict[str, dict[int, int]] = {}
        self._reading: dict[str, asyncio.Lock] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._failed: list[BaseException] = []

    async def begin(self, partitions: int) -> None:
        config = {"segment.bytes": "12000", "delta.log.retention.ms": "600000", "file.delete.delay.ms": "0"}
        await self.servers[0].broker.admin.create_topic(TOPIC, partitions, config)

    def start(self, step: Awaitable[None]) -> None:
        """Let something happen while other things happen."""
        task = asyncio.ensure_future(step)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = task.exception()
        if error is not None:
            self._failed.append(error)

    async def settle(self) -> None:
        """Until all that was started has come to an end, with what is said of it."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))
        for error in self._failed:
            raise error

    def server(self, number: int) -> Server:
        """The one that a client turns to, or the next one that is up."""
        up = [server for server in self.servers if not server.gone.done()]
        if not up:
            up = [self.servers[number % len(self.servers)]]
            up[0].start()
        return up[number % len(up)]

    # -- producers ---------------------------------------------------------------------------------------------

    async def send(self, producer: Producer, server: int, batches: int, records: int) -> None:
        async with producer.turn:
            if producer.idempotent:
                for _ in range(batches):
                    self.ledger.batches.append(producer.new_batch(records, self.clock.now_ms()))
                await self.send_open(producer, server)
            else:
                made = [producer.new_batch(records, self.clock.now_ms()) for _ in range(batches)]
                self.ledger.batches += made
                where = self.server(server)
                outcomes = await asyncio.gather(*(self._attempt(where, batch, None) for batch in made))
                # One that failed alone is sent again, for better or worse; of several that would turn their order.
                if outcomes[0] is not None and batches == 1:
                    await self._attempt(self.server(server + 1), made[0], None)

    async def send_open(self, producer: Producer, server: int, attempts: int = ATTEMPTS_MAX) -> None:
        """Everything that is not answered for, in order, here and there, until all of it is or patience ends."""
        for attempt in range(attempts):
            if not producer.open:
                return
            # Nothing is known of a new producer, so its first batch goes alone: a later one would be taken for it.
            window = producer.open[: 3 if producer.done else 1]
            where = self.server(server + attempt)
            outcomes = await asyncio.gather(
                *(self._attempt(where, batch, producer.header(sequence)) for sequence, batch in window)
            )
            earlier_failed = False
            for entry, outcome in zip(window, outcomes, strict=True):
                if outcome is None:
                    producer.open.remove(entry)
                    producer.done.append(entry)
                elif isinstance(outcome, LakelogError) and not outcome.retriable:
                    assert outcome.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, outcome
                    assert earlier_failed, f"{producer.name} sends in order and is told: {outcome}"
                earlier_failed = earlier_failed or outcome is not None
            if earlier_failed:
                await asyncio.sleep(self.chance.uniform(0, 0.3))

    async def _attempt(
        self, server: Server, batch: Batch, header: ProducerBatch | None, expected: dict[int, int] | None = None
    ) -> LakelogError | ServerGone | None:
        batch.attempts += 1
        try:
            appended = await server.ask(
                lambda broker: broker.append(TOPIC, batch.as_request(), producer=header, expected_offsets=expected)
            )
        except LakelogError as error:
            expect(error)
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                batch.refusals += 1
            return error
        except ServerGone as error:
            return error
        assert appended is not None
        batch.acknowledge(appended)
        return None

    async def send_on_condition(self, producer: Producer, server: int, partition: int, off_by: int) -> None:
        """Ask where the partition ends and append there and nowhere else; each try has a record of its own."""
        async with producer.turn:
            where = self.server(server)
            try:
                end = await where.ask(lambda broker: broker.offset_at(TOPIC, partition, Position.LATEST))
            except (LakelogError, ServerGone):
                return
            batch = Batch(producer.name, (Record(f"{producer.name}/if/{producer.sent}".encode()),), partition)
            producer.sent += 1
            self.ledger.batches.append(batch)
            outcome = await self._attempt(where, batch, None, {partition: end.offset + off_by})
            if outcome is None:
                assert batch.places == [((partition, end.offset + off_by),)], "at the offset that was named"

    async def send_again(self, producer: Producer, server: int) -> None:
        """A repetition of the last batch, as from a client that did not hear the answer."""
        async with producer.turn:
            if producer.done and not producer.open:
                sequence, batch = producer.done[-1]
                outcome = await self._attempt(self.server(server), batch, producer.header(sequence))
                assert not isinstance(outcome, LakelogError) or outcome.retriable, outcome

    async def take_over(self, producer: Producer, server: int) -> None:
        """A new instance of the producer: the old one is fenced as soon as the new one has written."""
        async with producer.turn:
            self.ledger.batches.append(producer.new_batch(1, self.clock.now_ms()))
            sequence, batch = producer.open[-1]
            old_header = producer.header(sequence)
            producer.epoch, producer.next_sequence = producer.epoch + 1, 0
            producer.open, producer.done = [], []
            self.ledger.batches.append(producer.new_batch(1, self.clock.now_ms()))
            await self.send_open(producer, server)
            if producer.done:
                outcome = await self._attempt(self.server(server + 1), batch, old_header)
                assert outcome is not None, "the old instance is not fenced"
                assert isinstance(outcome, ServerGone) or outcome.retriable or is_fenced(outcome), outcome

    # -- readers -----------------------------------------------------------------------------------------------

    async def read(self, reader: str, server: int, max_bytes: int, max_wait_ms: int) -> None:
        """Go on where this reader was, on any server, until there is nothing more or something fails."""
        async with self._reading.setdefault(reader, asyncio.Lock()):
            where = self.server(server)
            for partition in range(await self._partition_count(where)):
                await self._read_partition(where, reader, partition, max_bytes, max_wait_ms)

    async def _partition_count(self, server: Server) -> int:
        try:
            described = await server.ask(lambda broker: broker.admin.describe_topic(TOPIC))
        except (LakelogError, ServerGone):
            return 0
        return len(described.partitions)

    async def _read_partition(
        self, server: Server, reader: str, partition: int, max_bytes: int, max_wait_ms: int
    ) -> None:
        positions = self.positions.setdefault(reader, {})
        while True:
            start = positions.get(partition, 0)
            wanted = [FetchFrom(TOPIC, partition, start, max_bytes)]
            try:
                (reply,) = await server.ask(lambda broker, w=wanted: broker.fetch(w, max_wait_ms=max_wait_ms))  # type: ignore[misc]
            except ServerGone:
                return
            if reply.error is not None:
                expect(reply.error)
                if reply.error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    asked = self.ledger.deletes_asked.get(partition, 0)
                    assert start < asked, f"{reader} has read to {start} of {partition}: {reply.error}"
                    positions[partition] = max(start, await self._log_start(server, partition))
                    if positions[partition] > start:
                        continue
                return
            for offset, row in rows_of(reply.rows):
                self.ledger.sightings[reader].append(((partition, offset), row))
            assert reply.next_offset >= start + reply.rows.num_rows
            positions[partition] = reply.next_offset
            if reply.rows.num_rows == 0:
                return

    async def _log_start(self, server: Server, partition: int) -> int:
        try:
            return (await server.ask(lambda broker: broker.offset_at(TOPIC, partition, Position.EARLIEST))).offset
        except (LakelogError, ServerGone):
            return 0

    # -- operators ---------------------------------------------------------------------------------------------

    async def delete_records(self, server: int, partition: int, share: float) -> None:
        where = self.server(server)
        try:
            end = await where.ask(lambda broker: broker.offset_at(TOPIC, partition, Position.LATEST))
            before = int(end.offset * share)
            asked = self.ledger.deletes_asked
            asked[partition] = max(before, asked.get(partition, 0))
            starts = await where.ask(lambda broker: broker.admin.delete_records(TOPIC, {partition: before}))
        except LakelogError as error:
            expect(error)
        except ServerGone:
            return
        else:
            assert starts[partition] >= before
            done = self.ledger.deletes_done
            done[partition] = max(before, done.get(partition, 0))

    async def change(self, server: int, request: Callable[[Broker], Awaitable[object]]) -> None:
        """Something for an operator to do, that may fail and is then left undone."""
        try:
            await self.server(server).ask(request)
        except LakelogError as error:
            expect(error, ErrorCode.INVALID_PARTITIONS)
        except ServerGone:
            return

    async def replace_topic(self, server: int) -> None:
        """Delete the topic and create another of the same name, while nobody is at work and all are up to date."""
        await self._calm_down()
        admin = self.server(server).broker.admin
        await admin.delete_topic(TOPIC)
        await admin.create_topic(TOPIC, 2, {"segment.bytes": "12000", "delta.log.retention.ms": "600000"})
        self.ledger, self.positions = Ledger(), {}
        for producer in self.producers:
            producer.epoch, producer.next_sequence = 0, 0
            producer.open, producer.done = [], []

    async def _calm_down(self) -> None:
        await self.settle()
        self.faults.become(Faults())
        for server in self.servers:
            server.store.cut_after(None)
        await asyncio.sleep(PATIENCE_S)  # until nothing that was given up for lost can arrive any more

    # -- the end -----------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Let everything recover, and see whether the log says what its clients were told."""
        await self._calm_down()
        for server in self.servers:
            if server.gone.done():
                server.start()
        for number, producer in enumerate(self.producers):
            await self.send_open(producer, number, attempts=100)
            assert not producer.open, f"{producer.name} is never answered"
        for reader in list(self.positions):
            await self.read(reader, 0, max_bytes=300, max_wait_ms=0)
        for server in self.servers:
            await server.broker.upkeep.settle()
        check_history(self.warehouse.created)
        fresh = broker_on(FaultyStore(self.warehouse))
        log, starts, ends = await read_all(fresh, TOPIC)
        self.ledger.check(log, starts, ends)
        for reader in self.positions:
            last = {partition: offset for (partition, offset), _ in self.ledger.sightings[reader]}
            assert all(last.get(p, -1) + 1 == end or starts[p] == end for p, end in enumerate(ends)), "all was read"


EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.EXPECTED_OFFSET_MISMATCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


def expect(error: LakelogError, *also: ErrorCode) -> None:
    assert error.code in EXPECTED_ERRORS or error.code in also, error


def is_fenced(error: LakelogError) -> bool:
    return error.code is ErrorCode.INVALID_PRODUCER_EPOCH


def rows_of(rows: pa.Table) -> Iterator[tuple[int, Record]]:
    for row in rows.to_pylist():
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        timestamp_ms = round(row["timestamp"].timestamp() * 1000)
        yield row["offset"], Record(row["value"], row["key"], headers, timestamp_ms)


async def read_all(broker: Broker, topic: str) -> tuple[Log, list[int], list[int]]:
    """The whole topic as one who was never there before reads it: records, log starts and ends."""
    described = await broker.admin.describe_topic(topic)
    log: Log = {}
    for part in described.partitions:
        found = log.setdefault(part.partition, [])
        position = part.log_start_offset
        while position < part.high_watermark:
            (reply,) = await broker.fetch([FetchFrom(topic, part.partition, position)])
            assert reply.error is None, reply.error
            found += rows_of(reply.rows)
            position = reply.next_offset
    return log, [p.log_start_offset for p in described.partitions], [p.high_watermark for p in described.partitions]
