"""`lakelog groups`: what a person sees of groups, and what scripts do to them."""

from __future__ import annotations

import json

import pytest

from lakelog_cli.output import print_table
from tests.cli.conftest import Lakelog, Refused


def test_a_group_from_its_first_offset_to_its_end(lakelog: Lakelog, refused: Refused) -> None:
    lakelog("produce", "reset", stdin=b"a\nb\nc\n")
    plan = lakelog("groups", "reset-offsets", "followers", "--topic", "reset", "--to-offset", "1", "--json")
    change = {"topic": "reset", "partition": 0, "before": None, "after": 1}
    assert json.loads(plan) == [change]
    assert "there is no group 'followers'" in refused("groups", "describe", "followers", exit_code=1)
    lakelog("groups", "reset-offsets", "followers", "--topic", "reset:0", "--to-offset", "1", "--execute")
    listed = {each["group_id"]: each["state"] for each in json.loads(lakelog("groups", "list", "--json"))}
    assert listed["followers"] == "Empty"
    assert "followers" in lakelog("groups", "list")
    shown = lakelog("groups", "describe", "followers", "--members")
    assert "followers: Empty, 0 members" in shown
    row = next(line.split() for line in shown.splitlines() if line.startswith("reset "))
    assert row == ["reset", "0", "1", "1", "0", "3", "3", "2", "–"]
    (lag,) = json.loads(lakelog("groups", "describe", "followers", "--json"))["partitions"]
    assert (lag["committed"], lag["end_offset"], lag["lag"]) == (1, 3, 2)
    for option, after in (("--shift-by=1", 2), ("--to-latest", 3), ("--to-earliest", 0), ("--by-duration=1h", 0)):
        (moved,) = json.loads(lakelog("groups", "reset-offsets", "followers", option, "--execute", "--json"))
        assert moved["after"] == after
    (moved,) = json.loads(
        lakelog("groups", "reset-offsets", "followers", "--to-datetime", "2100-01-01T00:00:00Z", "--json")
    )
    assert (moved["before"], moved["after"]) == (0, 3)
    assert "say --yes" in refused("groups", "delete", "followers", exit_code=1)
    assert json.loads(lakelog("groups", "delete", "followers", "--yes", "--json")) == ["followers"]
    assert "followers" not in lakelog("groups", "list", "--json")


@pytest.mark.parametrize("group", ["app[red]x", "[bold]", "team[a"])
def test_a_group_is_shown_under_its_own_name(lakelog: Lakelog, group: str) -> None:
    lakelog("produce", "named", stdin=b"a\n")
    lakelog("groups", "reset-offsets", group, "--topic", "named", "--to-offset", "1", "--execute")
    assert group in lakelog("groups", "list")
    assert f"{group}: Empty, 0 members" in lakelog("groups", "describe", group)
    lakelog("groups", "delete", group, "--yes")


def test_a_table_shows_what_users_have_named_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("title [/a]", ["column [/b]"], [["cell [/c]"], ["[red]"]])
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "title [/a]",
        "column [/b]",
        "cell [/c]",
        "[red]",
    ]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("describe", "nobody"), 1, "there is no group 'nobody'"),
        (("describe", ""), 1, "a group's id is empty"),
        (("delete", "nobody", "--yes"), 1, "there is no group 'nobody'"),
        (("reset-offsets", "nobody", "--to-latest"), 1, "there is no group 'nobody'"),
        (("reset-offsets", "nobody", "--topic", "nowhere", "--to-latest"), 1, "there is no topic 'nowhere'"),
        (("reset-offsets", "nobody"), 2, "say where to, once"),
        (("reset-offsets", "nobody", "--to-latest", "--shift-by", "1"), 2, "say where to, once"),
        (("reset-offsets", "nobody", "--by-duration", "soon"), 2, "'soon' is no duration"),
        (("reset-offsets", "nobody", "--to-latest", "--topic", "t:x"), 2, "'t:x' names no partitions"),
    ],
)
def test_what_a_user_got_wrong_is_said_in_a_line(
    refused: Refused, arguments: tuple[str, ...], exit_code: int, said: str
) -> None:
    assert said in refused("groups", *arguments, exit_code=exit_code)
