import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config import LONG_MAX, ConfigRow, ServerSettings, TopicConfig, topic_rows
from lakelog.errors import ErrorCode, LakelogError

ROWS = [*topic_rows(), *ServerSettings.rows().values()]


def refusal(overrides: dict[str, str]) -> str:
    with pytest.raises(LakelogError) as caught:
        TopicConfig.parse(overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_documents_itself(row: ConfigRow):
    assert len(row.doc.split()) >= 5
    assert row.doc.endswith(".")
    assert row.allowed


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_default_passes_its_own_check(row: ConfigRow):
    for default in (row.default, row.default_on_object_store):
        assert row.kind.admits(default)
        assert row.parse(row.kind.text(default)) == default


def test_every_field_of_the_settings_has_a_row():
    names = [each.name for each in dataclasses.fields(ServerSettings)]
    assert [row.attribute for row in ServerSettings.rows().values()] == names


def test_defaults_that_differ_from_kafkas_or_matter_most():
    config = TopicConfig.parse({})
    assert config.cleanup_policy == {"delete"}
    assert config.retention_ms == 604_800_000
    assert config.segment_bytes == 134_217_728
    assert config.max_compaction_lag_ms == LONG_MAX
    assert config.max_message_bytes == 1_048_588
    assert config.delta_log_retention_ms == 7_200_000
    assert config == TopicConfig()


def test_values_parse_as_kafka_parses_them():
    config = TopicConfig.parse(
        {
            "retention.ms": " 1000 ",
            "min.insync.replicas": "+2",
            "unclean.leader.election.enable": "TRUE",
            "min.cleanable.dirty.ratio": "1e-1",
            "cleanup.policy": "delete , compact",
            "compression.type": "uncompressed",
        }
    )
    assert config.retention_ms == 1000
    assert config.min_insync_replicas == 2
    assert config.unclean_leader_election_enable is True
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.compacted
    assert config.overrides == {
        "retention.ms": "1000",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
        "min.cleanable.dirty.ratio": "0.1",
        "cleanup.policy": "compact,delete",
        "compression.type": "none",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "a week"),
        ("retention.ms", "1_000"),
        ("retention.ms", "1.0"),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("retention.ms", str(LONG_MAX + 1)),
        ("retention.ms", "9" * 10_000),
        ("segment.bytes", "1023"),
        ("segment.bytes", str(2**31)),
        ("delta.log.retention.ms", "599999"),
        ("flush.files.per.second", "0"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "0_1"),
        ("unclean.leader.election.enable", "yes"),
        ("message.timestamp.type", "createtime"),
        ("compression.type", "brotli"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "delete,archive"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(name: str, text: str):
    message = refusal({name: text})
    allowed = {row.name: row.allowed for row in topic_rows()}[name]
    assert message == f"{name} is {text!r}, but it takes {allowed}"


def test_an_unknown_name_is_refused_and_the_nearest_one_suggested():
    assert refusal({"retention.mss": "1"}) == "there is no config 'retention.mss'; did you mean retention.ms?"
    assert refusal({"qqqq": "1"}) == "there is no config 'qqqq'"


def test_minimum_lag_may_not_exceed_the_maximum():
    message = refusal({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"})
    assert "min.compaction.lag.ms (11)" in message
    TopicConfig.parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"})


def test_the_default_of_flush_files_depends_on_the_store():
    disk, store = TopicConfig.parse({}), TopicConfig.parse({}, on_object_store=True)
    assert (disk.flush_files_per_second, store.flush_files_per_second) == (50, 10)
    assert store.overrides == {}
    raised = store.altered({"flush.files.per.second": "50"})
    assert raised.overrides == {"flush.files.per.second": "50"}
    assert raised.altered({}, ["flush.files.per.second"]) == store


def test_describe_tells_what_was_set_from_what_was_not():
    config = TopicConfig.parse({"retention.ms": "604800000", "segment.ms": "5"})
    entries = {entry.name: entry for entry in config.describe()}
    assert list(entries) == [row.name for row in topic_rows()]
    assert {name for name, entry in entries.items() if not entry.is_default} == {"retention.ms", "segment.ms"}
    assert (entries["segment.ms"].value, entries["segment.ms"].default) == ("5", "604800000")
    assert (entries["segment.ms"].type, entries["segment.bytes"].type) == ("long", "int")


def test_altering_sets_unsets_and_leaves_the_rest():
    before = TopicConfig.parse({"retention.ms": "1", "segment.ms": "2"})
    after = before.altered({"retention.bytes": "3"}, ["retention.ms"])
    assert after.overrides == {"segment.ms": "2", "retention.bytes": "3"}
    assert before.overrides == {"retention.ms": "1", "segment.ms": "2"}


def test_altering_refuses_what_it_cannot_do():
    config = TopicConfig()
    with pytest.raises(LakelogError, match=r"INVALID_CONFIG.*did you mean segment\.ms"):
        config.altered({}, ["segment.mss"])
    with pytest.raises(LakelogError, match=r"INVALID_REQUEST: retention\.ms"):
        config.altered({"retention.ms": "1"}, ["retention.ms"])
    with pytest.raises(LakelogError, match="INVALID_CONFIG"):
        config.altered({"retention.ms": "x"})


def test_a_config_that_is_built_directly_is_checked_and_knows_what_it_sets():
    assert TopicConfig(retention_ms=5).overrides == {"retention.ms": "5"}
    assert TopicConfig(min_cleanable_dirty_ratio=0).overrides == {"min.cleanable.dirty.ratio": "0.0"}
    with pytest.raises(LakelogError, match=r"segment\.bytes is 1, but it takes a whole number from 1024"):
        TopicConfig(segment_bytes=1)


def test_a_config_is_a_value():
    config = TopicConfig.parse({"cleanup.policy": "compact"})
    assert {config: 1}[TopicConfig.parse({"cleanup.policy": " compact"})] == 1
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.retention_ms = 1  # type: ignore[misc]


TEXTS = st.integers().map(str) | st.floats().map(str) | st.text(" 0123456789+-.,_efalstru", max_size=6)


@given(st.dictionaries(st.sampled_from([row.name for row in topic_rows()]), TEXTS, max_size=3))
def test_what_is_accepted_reads_back_and_what_is_not_is_an_invalid_config(overrides: dict[str, str]):
    try:
        config = TopicConfig.parse(overrides)
    except LakelogError as error:
        assert error.code is ErrorCode.INVALID_CONFIG  # noqa: PT017
    else:
        assert set(config.overrides) == set(overrides)
        assert TopicConfig.parse(config.overrides) == config


def test_settings_are_checked_however_they_are_made():
    assert ServerSettings.parse({"fsync": "true", "num_partitions": "3"}) == ServerSettings(
        fsync=True, num_partitions=3
    )
    with pytest.raises(LakelogError, match=r"num_partitions is 0, but it takes .* from 1 to 1000"):
        ServerSettings(num_partitions=0)
    with pytest.raises(LakelogError, match="num_partitions is True"):
        ServerSettings(num_partitions=True)
    with pytest.raises(LakelogError, match="follow_interval_ms is '1s'"):
        ServerSettings.parse({"follow_interval_ms": "1s"})
    with pytest.raises(LakelogError, match="did you mean hot_tail_bytes_max"):
        ServerSettings.parse({"hot_tail_bytes": "1"})


def test_settings_describe_themselves():
    changed = {entry.name: entry for entry in ServerSettings(fsync=True).describe() if not entry.is_default}
    assert list(changed) == ["fsync"]
    assert (changed["fsync"].value, changed["fsync"].default) == ("true", "false")
