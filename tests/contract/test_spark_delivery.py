"""A staged batch is appended exactly once, by however many drivers and after however many crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lakelog.broker import Broker
from lakelog.errors import LakelogError
from lakelog.model.batch import Records
from lakelog.model.topic import TOPIC_NAME_CHARS_MAX
from lakelog.spark import staging
from lakelog.spark.delivery import deliver, drop
from lakelog.spark.staging import BatchId, Piece
from tests.conftest import OpenBroker
from tests.contract.records import MovedClock, append_each, records, values_of

TOPIC = "counts"
APP = "a-query"


@pytest.fixture(autouse=True)
def each_piece_is_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 1)


async def stage(
    broker: Broker, batch: BatchId, values: Sequence[str], *, attempt: str = "0", topic: str = TOPIC
) -> list[Piece]:
    """One piece per value, as tasks stage them."""
    pieces = []
    for number, value in enumerate(values):
        pieces.append(await stage_one(broker, batch, records([value]), f"{attempt}-{topic[:9]}-{number}", topic))
    return pieces


async def stage_one(broker: Broker, batch: BatchId, some: Records, name: str, topic: str = TOPIC) -> Piece:
    path = f"{batch.folder}/{name}.arrow"
    await broker.store.put(path, staging.encode_piece(some))
    return Piece(topic, path, len(some), some.size_bytes)


async def staged_files(broker: Broker) -> list[str]:
    return [file.path for file in await broker.store.files(staging.FOLDER)]


async def stop_half_way(broker: Broker, batch: BatchId, pieces: Sequence[Piece]) -> None:
    """The driver dies after the first append: here, because the store does not have the second piece just then."""
    data = await broker.store.get(pieces[1].path)
    assert data is not None
    await broker.store.delete([pieces[1].path])
    with pytest.raises(LakelogError, match="staged records are not there"):
        await deliver(broker, batch, pieces, repeatable=True)
    await broker.store.put(pieces[1].path, data)


async def test_a_batch_that_comes_again_is_passed_over(broker: Broker) -> None:
    for attempt in ("0", "1", "2"):
        batch = BatchId(APP, 4)
        await deliver(broker, batch, await stage(broker, batch, ["a", "b"], attempt=attempt), repeatable=True)
    assert await values_of(broker, TOPIC) == ["a", "b"]


async def test_batches_follow_each_other_and_leave_one_manifest(broker: Broker) -> None:
    for number, values in enumerate((["a", "b"], ["c"], ["d", "e"])):
        batch = BatchId(APP, number)
        await deliver(broker, batch, await stage(broker, batch, values), repeatable=True)
    assert await values_of(broker, TOPIC) == ["a", "b", "c", "d", "e"]
    assert await staged_files(broker) == [BatchId(APP, 2).manifest]


async def test_a_driver_that_died_half_way_is_followed_by_one_that_goes_on(open_broker: OpenBroker) -> None:
    first, second = open_broker(), open_broker()
    batch = BatchId(APP, 0)
    pieces = await stage(first, batch, ["a", "b", "c"])
    await stop_half_way(first, batch, pieces)
    assert await values_of(first, TOPIC) == ["a"]
    # The tasks of the next attempt bring the same records cut in another way: what was begun is finished.
    again = [await stage_one(second, batch, records(["c", "a", "b"]), "other")]
    await deliver(second, batch, again, repeatable=True)
    assert await values_of(second, TOPIC) == ["a", "b", "c"]
    assert await staged_files(second) == [batch.manifest]


async def test_an_attempt_that_failed_is_dropped_but_for_what_was_frozen(broker: Broker) -> None:
    batch = BatchId(APP, 0)
    pieces = await stage(broker, batch, ["a", "b"])
    stray = await stage(broker, batch, ["x"], attempt="9")
    await stop_half_way(broker, batch, pieces)
    await drop(broker, batch, [*pieces, *stray])
    await deliver(broker, batch, [], repeatable=True)
    assert await values_of(broker, TOPIC) == ["a", "b"]


async def test_several_topics_each_get_their_records_once(broker: Broker) -> None:
    batch = BatchId(APP, 0)
    pieces = await stage(broker, batch, ["a", "b"]) + await stage(broker, batch, ["x", "y"], topic="others")
    await stop_half_way(broker, batch, pieces[2:] + pieces[:2])
    await deliver(broker, batch, [], repeatable=True)
    assert await values_of(broker, TOPIC) == ["a", "b"]
    assert await values_of(broker, "others") == ["x", "y"]


async def test_one_name_for_several_topics_is_a_name_for_each(broker: Broker) -> None:
    for number, values in enumerate((["a", "b"], ["c"])):
        for topic in (TOPIC, "others", None):
            batch = BatchId(APP, number, topic)
            for attempt in ("0", "1"):  # and each of them is passed over when it comes again
                pieces = await stage(broker, batch, values, attempt=attempt, topic=topic or "any")
                await deliver(broker, batch, pieces, repeatable=True)
    for topic in (TOPIC, "others", "any"):
        assert await values_of(broker, topic) == ["a", "b", "c"]
    assert sorted(await staged_files(broker)) == sorted(BatchId(APP, 1, of).manifest for of in (TOPIC, "others", None))


async def test_a_name_and_a_topic_may_be_as_long_as_they_are_allowed_to(broker: Broker) -> None:
    topic = "t" * TOPIC_NAME_CHARS_MAX
    batch = BatchId("a" * 200, 0, topic)
    await deliver(broker, batch, await stage(broker, batch, ["a"], topic=topic), repeatable=True)
    assert await values_of(broker, topic) == ["a"]


async def test_two_drivers_at_the_same_time_append_once(open_broker: OpenBroker) -> None:
    one, other = open_broker(), open_broker()
    await one.admin.create_topic(TOPIC)
    batch = BatchId(APP, 0)
    wanted = [f"{n}" for n in range(12)]
    attempts = [await stage(one, batch, wanted, attempt="0"), await stage(other, batch, wanted, attempt="1")]
    # The slower one may find the pieces swept away by the faster one; it says so, and changes nothing.
    done = await asyncio.gather(
        deliver(one, batch, attempts[0], repeatable=True),
        deliver(other, batch, attempts[1], repeatable=True),
        return_exceptions=True,
    )
    assert None in done
    assert await values_of(one, TOPIC) == wanted


async def test_other_writers_come_between_and_nothing_is_lost(open_broker: OpenBroker) -> None:
    sink, gateway = open_broker(), open_broker()
    await sink.admin.create_topic(TOPIC)
    batch = BatchId(APP, 0)
    pieces = await stage(sink, batch, [f"s{n}" for n in range(10)])
    await asyncio.gather(
        deliver(sink, batch, pieces, repeatable=True),
        append_each(gateway, TOPIC, [f"g{n}" for n in range(10)]),
    )
    values = await values_of(sink, TOPIC)
    assert [value for value in values if value[0] == "s"] == [f"s{n}" for n in range(10)]
    assert [value for value in values if value[0] == "g"] == [f"g{n}" for n in range(10)]


async def test_a_batch_before_the_newest_is_not_heard(broker: Broker) -> None:
    late = BatchId(APP, 1)
    pieces = await stage(broker, late, ["late"])
    newest = BatchId(APP, 2)
    await deliver(broker, newest, await stage(broker, newest, ["new"]), repeatable=True)
    await deliver(broker, late, pieces, repeatable=True)
    assert await values_of(broker, TOPIC) == ["new"]


async def test_a_batch_that_is_refused_may_come_again_mended(broker: Broker) -> None:
    await broker.admin.create_topic(TOPIC, 1)
    batch = BatchId(APP, 0)
    wrong = await stage_one(broker, batch, records(["a"], partition=7), "wrong")
    with pytest.raises(LakelogError, match="partition that is not there"):
        await deliver(broker, batch, [wrong], repeatable=True)
    await deliver(broker, batch, await stage(broker, batch, ["a"]), repeatable=True)
    assert await values_of(broker, TOPIC) == ["a"]


async def test_a_batch_without_records_changes_nothing(broker: Broker) -> None:
    await deliver(broker, BatchId(APP, 0), [], repeatable=True)
    assert await staged_files(broker) == []


async def test_nothing_stays_behind_of_a_job_that_never_comes_again(broker: Broker) -> None:
    batch = BatchId("a-job", 0)
    await deliver(broker, batch, await stage(broker, batch, ["a"]), repeatable=False)
    assert await staged_files(broker) == []


async def test_a_batch_that_was_left_for_too_long_is_not_guessed_at(open_broker: OpenBroker) -> None:
    clock = MovedClock()
    batch = BatchId(APP, 0)
    broker = open_broker(clock=clock)
    await broker.admin.create_topic(TOPIC)
    pieces = await stage(broker, batch, ["a", "b"])
    await staging.freeze(broker.store, batch, tuple(pieces), clock.now_ms())
    clock.ahead_ms = broker.settings.producer_expiration_ms + 1000
    with pytest.raises(LakelogError, match="has forgotten by now"):
        await deliver(broker, batch, [], repeatable=True)
    assert await values_of(broker, TOPIC) == []


async def test_pieces_keep_partitions_headers_and_times(broker: Broker) -> None:
    await broker.admin.create_topic(TOPIC, 3)
    batch = BatchId(APP, 0)
    some = records(["a", None], keys=[b"k", None], partition=2, timestamps_ms=[5, None], headers=[[("h", b"x")], None])
    await deliver(broker, batch, [await stage_one(broker, batch, some, "0")], repeatable=True)
    described = await broker.admin.describe_topic(TOPIC)
    assert [each.high_watermark for each in described.partitions] == [0, 0, 2]


def test_pieces_are_cut_by_bytes_and_lose_nothing() -> None:
    some = records([b"x" * size for size in (10, 10, 100, 1, 1, 1)], partition=1)
    table = some.batch
    pieces = [piece.batch.column("value").to_pylist() for piece in staging.cut(table, 20)]
    assert [[len(value) for value in values] for values in pieces] == [[10, 10], [100], [1, 1, 1]]
