"""A task reads its slice: only what it needs of the files, and on past whatever happened to them meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakelog.broker import Broker
from lakelog.delta.store import Store
from lakelog.errors import LakelogError
from lakelog.log.tiers import FAN
from lakelog.model.batch import STORED_SCHEMA
from lakelog.spark.planning import Bounds, OffsetRange, Slice, TopicView, Wanted, plan
from lakelog.spark.reading import SliceReader
from lakelog.spark.warehouse import view_of
from tests.contract.records import append, append_each, records

TOPIC = "orders"
LARGE = 200_000  # ten of these make a row group


class CountingStore:
    """A real store that counts the bytes that are read from its files."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.bytes_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        self.bytes_read += sum(end - start for start, end in ranges)
        return await self._store.read_ranges(path, ranges)


async def view(broker: Broker) -> TopicView:
    return view_of(await broker.topics.get(TOPIC, max_age_ms=0))


async def one_slice(broker: Broker, start: int, end: int, wanted: Wanted | None = None) -> Slice:
    topic = await view(broker)
    (whole,) = plan([OffsetRange(TOPIC, 0, start, end)], {TOPIC: topic}, wanted or Wanted())
    return whole


async def read(
    store: Any, whole: Slice, columns: Sequence[str] = ("offset", "value"), *, fail_on_data_loss: bool = True
) -> pa.Table:
    reader = SliceReader(store, whole, columns, fail_on_data_loss=fail_on_data_loss)
    return pa.concat_tables([table async for table in reader.rows()])


async def vacuum(broker: Broker, whole: Slice) -> None:
    """Everything that the table has removed is deleted at once, and with it the files of the slice."""
    await append_each(broker, TOPIC, ["afterwards"])
    table = (await broker.topics.get(TOPIC)).table
    await table.checkpoint()
    await table.delete_removed_files()
    assert await broker.store.get(table.path(whole.files[0].path)) is None


async def test_a_slice_is_its_offsets_and_nothing_else(broker: Broker) -> None:
    await append_each(broker, TOPIC, [f"{n}" for n in range(10)])
    rows = await read(broker.store, await one_slice(broker, 3, 8))
    assert rows.column("offset").to_pylist() == [3, 4, 5, 6, 7]
    assert rows.column("value").to_pylist() == [b"3", b"4", b"5", b"6", b"7"]


async def test_offsets_are_cut_right_though_they_are_not_asked_for(broker: Broker) -> None:
    await append(broker, TOPIC, records([f"{n}" for n in range(10)]))
    rows = await read(broker.store, await one_slice(broker, 3, 8), ("value",))
    assert rows.column("value").to_pylist() == [b"3", b"4", b"5", b"6", b"7"]


async def test_rows_are_counted_where_no_stored_column_is_asked_for(broker: Broker) -> None:
    await append(broker, TOPIC, records(["a", "b", "c"]))
    assert (await read(broker.store, await one_slice(broker, 0, 3), ())).num_rows == 3


async def test_only_the_needed_row_groups_and_columns_are_read(broker: Broker) -> None:
    values = [bytes([n]) * LARGE for n in range(50)]
    times = [n * 1000 for n in range(50)]
    await broker.admin.create_topic(TOPIC, config={"compression.type": "uncompressed"})
    await append(broker, TOPIC, records(values, timestamps_ms=times))
    counting = CountingStore(broker.store)
    whole = await one_slice(broker, 0, 50)

    assert (await read(counting, whole)).num_rows == 50
    everything = counting.bytes_read
    assert everything > 50 * LARGE

    async def share(some: Slice, columns: Sequence[str] = ("offset", "value")) -> float:
        counting.bytes_read = 0
        await read(counting, some, columns)
        return counting.bytes_read / everything

    assert await share(await one_slice(broker, 25, 26)) < 0.3
    late = Wanted(times_us=Bounds(first=49_000_000))
    assert await share(await one_slice(broker, 0, 50, late)) < 0.3
    assert await share(whole, ("offset", "timestamp")) < 0.02


async def test_files_that_were_merged_and_vacuumed_since_are_found_again(broker: Broker) -> None:
    await append_each(broker, TOPIC, [f"{n}" for n in range(FAN - 1)])
    whole = await one_slice(broker, 2, FAN - 1)
    await append_each(broker, TOPIC, ["the last one"])
    await broker.upkeep.settle()
    await vacuum(broker, whole)
    rows = await read(broker.store, whole)
    assert rows.column("offset").to_pylist() == list(range(2, FAN - 1))


async def test_a_file_that_goes_in_the_middle_of_a_read_costs_no_record(broker: Broker) -> None:
    await append_each(broker, TOPIC, [f"{n}" for n in range(FAN - 1)])
    whole = await one_slice(broker, 0, FAN - 1)
    reader = SliceReader(broker.store, whole, ("offset",), fail_on_data_loss=True)
    tables = reader.rows()
    found = [await anext(tables), await anext(tables)]
    await append_each(broker, TOPIC, ["the last one"])
    await broker.upkeep.settle()
    await vacuum(broker, whole)
    found += [table async for table in tables]
    assert pa.concat_tables(found).column("offset").to_pylist() == list(range(FAN - 1))


async def test_records_that_were_deleted_since_are_data_loss(broker: Broker) -> None:
    await append_each(broker, TOPIC, ["a", "b", "c", "d"])
    whole = await one_slice(broker, 0, 4)
    await broker.admin.delete_records(TOPIC, {0: 3})
    await vacuum(broker, whole)
    with pytest.raises(LakelogError, match=r"begins at offset 3 now, and 0 was to be read.*failOnDataLoss"):
        await read(broker.store, whole)
    rows = await read(broker.store, whole, fail_on_data_loss=False)
    assert rows.column("offset").to_pylist() == [3]


async def test_a_topic_that_is_gone_is_data_loss(broker: Broker) -> None:
    await append_each(broker, TOPIC, ["a"])
    whole = await one_slice(broker, 0, 1)
    await broker.admin.delete_topic(TOPIC)
    with pytest.raises(LakelogError, match="orders-0 is gone"):
        await read(broker.store, whole)
    reader = SliceReader(broker.store, whole, ("offset",), fail_on_data_loss=False)
    assert [table async for table in reader.rows()] == []


async def test_a_file_that_the_table_still_names_is_an_error_and_not_a_gap(broker: Broker) -> None:
    await append_each(broker, TOPIC, ["a", "b"])
    whole = await one_slice(broker, 0, 2)
    await broker.store.delete([f"{TOPIC}/{whole.files[0].path}"])
    with pytest.raises(LakelogError, match="a segment that the table names is not there"):
        await read(broker.store, whole, fail_on_data_loss=False)


async def test_every_stored_column_is_there(broker: Broker) -> None:
    await append(broker, TOPIC, records(["a"], keys=[b"k"], timestamps_ms=[5], headers=[[("h", b"x")]]))
    rows = await read(broker.store, await one_slice(broker, 0, 1), STORED_SCHEMA.names)
    assert rows.schema.equals(STORED_SCHEMA)
    assert rows.to_pylist()[0]["headers"] == [{"key": "h", "value": b"x"}]
