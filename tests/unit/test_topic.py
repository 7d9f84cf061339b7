import pytest

from lakelog.config import PARTITIONS_MAX
from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import check_partition_count, check_topic_name, collides, is_internal


@pytest.mark.parametrize("name", ["a", "Orders.v1_eu-west", "...", "-", "__consumer_offsets", "x" * 249])
def test_names_that_kafka_takes(name: str):
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty"),
        (".", "directory"),
        ("..", "directory"),
        ("x" * 250, "has 250 characters"),
        ("a b", "may only have"),
        ("a/b", "may only have"),
        ("../etc", "may only have"),
        ("a\n", "may only have"),
        ("größe", "may only have"),
        ("٣", "may only have"),
    ],
)
def test_names_that_kafka_refuses(name: str, reason: str):
    with pytest.raises(LakelogError, match=reason) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_refusal_of_an_endless_name_is_short():
    with pytest.raises(LakelogError) as caught:
        check_topic_name("x" * 1_000_000)
    assert len(caught.value.message) < 500


def test_internal_topics_start_with_two_underscores():
    assert is_internal("__consumer_offsets")
    assert not is_internal("_schemas")
    assert not is_internal("a__b")


def test_names_collide_when_only_dots_and_underscores_differ():
    assert collides("a.b", "a_b")
    assert collides("a.b_c", "a_b.c")
    assert not collides("a.b", "a.b")
    assert not collides("a.b", "a-b")


@pytest.mark.parametrize("count", [1, PARTITIONS_MAX])
def test_partition_counts_within_bounds(count: int):
    check_partition_count(count)


@pytest.mark.parametrize("count", [-1, 0, PARTITIONS_MAX + 1])
def test_partition_counts_out_of_bounds(count: int):
    with pytest.raises(LakelogError, match=str(count)) as caught:
        check_partition_count(count)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
