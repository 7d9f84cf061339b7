"""What others keep in a warehouse is left alone, and a table that asks for more than we write is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakelog.broker import Broker
from lakelog.delta.store import Store
from lakelog.errors import ErrorCode, LakelogError
from lakelog.fetch import Position
from tests.conftest import OpenBroker
from tests.contract.records import append, append_each, fetch_one, records, values_of

Actions = list[dict[str, Any]]

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]})
METADATA = {
    "metaData": {
        "id": "5a3f0d3c-8a53-4d35-8d0e-0a8b0f6c3f10",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {"delta.enableChangeDataFeed": "true"},
        "createdTime": 1_700_000_000_000,
    }
}
# As Spark writes it, with fields that we do not use.
SPARK_INFO = {
    "commitInfo": {
        "timestamp": 1_700_000_000_000,
        "operation": "CREATE TABLE",
        "operationParameters": {"isManaged": "false", "description": None, "partitionBy": "[]"},
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
        "txnId": "0a8b0f6c-3f10",
    }
}
FOREIGN_ADD = {
    "add": {
        "path": "part-00000.parquet",
        "partitionValues": {},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
        "deletionVector": {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1},
    }
}


def protocol(reader: int, writer: int, *features: str) -> dict[str, Any]:
    versions: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader >= 3:
        versions["readerFeatures"] = list(features)
    if writer >= 7:
        versions["writerFeatures"] = list(features)
    return {"protocol": versions}


async def commit(store: Store, table: str, version: int, actions: Actions) -> None:
    """What another engine does to a table, by the letter of Delta's protocol."""
    lines = "\n".join(json.dumps(action) for action in actions)
    assert await store.create(f"{table}/_delta_log/{version:020d}.json", lines.encode())


async def commit_next(broker: Broker, table: str, actions: Actions) -> None:
    description = await broker.admin.describe_topic(table)
    await commit(broker.store, table, description.version + 1, actions)


async def contents(store: Store, folder: str) -> dict[str, bytes | None]:
    return {file.path: await store.get(file.path) for file in await store.files(folder)}


FOREIGN = {
    "a plain table": [SPARK_INFO, protocol(1, 2), METADATA],
    "a table with features": [protocol(3, 7, "deletionVectors", "columnMapping"), METADATA, FOREIGN_ADD],
}


@pytest.mark.parametrize("actions", FOREIGN.values(), ids=list(FOREIGN))
async def test_a_foreign_delta_table_is_no_topic_and_stays_as_it_is(broker: Broker, actions: Actions) -> None:
    await commit(broker.store, "sales", 0, actions)
    before = await contents(broker.store, "sales")
    assert await broker.admin.list_topics(internal=True) == []
    with pytest.raises(LakelogError, match=r"Delta table .* not a topic") as caught:
        await broker.admin.create_topic("sales")
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(LakelogError, match=r"Delta table .* not a topic"):
        await append(broker, "sales", records(["x"]))
    for attempt in (
        broker.admin.describe_topic("sales"),
        broker.admin.alter_config("sales", {"retention.ms": "1"}),
        broker.admin.delete_topic("sales"),
        fetch_one(broker, "sales"),
    ):
        with pytest.raises(LakelogError) as caught:
            await attempt
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await contents(broker.store, "sales") == before


async def test_whatever_else_lies_in_a_warehouse_is_passed_over(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["x"]))
    foreign = {
        "readme.md": b"# Our lake",
        "not a topic name/x": b"x",
        "exports/2024/01.csv": b"a,b",
        "half/_delta_log/00000000000000000000.json.tmp": b"{",
        "empty_log/_delta_log/_last_checkpoint": b"not JSON either",
        "_spark_metadata/0": b"v1",
    }
    for path, content in foreign.items():
        await broker.store.put(path, content)
    for each in (broker, open_broker()):
        assert await each.admin.list_topics(internal=True) == ["orders"]
        assert await values_of(each, "orders") == ["x"]
    assert {path: await broker.store.get(path) for path in foreign} == foreign


@pytest.mark.parametrize("garbage", [b"this is no JSON\n", b'{"metaData": {"id": 7}}\n', b"\x00\xff\xfe"])
async def test_a_log_that_nobody_can_read_does_not_hide_the_topics_beside_it(
    open_broker: OpenBroker, garbage: bytes
) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["x"]))
    await broker.store.put("broken/_delta_log/00000000000000000000.json", garbage)
    assert await open_broker().admin.list_topics() == ["orders"]
    for attempt in (broker.admin.describe_topic("broken"), broker.append("broken", records(["x"]))):
        with pytest.raises(LakelogError, match="broken") as caught:
            await attempt
        assert caught.value.code is ErrorCode.UNSUPPORTED_TABLE
    assert await contents(broker.store, "broken") == {"broken/_delta_log/00000000000000000000.json": garbage}


@pytest.mark.parametrize(
    ("versions", "named"),
    [
        (protocol(3, 7, "deletionVectors"), "deletionVectors"),
        (protocol(1, 7, "appendOnly", "rowTracking"), "rowTracking"),
        (protocol(2, 5), "columnMapping"),
        (protocol(1, 4), "generatedColumns"),
        (protocol(3, 7, "v2Checkpoint", "inCommitTimestamp"), "inCommitTimestamp, v2Checkpoint"),
    ],
    ids=["deletion vectors", "row tracking", "legacy 5", "legacy 4", "two features"],
)
async def test_a_topic_that_was_given_other_features_is_refused_by_their_names(
    open_broker: OpenBroker, versions: dict[str, Any], named: str
) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["x"]))
    await commit_next(broker, "orders", [versions])
    before = {file.path for file in await broker.store.files("orders") if "_delta_log" in file.path}
    fresh = open_broker()
    for attempt in (
        broker.append("orders", records(["y"])),
        fresh.append("orders", records(["y"])),
        fresh.admin.describe_topic("orders"),
        fresh.admin.create_topic("orders"),
        broker.admin.alter_config("orders", {"retention.ms": "1"}),
        broker.admin.delete_topic("orders"),
    ):
        with pytest.raises(LakelogError, match=named) as caught:
            await attempt
        assert caught.value.code is ErrorCode.UNSUPPORTED_TABLE
    assert {file.path for file in await broker.store.files("orders") if "_delta_log" in file.path} == before


async def test_features_that_plain_delta_has_anyway_are_no_reason_to_refuse(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["x"]))
    await commit_next(broker, "orders", [protocol(1, 7, "appendOnly", "invariants")])
    await append(open_broker(), "orders", records(["y"]))
    assert await values_of(broker, "orders") == ["x", "y"]


async def test_properties_that_others_set_survive_our_own_changes(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await broker.admin.create_topic("orders", 1, {"retention.ms": "1", "segment.ms": "5"})
    state = (await broker.topics.get("orders")).state
    assert state.metadata is not None
    properties = {**state.metadata.configuration, "owner": "sales team", "delta.checkpointInterval": "50"}
    metadata = {
        "id": state.metadata.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": state.metadata.schemaString,
        "partitionColumns": ["partition"],
        "configuration": properties,
    }
    await commit_next(broker, "orders", [SPARK_INFO, {"metaData": metadata}])
    altered = await broker.admin.alter_config("orders", {"retention.ms": "2"}, unset=["segment.ms"])
    assert altered.config.overrides == {"retention.ms": "2"}
    found = (await open_broker().topics.get("orders")).state.metadata
    assert found is not None
    assert found.configuration["owner"] == "sales team"
    assert found.configuration["delta.checkpointInterval"] == "50"
    assert "lakelog.segment.ms" not in found.configuration


async def test_commits_of_others_that_touch_no_records_are_followed(open_broker: OpenBroker) -> None:
    ours, theirs = open_broker(), open_broker()
    await append_each(ours, "orders", ["a"])
    assert await values_of(theirs, "orders") == ["a"]
    unknown = (
        {"cdc": {"path": "x", "size": 1}},
        {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}},
    )
    await commit_next(ours, "orders", [SPARK_INFO, {"txn": {"appId": "a stream", "version": 3}}, *unknown])
    assert (await append(theirs, "orders", records(["b"]))).offsets.tolist() == [1]
    assert await values_of(ours, "orders") == ["a", "b"]


async def test_a_table_that_another_writer_added_files_to_is_refused_with_the_file(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["x"]))
    await commit_next(broker, "orders", [FOREIGN_ADD])
    for attempt in (
        append(broker, "orders", records(["y"])),
        open_broker().admin.describe_topic("orders"),
        open_broker().admin.create_topic("orders"),
        fetch_one(broker, "orders"),
        fetch_one(open_broker(), "orders"),
        broker.offset_at("orders", 0, Position.LATEST),
        broker.admin.alter_config("orders", {"retention.ms": "1"}),
        broker.admin.delete_records("orders", {0: 1}),
        broker.admin.delete_topic("orders"),
    ):
        with pytest.raises(LakelogError, match=r"part-00000.parquet") as caught:
            await attempt
        assert caught.value.code is ErrorCode.UNSUPPORTED_TABLE
    assert await open_broker().admin.list_topics() == []


async def test_an_append_that_is_refused_for_anothers_file_leaves_none_of_its_own(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["x"]))
    before = {file.path for file in await broker.store.files("orders/partition=0")}
    await commit_next(broker, "orders", [FOREIGN_ADD])
    with pytest.raises(LakelogError, match=r"part-00000.parquet"):
        await append(broker, "orders", records(["y"]))
    assert {file.path for file in await broker.store.files("orders/partition=0")} == before


@pytest.mark.parametrize("known", [False, True], ids=["opened at fault", "open before"])
async def test_a_table_that_was_mended_is_a_topic_again(open_broker: OpenBroker, known: bool) -> None:
    writer = open_broker()
    await append_each(writer, "orders", ["x", "y"])
    broker = writer if known else open_broker()
    version = (await writer.admin.describe_topic("orders")).version
    await commit(writer.store, "orders", version + 1, [FOREIGN_ADD])
    with pytest.raises(LakelogError, match=r"part-00000.parquet"):
        await broker.admin.describe_topic("orders")
    removal = {"path": FOREIGN_ADD["add"]["path"], "dataChange": True, "deletionTimestamp": 1}
    await commit(writer.store, "orders", version + 2, [{"remove": removal}])
    assert await values_of(broker, "orders") == ["x", "y"]
    assert (await append(broker, "orders", records(["z"]))).offsets.tolist() == [2]
    assert await values_of(open_broker(), "orders") == ["x", "y", "z"]


async def test_a_checkpoint_is_not_written_without_the_files_of_others(open_broker: OpenBroker) -> None:
    broker = open_broker()
    await append(broker, "orders", records(["x"]))
    topic = await broker.topics.get("orders")
    await commit_next(broker, "orders", [FOREIGN_ADD])
    await topic.table.refresh()
    before = await contents(broker.store, "orders/_delta_log")
    with pytest.raises(LakelogError, match=r"part-00000.parquet"):
        await topic.table.checkpoint()
    assert await contents(broker.store, "orders/_delta_log") == before
