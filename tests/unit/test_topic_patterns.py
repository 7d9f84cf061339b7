"""Topics by pattern: whole names, no internal ones, and no pattern that takes long."""

import pytest

from consumer_groups.topic_patterns import check_pattern, fitting
from lakelog.errors import LakelogError

TOPICS = ["orders", "orders-eu", "returns", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-eu"]),
        ("orders|returns", ["orders", "returns"]),
        (".*", ["orders", "orders-eu", "returns"]),
        ("", []),
    ],
)
def test_a_whole_name_fits_and_an_internal_one_never_does(pattern: str, topics: list[str]) -> None:
    assert fitting(pattern, TOPICS) == topics


@pytest.mark.parametrize("pattern", ["(", "a{3,1}", "(?=lookahead)", "\\1", "a)(b", "x{1000000}", "\ud800"])
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(LakelogError, match="is no regular expression"):
        check_pattern(pattern)


def test_a_pattern_that_would_backtrack_for_ever_takes_no_time() -> None:
    assert fitting("(a+)+b", ["a" * 249]) == []
