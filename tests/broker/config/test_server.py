"""Server properties: parsing, bounds, refusal by name, precedence."""

import inspect
import re
from pathlib import Path

import pytest

import ottla
from ottla.broker.config import tls
from ottla.broker.config.definitions import SERVER_OPTIONS, SYNONYMS
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ConfigSource, ServerConfig
from ottla.broker.config.server_admin import ADMIN
from ottla.broker.config.server_cluster import ETCD

PACKAGE = Path(ottla.__file__).parent


def refusal(*settings: str) -> str:
    with pytest.raises(ConfigError) as raised:
        ServerConfig.parse(None, settings)
    return str(raised.value)


def test_defaults_are_kafkas() -> None:
    """docs/semantics §22."""
    config = ServerConfig()

    assert config.group_initial_rebalance_delay_ms == 3000
    assert config.offsets_topic_num_partitions == 50
    assert config.log_segment_bytes == 1073741824
    assert config.message_max_bytes == 1048588
    assert config.log_retention_ms is None
    assert config.auto_create_topics_enable is True
    assert config.log_cleanup_policy == ("delete",)
    assert config.broker_rack is None


def test_settings_hold_over_the_file() -> None:
    config = ServerConfig.parse("num.partitions=3\nmin.insync.replicas=2\n", ["num.partitions=7"])

    assert config.num_partitions == 7
    assert config.min_insync_replicas == 2


def test_every_default_passes_its_own_check() -> None:
    for option in SERVER_OPTIONS.values():
        shown = option.show(option.default)
        if shown is not None:
            assert option.parse(shown) == option.default, option.name


def test_address_is_shown_as_it_was_given() -> None:
    option = SERVER_OPTIONS["ottla.admin.listener"]

    assert option.show(option.parse("[::1]:9644")) == "[::1]:9644"


NO_PASSWORD = "key stores and trust stores are PEM, where only the key has a password: ssl.key.password"


def test_every_option_has_a_reader() -> None:
    """Nothing is accepted that does nothing: each property is read by the broker, or stands behind a topic config."""
    behind_topics = {synonym.server_name for synonyms in SYNONYMS.values() for synonym in synonyms}
    # What they ask for is looked at when they are given.
    one_valued = {"ssl.keystore.type", "ssl.truststore.type"}
    source = inspect.getsource(tls.TlsProperties)
    read_by_prefix = {value for name, value in vars(tls).items() if isinstance(value, str) and name in source}
    prefixed = {prefix + name for prefix in (ADMIN, ETCD) for name in read_by_prefix}
    sources = [path for path in PACKAGE.rglob("*.py") if not path.name.startswith("server_")]
    text = "\n".join(path.read_text() for path in sources)
    unread = [
        name
        for name, option in SERVER_OPTIONS.items()
        if name not in (behind_topics | one_valued | prefixed)
        and not re.search(rf"(config|server|Options)\.{option.attribute}\b", text)
    ]
    assert unread == []


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("nump.partitions=1", "there is no property nump.partitions; did you mean num.partitions?"),
        ("zzz=1", "there is no property zzz"),
        ("num.partitions=0", "num.partitions=0: expected a whole number of at least 1"),
        ("log.retention.ms=0", "log.retention.ms=0: expected a whole number of at least 1, or -1"),
        ("log.retention.minutes=0", "log.retention.minutes=0: expected a whole number of at least 1, or -1"),
        ("log.retention.hours=-2", "log.retention.hours=-2: expected a whole number of at least 1, or -1"),
        ("num.partitions=x", "num.partitions=x: expected a whole number"),
        ("num.partitions=1_0", "num.partitions=1_0: expected a whole number"),
        ("num.partitions=2147483648", "num.partitions=2147483648: expected a whole number of at least 1"),
        ("auto.create.topics.enable=yes", "auto.create.topics.enable=yes: expected true or false"),
        ("log.cleaner.min.cleanable.ratio=2", "log.cleaner.min.cleanable.ratio=2: expected a number between 0 and 1"),
        (
            "log.cleaner.min.cleanable.ratio=nan",
            "log.cleaner.min.cleanable.ratio=nan: expected a number",
        ),
        ("log.segment.bytes=1048575", "log.segment.bytes=1048575: at least 1048576 expected"),
        ("log.cleanup.policy=compact,", "log.cleanup.policy=compact,: expected a list of delete, compact"),
        ("log.cleanup.policy=", "log.cleanup.policy=: expected a list of delete, compact"),
        ("log.cleanup.policy=compact,none", "log.cleanup.policy=compact,none: expected a list of delete, compact"),
        ("max.connections.per.ip.overrides=a:b", "max.connections.per.ip.overrides=a:b: expected a list of HOST:COUNT"),
        ("ssl.provider=x", "ssl.provider: Java classes cannot be loaded"),
        (
            "ottla.admin.auth=token",
            (
                "ottla.admin.auth: what the admin listener asks for follows from ottla.admin.tokens.file and "
                "ottla.admin.ssl.client.auth"
            ),
        ),
        (
            "ssl.truststore.password=hidden",
            f"ssl.truststore.password: {NO_PASSWORD}",
        ),
        (
            "transaction.two.phase.commit.enable=true",
            "transaction.two.phase.commit.enable: two-phase commit (KIP-939) is not supported; false is accepted",
        ),
        (
            "max.connections.per.ip=0",
            "max.connections.per.ip=0 lets in the addresses of max.connections.per.ip.overrides alone, which is empty",
        ),
        (
            "group.min.session.timeout.ms=1800001",
            "group.min.session.timeout.ms is greater than group.max.session.timeout.ms",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(setting: str, sentence: str) -> None:
    assert refusal(setting) == sentence


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_retention_without_a_limit_is_accepted(name: str) -> None:
    values = [next(ServerConfig({name: text}).values_of(SERVER_OPTIONS[name])).value for text in ("-1", "1")]

    assert values == ["-1", "1"]


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert refusal("num.partitions=0", "zzz=1").split("; ") == [
        "num.partitions=0: expected a whole number of at least 1",
        "there is no property zzz",
    ]


def test_value_of_this_broker_precedes_that_of_all_brokers() -> None:
    config = ServerConfig({"internal.segment.bytes.min": "1", "log.segment.bytes": "100"})
    option = SERVER_OPTIONS["log.segment.bytes"]

    config.set_dynamic(of_this_broker={"log.segment.bytes": "300"}, of_all_brokers={"log.segment.bytes": "200"})

    assert config.log_segment_bytes == 300
    assert [(value.value, value.source) for value in config.values_of(option)] == [
        ("300", ConfigSource.DYNAMIC_BROKER),
        ("200", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("100", ConfigSource.STATIC_BROKER),
        ("1073741824", ConfigSource.DEFAULT),
    ]
    config.set_dynamic(of_this_broker={}, of_all_brokers={})
    assert config.log_segment_bytes == 100


def test_read_only_properties_cannot_be_set_at_run_time() -> None:
    config = ServerConfig()

    with pytest.raises(ConfigError, match=r"num\.partitions cannot be changed while the broker runs"):
        config.check_dynamic({"num.partitions": "2"}, of_all_brokers=True)
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes=x"):
        config.check_dynamic({"log.segment.bytes": "x"}, of_all_brokers=True)
    assert config.check_dynamic({"log.segment.bytes": " 2097152 "}, of_all_brokers=True) == {
        "log.segment.bytes": "2097152"
    }
    assert config.log_segment_bytes == 1073741824


def test_run_time_values_that_contradict_each_other_are_refused() -> None:
    config = ServerConfig({"log.cleaner.max.compaction.lag.ms": "10"})

    with pytest.raises(ConfigError, match="greater"):
        config.check_dynamic({"log.cleaner.min.compaction.lag.ms": "11"}, of_all_brokers=False)
