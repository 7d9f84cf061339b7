"""The command line as its users run it: real processes against a real gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog_cli.local_gateway import LocalGateway
from tests.gateway_process import gateway, run

Lakelog = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def lakelog(server: LocalGateway) -> Lakelog:
    """Runs a command that has to succeed, and gives what it printed."""

    def command(*arguments: str, stdin: bytes = b"") -> str:
        done = run(server.url, arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return command


def fails(server: LocalGateway, *arguments: str, stdin: bytes = b"") -> str:
    done = run(server.url, arguments, stdin=stdin)
    assert done.returncode != 0
    said = done.stderr.decode()
    assert "Traceback" not in said
    return said


def rows(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_topic_from_its_creation_to_its_end(lakelog: Lakelog, server: LocalGateway) -> None:
    lakelog("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=60000")
    assert "life" in lakelog("topics", "list").split()
    shown = json.loads(lakelog("topics", "describe", "life", "--json"))
    assert (shown["name"], len(shown["partitions"])) == ("life", 2)
    lakelog("topics", "alter", "life", "--partitions", "3", "--set", "segment.ms=5000")
    assert len(json.loads(lakelog("topics", "describe", "life", "--json"))["partitions"]) == 3
    assert "already" in fails(server, "topics", "create", "life")
    lakelog("topics", "create", "life", "--if-not-exists")
    lakelog("topics", "delete", "life", "--yes")
    assert "life" not in lakelog("topics", "list").split()


def test_lines_go_in_and_come_out(lakelog: Lakelog) -> None:
    lakelog("topics", "create", "lines", "--partitions", "1")
    lakelog("produce", "lines", "--key-separator", ":", stdin=b"a:one\nb:two\n")
    assert lakelog("consume", "lines", "--from-beginning").splitlines() == ["one", "two"]
    assert lakelog("consume", "lines", "-b", "-k", "=").splitlines() == ["a=one", "b=two"]
    assert lakelog("consume", "lines", "--offset", "0:1", "--max-messages", "1").splitlines() == ["two"]
    records = rows(lakelog("consume", "lines", "-b", "--format", "json"))
    assert [(record["key"], record["value"], record["offset"]) for record in records] == [
        ("a", "one", 0),
        ("b", "two", 1),
    ]


def test_json_lines_carry_all_of_a_record(lakelog: Lakelog) -> None:
    sent = {"value": {"id": 7}, "key": "k", "headers": {"trace": "abc"}, "timestamp": 1_700_000_000_000}
    lakelog("produce", "whole", "--json-lines", stdin=json.dumps(sent).encode() + b"\n")
    (record,) = rows(lakelog("consume", "whole", "-b", "--format", "json"))
    assert (record["key"], record["value"], record["offset"]) == ("k", {"id": 7}, 0)
    assert "1700000000000" in json.dumps(record) or "2023-11-14" in json.dumps(record)


def test_the_rows_of_a_file_become_records(lakelog: Lakelog, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "name": ["x", "y", "z"]}), tmp_path / "rows.parquet")
    lakelog("produce", "rows", "--file", str(tmp_path / "rows.parquet"), "--key-column", "name", "--partition", "0")
    records = rows(lakelog("consume", "rows", "-b", "--format", "json"))
    assert [record["key"] for record in records] == ["x", "y", "z"]
    assert records[0]["value"]["id"] == 1


def test_a_reader_follows_until_it_has_enough(lakelog: Lakelog) -> None:
    lakelog("produce", "tail", stdin=b"one\ntwo\nthree\n")
    assert lakelog("consume", "tail", "-b", "--follow", "-n", "3").splitlines() == ["one", "two", "three"]


def test_offsets_are_shown_for_people_and_for_scripts(lakelog: Lakelog) -> None:
    lakelog("topics", "create", "ends", "--partitions", "1")
    lakelog("produce", "ends", stdin=b"1\n2\n3\n")
    assert "3" in lakelog("offsets", "ends")
    assert "3" in json.dumps(json.loads(lakelog("offsets", "ends", "--json", "--at", "1h")))


def test_every_setting_is_shown_with_where_it_comes_from(lakelog: Lakelog) -> None:
    settings = {row["name"]: row for row in rows(lakelog("config", "--json"))}
    assert settings["num_partitions"]["default"] == "1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topics", "describe", "nowhere"), "nowhere"),
        (("consume", "nowhere", "-b"), "nowhere"),
        (("topics", "create", "bad/name"), "name"),
        (("topics", "create", "t", "--config", "no.such=1"), "no.such"),
        (("topics", "create", "t", "--config", "nonsense"), "nonsense"),
        (("consume", "lines", "--offset", "soon"), "soon"),
        (("produce", "t", "--file", "missing.parquet"), "missing.parquet"),
        (("topics", "list", "--url", "ftp://there"), "address"),
    ],
)
def test_what_a_user_got_wrong_is_said_in_a_line(server: LocalGateway, arguments: tuple[str, ...], said: str) -> None:
    assert said in fails(server, *arguments)


def test_the_tour_runs_from_beginning_to_end(lakelog: Lakelog) -> None:
    shown = lakelog("demo", "--records", "500", "--live", "5")
    assert "rides" in shown
