"""Topic configs: checked, turned into a LogConfig, described with their sources."""

import pytest

from ottla.broker.config.alter import Alteration, Operation, altered, replaced
from ottla.broker.config.definitions import TOPIC_OPTIONS
from ottla.broker.config.describe import broker_entries, cluster_default_entries, topic_entries
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ConfigSource, ServerConfig
from ottla.broker.config.topic import check_topic_configs, log_config, shown_value
from ottla.protocol.errors import ErrorCode, InvalidRequest, KafkaError
from ottla.storage.log_config import LogConfig


def entry(overrides: dict[str, str], server: ServerConfig, name: str):
    return next(each for each in topic_entries(overrides, server) if each.name == name)


def test_topic_without_any_configs_has_kafkas_defaults() -> None:
    assert log_config({}, ServerConfig()) == LogConfig()


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604800000),
        ({"log.retention.hours": "1"}, 3600000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5"}, 300000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_the_finer_unit_of_retention_holds(static: dict[str, str], retention_ms: int) -> None:
    assert log_config({}, ServerConfig(static)).retention_ms == retention_ms


def test_a_topics_own_config_holds_over_the_brokers() -> None:
    server = ServerConfig(
        {"internal.segment.bytes.min": "1", "log.segment.bytes": "100", "log.cleanup.policy": "compact"}
    )
    config = log_config({"segment.bytes": "200"}, server)

    assert config.segment_bytes == 200
    assert config.cleanup_policy == {"compact"}


def test_configs_are_kept_in_their_normal_form() -> None:
    given = {"cleanup.policy": "compact, delete", "unclean.leader.election.enable": "TRUE", "retention.ms": " 5 "}

    assert check_topic_configs(given, ServerConfig()) == {
        "cleanup.policy": "compact,delete",
        "unclean.leader.election.enable": "true",
        "retention.ms": "5",
    }


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ({"retention.m": "1"}, "there is no topic config retention.m; did you mean retention.ms?"),
        ({"retention.ms": "x"}, "retention.ms=x: expected a whole number"),
        ({"preallocate": "true"}, "preallocate=true: expected false, for segment files grow as they are written"),
        ({"retention.ms": None}, "retention.ms has no value"),
        (
            {"remote.storage.enable": "true"},
            "remote.storage.enable=true: expected false, for there is no remote storage",
        ),
        ({"segment.bytes": "1048575"}, "segment.bytes=1048575: expected a whole number of at least 1048576"),
        ({"cleanup.policy": "compact,"}, "cleanup.policy=compact,: expected a list of delete, compact"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level=0: expected a whole number between 1 and 9, or -1"),
        ({"compression.lz4.level": "18"}, "compression.lz4.level=18: expected a whole number between 1 and 17"),
        ({"leader.replication.throttled.replicas": "none"}, "leader.replication.throttled.replicas=none: expected"),
        ({"local.retention.ms": "-3"}, "local.retention.ms=-3: expected a whole number of at least -2"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "min.compaction.lag.ms is greater than"),
    ],
)
def test_configs_that_cannot_be_are_refused(configs: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_topic_configs(configs, ServerConfig())
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-1", 0.1),
        (".5", 0.5),
        ("0.5f", 0.5),
        ("1d", 1.0),
        ("0x1p-1", 0.5),
        ("+0", 0.0),
        ("NaN", None),
        ("inf", None),
    ],
)
def test_numbers_are_read_as_java_reads_them(text: str, value: float | None) -> None:
    option = TOPIC_OPTIONS["min.cleanable.dirty.ratio"]
    if value is None:
        with pytest.raises(ConfigError):
            option.parse(text)
    else:
        assert option.parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.bytes", "-2", "-2"),
        ("retention.ms", "٣", "3"),
        ("follower.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
        ("local.retention.bytes", "1000", "1000"),
        ("compression.zstd.level", "-131072", "-131072"),
    ],
)
def test_configs_that_kafka_takes_are_stored(name: str, text: str, value: str) -> None:
    assert check_topic_configs({name: text}, ServerConfig()) == {name: value}


def test_a_value_is_described_with_every_place_that_gives_it_one() -> None:
    server = ServerConfig({"log.retention.hours": "1"})
    server.set_dynamic(of_this_broker={}, of_all_brokers={"log.retention.ms": "50"})
    described = entry({"retention.ms": "7"}, server, "retention.ms")

    assert (described.value, described.source, described.read_only) == ("7", ConfigSource.TOPIC, False)
    assert [(value.name, value.value, value.source) for value in described.synonyms] == [
        ("retention.ms", "7", ConfigSource.TOPIC),
        ("log.retention.ms", "50", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


def test_value_of_a_coarser_property_is_shown_in_topic_units() -> None:
    described = entry({}, ServerConfig({"log.retention.hours": "1"}), "retention.ms")

    assert (described.value, described.source) == ("3600000", ConfigSource.STATIC_BROKER)
    assert entry({}, ServerConfig(), "retention.ms").source is ConfigSource.DEFAULT


def test_a_brokers_entries_say_what_can_be_changed() -> None:
    entries = {each.name: each for each in broker_entries(ServerConfig({"num.partitions": "3"}))}

    assert (entries["num.partitions"].value, entries["num.partitions"].read_only) == ("3", True)
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER
    assert not entries["log.segment.bytes"].read_only
    assert entries["log.retention.ms"].value is None


def test_the_defaults_of_all_brokers_are_only_what_was_set() -> None:
    server = ServerConfig()
    server.set_dynamic(of_this_broker={"log.segment.bytes": "50"}, of_all_brokers={"log.retention.ms": "5"})

    assert [(each.name, each.value) for each in cluster_default_entries(server)] == [("log.retention.ms", "5")]


def alter(current: dict[str, str], *alterations: Alteration) -> dict[str, str]:
    return altered(current, alterations, TOPIC_OPTIONS, lambda option: shown_value(option, current, ServerConfig()))


def test_alterations_set_remove_append_and_subtract() -> None:
    changed = alter(
        {"retention.ms": "5", "segment.bytes": "100"},
        Alteration("retention.ms", Operation.DELETE, None),
        Alteration("segment.ms", Operation.SET, "9"),
        Alteration("cleanup.policy", Operation.APPEND, "compact"),
    )

    assert changed == {"segment.bytes": "100", "segment.ms": "9", "cleanup.policy": "delete,compact"}
    assert alter(changed, Alteration("cleanup.policy", Operation.SUBTRACT, "delete"))["cleanup.policy"] == "compact"


def test_topic_without_a_cleanup_policy_keeps_all_records() -> None:
    """confluent-kafka's own tests take the last policy away."""
    none_left = alter({}, Alteration("cleanup.policy", Operation.SUBTRACT, "delete"))

    config = log_config(check_topic_configs(none_left, ServerConfig()), ServerConfig())

    assert not config.is_compacted
    assert not config.deletes_old_segments
    assert entry(none_left, ServerConfig(), "cleanup.policy").value == ""


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (Alteration("retention.ms", Operation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (Alteration("unknown", Operation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (Alteration("retention.ms", Operation.SET, None), ErrorCode.INVALID_REQUEST),
        (Alteration("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_alterations_that_make_no_sense_are_refused(alteration: Alteration, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        alter({}, alteration)
    assert raised.value.code is code


def test_missing_value_is_named_before_other_errors_as_by_kafka() -> None:
    with pytest.raises(InvalidRequest):
        alter({}, Alteration("unknown", Operation.APPEND, "1"), Alteration("retention.ms", Operation.SET, None))
    with pytest.raises(InvalidRequest):
        alter({}, Alteration("retention.ms", Operation.APPEND, None))


def test_a_config_named_twice_is_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        replaced([("retention.ms", "1"), ("retention.ms", "2")])
    assert raised.value.code is ErrorCode.INVALID_REQUEST
