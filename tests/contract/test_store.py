"""One promise per method of a store, kept alike by memory, a disk and S3: above all, that of many creators one wins."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pytest

from lakelog.delta import store as store_module
from lakelog.delta.store import FileMissing, Store, StoreRefused, StoreUnavailable, open_store
from lakelog.errors import ErrorCode, LakelogError
from tests.canned_server import CannedServer, canned_server
from tests.conftest import S3Server, Warehouse

MIB = 1024 * 1024


@pytest.fixture
def store(warehouse: Warehouse) -> Store:
    return warehouse.open_store()


async def read(store: Store, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    return [buffer.to_pybytes() for buffer in await store.read_ranges(path, ranges)]


def write(store: Store, path: str, *pieces: bytes) -> None:
    writer = store.writer(path)
    for piece in pieces:
        writer.write(piece)
    writer.close()


async def test_of_many_creators_at_once_one_wins_and_its_bytes_stay(store: Store) -> None:
    contents = [f"creator {number}".encode() for number in range(16)]
    won = await asyncio.gather(*(store.create("t/_delta_log/0.json", content) for content in contents))
    assert won.count(True) == 1
    assert await store.get("t/_delta_log/0.json") == contents[won.index(True)]


async def test_creators_with_stores_of_their_own_compete_for_the_same_file(warehouse: Warehouse) -> None:
    stores = [warehouse.open_store() for _ in range(8)]
    won = await asyncio.gather(*(store.create("t/0", str(n).encode()) for n, store in enumerate(stores)))
    assert won.count(True) == 1
    assert {await store.get("t/0") for store in stores} == {str(won.index(True)).encode()}


async def test_creating_over_a_file_that_was_put_changes_nothing(store: Store) -> None:
    await store.put("a/file", b"old")
    assert not await store.create("a/file", b"new")
    assert await store.get("a/file") == b"old"


async def test_a_deleted_file_can_be_created_again(store: Store) -> None:
    assert await store.create("a/file", b"first")
    await store.delete(["a/file"])
    assert await store.create("a/file", b"second")
    assert await store.get("a/file") == b"second"


async def test_a_put_replaces_the_whole_file(store: Store) -> None:
    await store.put("a/file", b"something long")
    await store.put("a/file", b"short")
    assert await store.get("a/file") == b"short"


async def test_many_files_are_read_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    sizes = {f"a/{number}": 1 + number for number in range(100)}
    for path, size in sizes.items():
        await store.put(path, b"x" * size)
    asked = [*reversed(sizes), "a/none", "a/7"]
    contents = await store.get_many(asked)
    assert [content and len(content) for content in contents] == [*reversed(sizes.values()), None, 8]
    assert await store.get_many([]) == []


async def test_on_a_disk_many_files_are_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    for number in range(10):
        await store.put(f"a/{number}", b"small")
    readers: set[int] = set()
    read = store_module._read_and_close

    def noted(file: FileIO) -> bytes:
        readers.add(threading.get_ident())
        return read(file)

    monkeypatch.setattr(store_module, "_read_and_close", noted)
    assert await store.get_many([f"a/{number}" for number in range(10)]) == [b"small"] * 10
    assert len(readers) == 1
    assert threading.get_ident() not in readers


async def test_a_put_takes_an_arrow_buffer_as_well_as_bytes(store: Store) -> None:
    content = bytes(range(256))
    await store.put("a/buffer", pa.py_buffer(content))
    assert await store.get("a/buffer") == content


async def test_readers_see_all_of_a_put_or_nothing(store: Store) -> None:
    versions = [bytes([number]) * 200_000 for number in (1, 2)]
    await store.put("a/file", versions[0])
    seen: list[bytes | None] = []

    async def look() -> None:
        for _ in range(20):
            seen.append(await store.get("a/file"))

    async def overwrite() -> None:
        for number in range(10):
            await store.put("a/file", versions[number % 2])

    await asyncio.gather(look(), look(), overwrite())
    assert all(content in versions for content in seen)


async def test_an_empty_file_is_a_file(store: Store) -> None:
    await store.put("a/empty", b"")
    assert await store.get("a/empty") == b""
    assert [(file.path, file.size) for file in await store.files("a")] == [("a/empty", 0)]


async def test_a_file_that_is_not_there_is_none_to_get_and_missing_to_read(store: Store) -> None:
    await store.put("a/file", b"x")
    assert await store.get("a/other") is None
    assert await store.get("b/file") is None
    with pytest.raises(FileMissing, match="a/other"):
        await store.read_ranges("a/other", [(0, 1)])


async def test_ranges_come_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    content = bytes(range(256)) * 8
    await store.put("a/file", content)
    ranges = [(1000, 1010), (0, 4), (5, 5 + 256), (2047, 2048), (0, 2048), (1005, 1020)]
    assert await read(store, "a/file", ranges) == [content[start:end] for start, end in ranges]


async def test_a_range_that_was_read_outlives_its_file(store: Store) -> None:
    content = b"0123456789" * 100_000
    await store.put("a/file", content)
    (kept,) = await store.read_ranges("a/file", [(10, 500_010)])
    await store.delete(["a/file"])
    assert kept.to_pybytes() == content[10:500_010]


async def test_listing_gives_every_file_below_a_folder_in_the_order_of_paths(store: Store) -> None:
    inside = ["t/a", "t/_delta_log/00000000000000000010.json", "t/_delta_log/00000000000000000009.json"]
    inside += ["t/partition=1/x", "t/partition=10/x", "t/partition=2/deep/er/x"]
    for path in [*inside, "t2/a", "tt", "s/a"]:
        await store.put(path, path.encode())
    listed = await store.files("t")
    assert [file.path for file in listed] == sorted(inside)
    assert [file.size for file in listed] == [len(path) for path in sorted(inside)]


async def test_listing_tells_when_a_file_was_written(store: Store) -> None:
    before_ms = time.time() * 1000
    await store.put("t/file", b"x")
    (file,) = await store.files("t")
    # S3 knows whole seconds only.
    assert before_ms - 1000 <= file.modified_ms <= time.time() * 1000 + 1000


async def test_listing_a_folder_that_is_not_there_gives_nothing(store: Store) -> None:
    assert await store.files("nowhere") == []
    await store.put("some/where", b"x")
    assert await store.files("nowhere/_delta_log") == []


async def test_a_listing_longer_than_one_page_is_whole(store: Store) -> None:
    names = [f"t/{number:04d}" for number in range(1_050)]  # S3 answers with a thousand at a time
    for start in range(0, len(names), 50):
        await asyncio.gather(*(store.put(name, b"") for name in names[start : start + 50]))
    assert [file.path for file in await store.files("t")] == names
    await store.delete(names)
    assert await store.files("t") == []


async def test_only_files_from_before_a_time_are_listed(store: Store) -> None:
    for name in "ab":
        await store.put(f"t/{name}", b"x")
    first_ms = min(file.modified_ms for file in await store.files("t"))
    assert await store.files("t", before_ms=first_ms) == []
    assert [file.path for file in await store.files("t", before_ms=first_ms + 3_600_000)] == ["t/a", "t/b"]


async def test_folders_are_those_at_the_top_alone(store: Store) -> None:
    assert await store.folders() == []
    for path in ["beta/_delta_log/0.json", "alpha/x", "alpha/inner/x", "a.b_c-d/x", "__internal/x", "loose file"]:
        await store.put(path, b"x")
    assert await store.folders() == ["__internal", "a.b_c-d", "alpha", "beta"]


async def test_deleting_takes_what_is_there_and_minds_nothing_that_is_not(store: Store) -> None:
    for name in "abc":
        await store.put(f"t/{name}", b"x")
    await store.delete(["t/gone", "t/a", "t/gone too", "t/b", "nowhere/at/all"])
    assert [file.path for file in await store.files("t")] == ["t/c"]
    await store.delete([])
    await store.delete(["t/a"])
    assert [file.path for file in await store.files("t")] == ["t/c"]


@pytest.mark.parametrize(
    "name", ["with space", "ümläut", "plus+and&more", "equals=1", "quote'", "a,b;c", "%41", "@~$!()"]
)
async def test_names_with_odd_characters_are_names_like_others(store: Store, name: str) -> None:
    path = f"{name}/in/{name}.bin"
    assert await store.create(path, b"0123")
    assert not await store.create(path, b"4567")
    assert await store.get(path) == b"0123"
    assert await read(store, path, [(1, 3)]) == [b"12"]
    assert await store.folders() == [name]
    (file,) = await store.files(name)
    assert await store.get(file.path) == b"0123"
    await store.delete([file.path])
    assert await store.get(path) is None


async def test_a_written_file_appears_whole_and_only_when_it_is_closed(store: Store) -> None:
    writer = store.writer("t/large")
    pieces = [bytes([number]) * MIB for number in range(20)]
    for piece in pieces:
        await asyncio.to_thread(writer.write, piece)
    assert await store.get("t/large") is None
    assert await store.files("t") == []
    await asyncio.to_thread(writer.close)
    assert await store.get("t/large") == b"".join(pieces)
    assert [file.size for file in await store.files("t")] == [20 * MIB]


async def test_a_small_written_file_is_as_good_as_a_large_one(store: Store) -> None:
    await asyncio.to_thread(write, store, "t/small", b"just ", b"this")
    assert await store.get("t/small") == b"just this"


async def test_a_file_that_is_never_closed_never_appears(store: Store) -> None:
    writer = store.writer("t/left")
    await asyncio.to_thread(writer.write, b"x" * 9 * MIB)
    del writer
    assert await store.get("t/left") is None
    assert await store.create("t/left", b"free")


async def test_large_files_are_read_back_in_parts_byte_for_byte(store: Store) -> None:
    content = uuid.uuid4().bytes * (2 * MIB)
    await store.put("t/large", content)
    ends = [(0, 16), (len(content) - 64 * 1024, len(content)), (17 * MIB + 3, 18 * MIB + 7)]
    assert await read(store, "t/large", ends) == [content[start:end] for start, end in ends]


async def test_two_stores_on_one_warehouse_see_the_same_files(warehouse: Warehouse) -> None:
    ours, theirs = warehouse.open_store(), warehouse.open_store()
    await ours.put("t/file", b"x")
    assert await theirs.get("t/file") == b"x"
    await theirs.delete(["t/file"])
    assert await ours.files("t") == []


@pytest.mark.parametrize("url", ["ftp://host/warehouse", "http://host/", "kafka://host:9092"])
def test_a_scheme_without_a_store_is_refused_by_name(url: str) -> None:
    with pytest.raises(LakelogError, match="no store for") as caught:
        open_store(url)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_file_in_the_place_of_a_warehouse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(LakelogError, match="file") as caught:
        open_store(str(tmp_path / "file"))
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_fsync_is_refused_where_there_is_no_disk() -> None:
    with pytest.raises(LakelogError, match="fsync") as caught:
        open_store("memory://somewhere", fsync=True)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_with_fsync_a_disk_keeps_the_same_promises(tmp_path: Path) -> None:
    store = open_store((tmp_path / "new" / "warehouse").as_uri(), fsync=True)
    assert await store.create("t/_delta_log/0.json", b"first")
    assert not await store.create("t/_delta_log/0.json", b"second")
    await store.put("t/partition=0/file", b"data")
    await asyncio.to_thread(write, store, "t/partition=1/large", b"x" * 9 * MIB)
    assert [file.size for file in await store.files("t")] == [5, 4, 9 * MIB]


@pytest.mark.s3
async def test_wrong_credentials_are_refused_and_not_tried_again(s3_server: S3Server) -> None:
    store = open_store("s3://warehouse/x", {**s3_server.options, "secret_access_key": "wrong"})
    with pytest.raises(StoreRefused):
        await store.create("t/0", b"x")
    with pytest.raises(StoreRefused):
        await store.get("t/0")


@pytest.mark.s3
async def test_a_bucket_that_is_not_there_is_refused(s3_server: S3Server) -> None:
    store = open_store("s3://no-such-bucket/x", s3_server.options)
    with pytest.raises(StoreRefused):
        await store.put("t/0", b"x")
    with pytest.raises(StoreRefused):
        await store.create("t/0", b"x")
    # A listing's error does not tell a missing bucket from other failures.
    with pytest.raises((StoreRefused, StoreUnavailable), match="no-such-bucket"):
        await store.folders()


async def test_a_server_that_is_away_is_unavailable() -> None:
    nobody = {"endpoint": "http://127.0.0.1:9", "access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    store = open_store("s3://warehouse", nobody)
    with pytest.raises(StoreUnavailable):
        await store.get("t/0")


@pytest.fixture
def overloaded() -> Iterator[CannedServer]:
    """A store that can't now, whatever it is asked."""
    with canned_server(lambda path: 503) as server:
        yield server


KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}


# Whoever asks has a deadline of its own, which a store that is asked in vain for minutes would not let it keep.
async def test_a_store_that_fails_is_given_up_after_a_few_tries(overloaded: CannedServer) -> None:
    store = open_store("s3://warehouse", {"endpoint": overloaded.url, **KEYS})
    for ask in (store.create("t/0", b"x"), store.get("t/0")):
        with pytest.raises(StoreUnavailable):
            await ask
    assert len(overloaded.asked) <= 8


@pytest.mark.parametrize("name", ["endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url", "AWS_ENDPOINT_URL"])
async def test_an_address_without_tls_is_one_under_each_of_its_names(
    overloaded: CannedServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is given goes before what stands in the environment.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:9")
    store = open_store("s3://warehouse", {name: overloaded.url, **KEYS})
    with pytest.raises(StoreUnavailable):
        await store.get("t/0")
    assert overloaded.asked


async def test_an_address_without_tls_may_come_from_the_environment(
    overloaded: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", overloaded.url)
    with pytest.raises(StoreUnavailable):
        await open_store("s3://warehouse", KEYS).get("t/0")
    assert overloaded.asked


class Cloud(NamedTuple):
    """A store that no server of these tests speaks for: what it is asked is looked at, and answered by the book."""

    url: str
    endpoint_name: str
    options: dict[str, str]
    if_absent: tuple[str, str]  # what makes a put one of a file that is not there

    def open_at(self, endpoint: str) -> Store:
        return open_store(self.url, {self.endpoint_name: endpoint, **self.options})


NOBODYS_KEY = {"gcs_base_url": "", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
CLOUDS = {
    "gs": Cloud(
        "gs://warehouse/w",
        "base_url",
        {"service_account_key": json.dumps(NOBODYS_KEY)},
        ("x-goog-if-generation-match", "0"),
    ),
    "az": Cloud(
        "az://warehouse/w",
        "endpoint",
        {"account_name": "a", "account_key": base64.b64encode(b"key").decode()},
        ("If-None-Match", "*"),
    ),
}


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> Cloud:
    return CLOUDS[request.param]


@pytest.mark.parametrize("taken", [409, 412])
async def test_google_and_azure_are_asked_to_create_and_their_no_is_understood(cloud: Cloud, taken: int) -> None:
    answers = iter([201, taken])
    with canned_server(lambda path: next(answers)) as server:
        store = cloud.open_at(server.url)
        assert await store.create("t/0", b"first")
        assert not await store.create("t/0", b"second")
    assert [unquote(path) for path in server.asked] == ["/warehouse/w/t/0"] * 2
    name, value = cloud.if_absent
    assert [headers[name] for headers in server.headers] == [value, value]


async def test_google_and_azure_may_refuse(cloud: Cloud) -> None:
    with canned_server(lambda path: 403) as server:
        store = cloud.open_at(server.url)
        with pytest.raises(StoreRefused, match="t/0"):
            await store.create("t/0", b"x")
    assert len(server.asked) == 1


async def test_google_and_azure_may_be_away(cloud: Cloud) -> None:
    store = cloud.open_at("http://127.0.0.1:9")
    for ask in (store.get("t/0"), store.create("t/0", b"x"), store.folders()):
        with pytest.raises(StoreUnavailable, match=re.escape("127.0.0.1:9")) as caught:
            await ask
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["gs://warehouse/w", "az://warehouse/w"])
def test_an_option_that_a_store_does_not_have_is_refused_by_name(url: str) -> None:
    with pytest.raises(LakelogError, match="colour") as caught:
        open_store(url, {"colour": "blue"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_a_disk_that_does_not_let_us_write_is_refused_or_unavailable(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    (tmp_path / "t").write_text("a file where a folder is to be")
    with pytest.raises((StoreRefused, StoreUnavailable)):
        await store.put("t/file", b"x")
    assert (tmp_path / "t").read_text() == "a file where a folder is to be"
