"""`lakelog topics` and `lakelog offsets`: tables for people, JSON for scripts."""

from __future__ import annotations

import json

import pytest

from lakelog.client import LakelogClient
from lakelog_cli.local_gateway import LocalGateway
from tests.cli.conftest import Lakelog, Refused, invoke


def test_a_topic_from_its_creation_to_its_end(lakelog: Lakelog, refused: Refused) -> None:
    lakelog("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=60000")
    assert "life" in lakelog("topics", "list", "--names").splitlines()
    shown = json.loads(lakelog("topics", "describe", "life", "--json"))
    assert (shown["name"], len(shown["partitions"])) == ("life", 2)
    lakelog("topics", "alter", "life", "--partitions", "3", "--set", "segment.ms=5000", "--unset", "retention.ms")
    shown = json.loads(lakelog("topics", "describe", "life", "--json"))
    configs = {entry["name"]: entry["value"] for entry in shown["configs"]}
    assert (configs["segment.ms"], configs["retention.ms"], len(shown["partitions"])) == ("5000", "604800000", 3)
    assert "there is a topic 'life' already" in refused("topics", "create", "life", exit_code=1)
    assert len(json.loads(lakelog("topics", "create", "life", "--if-not-exists", "--json"))["partitions"]) == 3
    lakelog("topics", "delete", "life", "--yes")
    assert "life" not in lakelog("topics", "list", "--names").splitlines()


def test_topics_are_listed_for_people_and_for_scripts(lakelog: Lakelog, monkeypatch: pytest.MonkeyPatch) -> None:
    lakelog("produce", "listed", stdin=b"one\ntwo\n")
    # A request for all of them, and none for each.
    monkeypatch.delattr(LakelogClient, "describe_topic")
    line = next(line for line in lakelog("topics", "list").splitlines() if line.startswith("listed "))
    assert line.split()[1:3] == ["1", "2"]
    (row,) = (row for row in json.loads(lakelog("topics", "list", "--json")) if row["name"] == "listed")
    assert (row["partitions"], row["records"]) == (1, 2)
    assert "listed" in json.loads(lakelog("topics", "list", "--names", "--json"))


def test_a_description_shows_partitions_and_the_configs_that_were_set(lakelog: Lakelog) -> None:
    lakelog("topics", "create", "shown", "-p", "2", "-c", "retention.ms=60000")
    lakelog("produce", "shown", "--partition", "1", stdin=b"one\n")
    text = lakelog("topics", "describe", "shown")
    assert "shown: 1 record," in text
    assert ["1", "0", "1", "1"] in [line.split()[:4] for line in text.splitlines()]
    assert "retention.ms" in text
    assert "cleanup.policy" not in text
    assert "cleanup.policy" in lakelog("topics", "describe", "shown", "--all")


def test_a_script_hears_what_is_deleted(lakelog: Lakelog, server: LocalGateway) -> None:
    lakelog("topics", "create", "gone-1")
    lakelog("topics", "create", "gone-2")
    assert json.loads(lakelog("topics", "delete", "gone-1", "gone-2", "--yes", "--json")) == ["gone-1", "gone-2"]
    lakelog("topics", "create", "gone-3")
    done = invoke(server.url, "topics", "delete", "gone-3", "nowhere", "--yes", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (1, ["gone-3"])


def test_nothing_is_deleted_without_a_yes(lakelog: Lakelog, refused: Refused) -> None:
    lakelog("topics", "create", "kept")
    assert "say --yes" in refused("topics", "delete", "kept", exit_code=1)
    assert "kept" in lakelog("topics", "list", "--names").splitlines()


def test_the_oldest_records_are_let_go(lakelog: Lakelog, refused: Refused) -> None:
    lakelog("produce", "shrinking", stdin=b"a\nb\nc\n")
    starts = json.loads(lakelog("topics", "delete-records", "shrinking", "--before", "0:2", "--json"))
    assert starts == [{"partition": 0, "log_start_offset": 2}]
    assert lakelog("consume", "shrinking").splitlines() == ["c"]
    lakelog("topics", "delete-records", "shrinking", "--before", "0:-1")
    assert lakelog("consume", "shrinking") == ""
    assert "write them as 0:17,1:4" in refused("topics", "delete-records", "shrinking", "--before", "two", exit_code=2)


def test_offsets_are_shown_for_people_and_for_scripts(lakelog: Lakelog) -> None:
    lines = b"".join(
        b'{"value": %d, "timestamp": %d}\n' % (hour, 1_700_000_000_000 + hour * 3_600_000) for hour in range(3)
    )
    lakelog("produce", "ends", "--json-lines", stdin=lines)
    assert [line.split() for line in lakelog("offsets", "ends").splitlines()][-1] == ["0", "0", "3", "3"]
    row = {"partition": 0, "log_start_offset": 0, "high_watermark": 3, "records": 3}
    assert json.loads(lakelog("offsets", "ends", "--json")) == [row]
    for time in ("2023-11-14T23:00:00Z", "1700003600000"):
        assert json.loads(lakelog("offsets", "ends", "--json", "--at", time)) == [{**row, "offset_at": 1}]


def test_settings_are_shown_as_they_are(lakelog: Lakelog) -> None:
    shown = lakelog("config", "--warehouse", "data[/a]")
    assert "data[/a]" in shown
    assert "data[/a]" in lakelog("config", "--warehouse", "data[/a]", "--json")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("topics", "describe", "nowhere"), 1, "lakelog: there is no topic 'nowhere'"),
        (("topics", "delete", "nowhere", "--yes"), 1, "there is no topic 'nowhere'"),
        (("topics", "alter", "nowhere", "--set", "retention.ms=1"), 1, "there is no topic 'nowhere'"),
        (("offsets", "nowhere"), 1, "there is no topic 'nowhere'"),
        (("topics", "create", "bad/name"), 1, "'bad/name' may only have ASCII letters"),
        (("topics", "create", "t", "--config", "no.such=1"), 1, "there is no config 'no.such'"),
        (("topics", "create", "t", "--config", "nonsense"), 2, "'nonsense' is not a config: write NAME=VALUE"),
        (("topics", "create", "t", "--partitions", "0"), 2, "--partitions"),
        (("topics", "create"), 2, "Missing argument"),
        (("topics", "alter", "t"), 2, "nothing to change: say --set, --unset or --partitions"),
        (("offsets", "t", "--at", "soon"), 2, "'soon' is no time"),
        (("offsets", "t", "--at", "9999999d"), 2, "'9999999d' is no time"),
        (("offsets", "t", "--at", "0001-01-01"), 2, "'0001-01-01' is no time"),
        (("topics", "list", "--url", "ftp://there"), 1, "'ftp://there' is not the address of a gateway"),
        (("topics", "list", "--url", "http://127.0.0.1:1"), 1, "start one with `lakelog serve`"),
        (("no-such-command",), 2, "No such command"),
    ],
)
def test_what_a_user_got_wrong_is_said_in_a_line(
    refused: Refused, arguments: tuple[str, ...], exit_code: int, said: str
) -> None:
    assert said in refused(*arguments, exit_code=exit_code)
