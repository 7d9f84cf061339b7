"""`lakelog produce` and `lakelog consume`: what goes in by one comes out by the other."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from lakelog.client import Fetched, LakelogClient, Record, Stream
from lakelog_cli import consume, files
from lakelog_cli.local_gateway import LocalGateway
from tests.cli.conftest import Lakelog, Refused, invoke

TIME_MS = 1_700_000_000_000


def rows(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_go_in_and_come_out(lakelog: Lakelog) -> None:
    assert json.loads(lakelog("produce", "lines", "--json", stdin=b"one\r\n\ntwo")) == {"topic": "lines", "records": 3}
    assert lakelog("consume", "lines") == "one\n\ntwo\n"
    assert lakelog("consume", "lines", "--from-beginning", "--max-messages", "1") == "one\n"
    assert lakelog("consume", "lines", "--offset", "0:1") == "\ntwo\n"
    assert lakelog("consume", "lines", "--partition", "0", "--offset", "2") == "two\n"
    assert lakelog("consume", "lines", "--offset", "latest") == ""


def test_keys_are_split_off_and_put_back(lakelog: Lakelog) -> None:
    lakelog("produce", "keyed", "--key-separator", ":", "--header", "h=1", stdin=b"a:one:1\nb:two\n")
    assert lakelog("consume", "keyed", "-k", "=") == "a=one:1\nb=two\n"
    records = rows(lakelog("consume", "keyed", "--format", "json"))
    assert [(record["key"], record["value"]) for record in records] == [("a", "one:1"), ("b", "two")]
    assert records[0]["headers"] == [{"key": "h", "value": "1"}]
    assert lakelog("consume", "keyed", "--verbose").splitlines()[0].split("\t")[::2] == ["0:0", "one:1"]


def test_json_lines_carry_all_of_a_record(lakelog: Lakelog) -> None:
    sent = {"value": {"id": 7}, "key": "k", "headers": {"trace": "abc"}, "timestamp": TIME_MS, "partition": 0}
    lakelog("produce", "whole", "--json-lines", stdin=json.dumps(sent).encode() + b'\n\n{"key": "k", "value": null}\n')
    whole, tombstone = rows(lakelog("consume", "whole", "--format", "json"))
    headers = [{"key": "trace", "value": "abc"}]
    assert whole == {**sent, "topic": "whole", "offset": 0, "headers": headers}
    assert (tombstone["key"], tombstone["value"]) == ("k", None)


@pytest.mark.parametrize("form", ["json", "binary"])
def test_what_one_command_prints_the_other_takes(lakelog: Lakelog, server: LocalGateway, form: str) -> None:
    records = [
        Record(b"\x00\xff", key=b"\xfe", headers=[("h", b"\xff"), ("none", None)], timestamp=TIME_MS),
        Record("text\nof two lines", key="k"),
        Record({"a": [1, 2.5]}),
        Record(None, key="gone"),
        Record(""),
    ]
    with LakelogClient(server.url) as client:
        client.produce(f"original-{form}", records)
        printed = lakelog("consume", f"original-{form}", "--format", form)
        lakelog("produce", f"copy-{form}", "--json-lines", stdin=printed.encode())
        original, copy = (list(client.fetch(f"{name}-{form}")) for name in ("original", "copy"))
    assert copy == original


def test_a_reader_follows_until_it_has_enough(lakelog: Lakelog) -> None:
    lakelog("produce", "tail", stdin=b"one\ntwo\nthree\n")
    assert lakelog("consume", "tail", "-b", "--follow", "-n", "2") == "one\ntwo\n"


def test_a_reader_begins_at_a_time(lakelog: Lakelog) -> None:
    old = b'{"value": "old", "timestamp": %d}\n{"value": "new"}\n' % TIME_MS
    lakelog("produce", "times", "--json-lines", stdin=old)
    for time in ("1h", "2025-01-01T00:00:00Z", str(TIME_MS + 1)):
        assert lakelog("consume", "times", "--from-time", time) == "new\n"
    assert lakelog("consume", "times", "--from-time", str(TIME_MS)) == "old\nnew\n"


DEEP = b"[" * 100_000


def test_a_value_that_is_nested_deeper_than_json_may_be_is_text(lakelog: Lakelog) -> None:
    lakelog("produce", "deep", "--key-separator", ":", stdin=DEEP + b":" + DEEP + b"\n")
    (record,) = rows(lakelog("consume", "deep", "--format", "json"))
    assert (record["key"], record["value"]) == (DEEP.decode(), DEEP.decode())


def test_arrow_comes_out_as_a_stream(lakelog: Lakelog, server: LocalGateway) -> None:
    lakelog("produce", "columns", stdin=b"one\ntwo\n")
    done = invoke(server.url, "consume", "columns", "--format", "arrow")
    table = pa.ipc.open_stream(done.stdout_bytes).read_all()
    assert table["value"].to_pylist() == [b"one", b"two"]
    assert table["offset"].to_pylist() == [0, 1]


def test_an_empty_topic_is_a_stream_without_records(lakelog: Lakelog, server: LocalGateway) -> None:
    lakelog("topics", "create", "void", "--partitions", "2")
    for options in ((), ("--partition", "1"), ("--max-messages", "0")):
        done = invoke(server.url, "consume", "void", "--format", "arrow", *options)
        assert done.exit_code == 0
        table = pa.ipc.open_stream(done.stdout_bytes).read_all()
        assert table.num_rows == 0
        assert table.column_names == ["partition", "offset", "timestamp", "key", "value", "headers"]


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".arrow":
        pa.feather.write_feather(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "arrows"])
def test_the_rows_of_a_file_become_records(lakelog: Lakelog, tmp_path: Path, suffix: str) -> None:
    path, topic = tmp_path / f"rows.{suffix}", f"rows-{suffix}"
    write(pa.table({"id": [1, 2, 3], "name": ["x", "y", "z"]}), path)
    lakelog("produce", topic, "--file", str(path), "--key-column", "name", "--partition", "0")
    lakelog("produce", topic, "--file", str(path), "--value-column", "name")
    records = rows(lakelog("consume", topic, "--format", "json"))
    assert [record["key"] for record in records] == ["x", "y", "z", None, None, None]
    assert [record["value"] for record in records] == [
        {"id": 1, "name": "x"},
        {"id": 2, "name": "y"},
        {"id": 3, "name": "z"},
        "x",
        "y",
        "z",
    ]


def test_a_file_of_fetched_records_is_sent_as_it_is(lakelog: Lakelog, server: LocalGateway, tmp_path: Path) -> None:
    sent = b'{"key": "k", "value": "v", "headers": {"h": "1"}, "timestamp": %d}\n' % TIME_MS
    lakelog("produce", "saved", "--json-lines", stdin=sent)
    saved = tmp_path / "saved.arrows"
    saved.write_bytes(invoke(server.url, "consume", "saved", "--format", "arrow").stdout_bytes)
    lakelog("produce", "restored", "--file", str(saved))
    (before,), (after,) = (rows(lakelog("consume", name, "--format", "json")) for name in ("saved", "restored"))
    assert {**after, "topic": "saved"} == before


MEASURED = {"sensor": ["a", "b"], "unit": ["C", "C"]}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize(
    "columns",
    [
        {**MEASURED, "value": ["low", "high"]},
        {**MEASURED, "value": [1.5, 2.5]},
        {"key": ["a", "b"], "value": [1.5, 2.5]},
        {"timestamp": ["early", "late"], "value": ["low", "high"]},
    ],
    ids=["text", "numbers", "numbers-with-keys", "times-that-are-none"],
)
def test_no_column_of_a_row_is_lost(
    lakelog: Lakelog, tmp_path: Path, request: pytest.FixtureRequest, columns: dict[str, list[Any]], suffix: str
) -> None:
    table, path = pa.table(columns), tmp_path / f"rows.{suffix}"
    write(table, path)
    topic = request.node.callspec.id
    lakelog("produce", topic, "--file", str(path))
    assert [record["value"] for record in rows(lakelog("consume", topic, "--format", "json"))] == table.to_pylist()


def test_a_file_of_records_says_where_they_go(lakelog: Lakelog, tmp_path: Path) -> None:
    path = tmp_path / "placed.parquet"
    write(pa.table({"key": ["a", "a"], "value": ["x", "y"], "partition": [1, 0]}), path)
    lakelog("topics", "create", "placed", "--partitions", "2")
    lakelog("produce", "placed", "--file", str(path))
    records = rows(lakelog("consume", "placed", "--format", "json"))
    assert {(record["partition"], record["value"]) for record in records} == {(1, "x"), (0, "y")}


def test_an_option_sends_records_elsewhere_than_they_say(lakelog: Lakelog, tmp_path: Path) -> None:
    path = tmp_path / "moved.csv"
    write(pa.table({"value": ["x"], "partition": [0]}), path)
    lakelog("topics", "create", "moved", "--partitions", "2")
    lakelog("produce", "moved", "--file", str(path), "--partition", "1")
    lakelog("produce", "moved", "--json-lines", "--partition", "1", stdin=b'{"value": "y", "partition": 0}')
    records = rows(lakelog("consume", "moved", "--format", "json"))
    assert [(record["partition"], record["value"]) for record in records] == [(1, "x"), (1, "y")]


def test_a_row_that_cannot_be_sent_is_named(
    lakelog: Lakelog, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "far.arrow"
    write(pa.table({"at": pa.array([0, 0, 0, 2**62], pa.timestamp("us"))}), path)
    said = refused("produce", "far", "--file", str(path), exit_code=1)
    assert "column 'at', row 4: this timestamp[us] is out of range" in said
    assert said.endswith("; nothing was sent\n")
    monkeypatch.setattr(files, "FILE_ROWS", 2)
    said = refused("produce", "far", "--file", str(path), exit_code=1)
    assert "column 'at', row 4" in said
    assert said.endswith("; the first 2 rows were sent\n")
    assert len(rows(lakelog("consume", "far", "--format", "json"))) == 2


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "arrows"])
def test_a_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(files, "FILE_ROWS", 4)
    path = tmp_path / f"long.{suffix}"
    write(pa.table({"id": range(10)}), path)
    pieces = [piece["id"].to_pylist() for piece in files.open_rows(path, None).pieces]
    assert pieces == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_line_that_is_no_record_ends_it_and_says_where_to_go_on(lakelog: Lakelog, refused: Refused) -> None:
    said = refused("produce", "broken", "--json-lines", exit_code=1, stdin=b'{"value": 1}\nnonsense\n{"value": 3}\n')
    assert "line 2 is not a record" in said
    assert "go on from line 2" in said
    assert lakelog("consume", "broken") == "1\n"
    said = refused("produce", "broken", "-k", ":", exit_code=1, stdin=b"no key\n")
    assert "line 1 is not a record: there is no ':' between key and value; nothing was sent" in said


def test_a_line_that_is_no_record_is_not_told_before_those_that_stand_before_it(
    lakelog: Lakelog, refused: Refused
) -> None:
    lines = b'{"value": 1}\n{"value": 2, "partition": 7}\nnonsense\n'
    lakelog("topics", "create", "narrow")
    said = refused("produce", "narrow", "--json-lines", exit_code=1, stdin=lines)
    assert "names a partition that is not there" in said
    assert "go on" not in said


@pytest.mark.parametrize(
    ("arguments", "stdin", "exit_code", "said"),
    [
        (("consume", "nowhere"), b"", 1, "there is no topic 'nowhere'"),
        (("consume", "there", "--partition", "7"), b"", 1, "no partition 7"),
        (("consume", "there", "-p", "0", "--offset", "99"), b"", 1, "offset 99"),
        (("consume", "there", "--offset", "soon"), b"", 2, "'soon' is no offset"),
        (("consume", "there", "--offset", "1:x"), b"", 2, "write them as 0:17,1:4"),
        (("consume", "there", "--offset", "3"), b"", 2, "say --partition too"),
        (
            ("consume", "there", "-p", "1", "-o", "0:17"),
            b"",
            2,
            "--offset 0:17 is of other partitions than --partition 1",
        ),
        (("consume", "there", "--offset", "0:1,0:2"), b"", 2, "'0:1,0:2' names a partition twice"),
        (("consume", "there", "--from-time", "soon"), b"", 2, "'soon' is no time"),
        (("consume", "there", "--from-time", "9999999d"), b"", 2, "'9999999d' is no time"),
        (("consume", "there", "--from-time", "0001-01-01"), b"", 2, "'0001-01-01' is no time"),
        (("consume", "there", "-b", "--offset", "1"), b"", 2, "exclude each other"),
        (("produce", "there", "--partition", "7"), b"a\n", 1, "the topic has 0 to 0"),
        (("produce", "bad/name"), b"a\n", 1, "may only have"),
        (("produce", "there", "--json-lines"), b'{"valu": 1}\n', 1, "unknown field `valu`"),
        (("produce", "there", "--json-lines"), b'{"key": 1}\n', 1, "neither a value nor a value_base64"),
        (
            ("produce", "there", "--json-lines"),
            b'{"value": 1, "partition": -1}\n',
            1,
            "line 1 is not a record: the partition number -1 is out of range; nothing was sent",
        ),
        (
            ("produce", "there", "--json-lines"),
            b'{"value": ' + DEEP,
            1,
            "line 1 is not a record: it is nested too deep",
        ),
        (("produce", "there", "--json-lines", "-k", ":"), b"", 2, "exclude each other"),
        (("produce", "there", "--key-separator", ""), b"", 2, "the key separator is empty"),
        (("produce", "there", "--header", "h"), b"", 2, "'h' is not a header: write NAME=VALUE"),
        (("produce", "there", "--file", "missing.parquet"), b"", 2, "does not exist"),
        (("produce", "there", "--file", __file__), b"", 2, "say --file-format"),
        (("produce", "there", "--file", __file__, "--file-format", "parquet"), b"", 1, "can't be read as parquet"),
        (("produce", "there", "--file", __file__, "--header", "h=1"), b"", 2, "are for lines"),
        (("produce", "there", "--key-column", "id"), b"", 2, "are for a --file"),
        (("produce", "there", "--url", "http://127.0.0.1:1"), b"a\n", 1, "no gateway answers at http://127.0.0.1:1"),
    ],
)
def test_what_a_user_got_wrong_is_said_in_a_line(
    lakelog: Lakelog, refused: Refused, arguments: tuple[str, ...], stdin: bytes, exit_code: int, said: str
) -> None:
    lakelog("topics", "create", "there", "--if-not-exists")
    assert said in refused(*arguments, exit_code=exit_code, stdin=stdin)
    assert lakelog("consume", "there") == ""


def test_who_reads_arrow_along_hears_of_the_columns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    out, columns = io.BytesIO(), pa.schema([("value", pa.binary())])
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))

    def nothing_yet() -> Iterator[Fetched]:
        assert pa.ipc.open_stream(out.getvalue()).schema == columns
        yield from ()

    consume._write_arrow(cast(Stream, SimpleNamespace(batches=nothing_yet)), columns)
    assert pa.ipc.open_stream(out.getvalue()).read_all().num_rows == 0
