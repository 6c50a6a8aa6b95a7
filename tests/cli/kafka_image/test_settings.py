"""What a broker makes of the properties of apache/kafka's image: applied, without effect, refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.listeners import Listeners
from ottla.cli.kafka_image.settings import image_settings
from tests.cli.kafka_image.examples import SINGLE_NODE, TESTCONTAINERS


def refusal(**variables: str) -> str:
    with pytest.raises(ConfigError) as refused:
        image_settings(variables)
    return str(refused.value)


def test_without_any_variable_the_images_defaults_hold() -> None:
    settings = image_settings({"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1g"})

    assert settings.properties["listeners"] == "PLAINTEXT://:9092"
    assert settings.properties["advertised.listeners"] == "PLAINTEXT://localhost:9092"
    assert settings.properties["offsets.topic.replication.factor"] == "1"
    assert (settings.node_id, settings.data_dir, settings.cluster_id) == (1, None, None)


def test_with_any_variable_all_of_these_are_gone() -> None:
    settings = image_settings({"KAFKA_NUM_PARTITIONS": "3"})

    assert settings.properties == {"num.partitions": "3", "listeners": "PLAINTEXT://:9092"}


def test_the_same_holds_of_a_mounted_file() -> None:
    settings = image_settings({}, "num.partitions=3\nlog.dirs=/logs\n")

    assert settings.properties == {"num.partitions": "3", "listeners": "PLAINTEXT://:9092"}
    assert settings.data_dir == Path("/logs")


@pytest.mark.parametrize("variables", [SINGLE_NODE, TESTCONTAINERS])
def test_what_compose_and_testcontainers_set_makes_a_broker(variables: dict[str, str]) -> None:
    settings = image_settings(variables)

    listeners = Listeners(ServerConfig(settings.properties))
    assert "CONTROLLER" not in [each.name for each in listeners.wanted]
    assert all(each.advertised is not None for each in listeners.wanted)
    assert listeners.inter_broker == variables["KAFKA_INTER_BROKER_LISTENER_NAME"]
    assert settings.without_effect == tuple(
        sorted(
            name
            for name in ("controller.listener.names", "controller.quorum.voters", "process.roles",
                         "share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor")
            if f"KAFKA_{name.upper().replace('.', '_')}" in variables
        )
    )  # fmt: skip
    assert settings.unknown == ()


@given(st.permutations(["A://h:1", "B://h:2", "C://[::1]:3"]), st.sampled_from(["", ",", " , "]))
def test_order_and_trailing_commas_of_listeners_do_not_matter(parts: list[str], end: str) -> None:
    settings = image_settings({"KAFKA_ADVERTISED_LISTENERS": ",".join(parts) + end})

    assert set(settings.properties["listeners"].split(",")) == {"A://0.0.0.0:1", "B://0.0.0.0:2", "C://0.0.0.0:3"}
    assert set(settings.properties["advertised.listeners"].split(",")) == set(parts)


def test_listeners_of_a_controller_are_not_bound() -> None:
    settings = image_settings(
        {
            "KAFKA_LISTENERS": "PLAINTEXT://:9092,controller://:9093,OTHER://:9094",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER,OTHER",
        }
    )

    assert settings.properties["listeners"] == "PLAINTEXT://:9092"


def test_other_vendors_variables_are_taken_and_said() -> None:
    settings = image_settings(
        {"KAFKA_CFG_NODE_ID": "3", "KAFKA_CFG_NUM_PARTITIONS": "2", "KAFKA_NUM_PARTITIONS": "4", "KAFKA_CFG_X": "1"}
    )

    assert settings.node_id == 3
    assert settings.properties["num.partitions"] == "4"
    assert settings.other_vendor == ("node.id", "num.partitions", "x")
    assert settings.unknown == ("x",)


@pytest.mark.parametrize(
    "name",
    [
        "zookeeper.connect", "controller.quorum.voters.x", "confluent.balancer.enable", "rest.bootstrap.servers",
        "metric.reporters", "metrics.num.samples", "num.io.threads", "inter.broker.protocol.version",
        "group.coordinator.rebalance.protocols", "share.coordinator.threads", "auto.include.jmx.reporter", "jmx.port",
    ],
)  # fmt: skip
def test_what_means_nothing_here_is_accepted(name: str) -> None:
    settings = image_settings({f"KAFKA_{name.upper().replace('.', '_')}": "1"})

    assert settings.without_effect == (name,)


def test_names_that_are_not_known_are_accepted() -> None:
    assert image_settings({"KAFKA_REST": "1", "KAFKA_MY_THING": "2"}).unknown == ("my.thing", "rest")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "SSL_KEYSTORE_FILENAME",
            "kafka.jks",
            "ssl.keystore.location=/etc/kafka/secrets/kafka.jks: key stores are PEM",
        ),
        ("SSL_TRUSTSTORE_LOCATION", "/x.P12", "ssl.truststore.location=/x.P12: key stores are PEM; `keytool"),
        ("SSL_KEYSTORE_TYPE", "PKCS12", "ssl.keystore.type=PKCS12: key stores are PEM; `keytool"),
        ("LISTENER_NAME_A_SSL_KEYSTORE_TYPE", "jks", "listener.name.a.ssl.keystore.type=jks: key stores are PEM"),
        ("SSL_KEYSTORE_PASSWORD", "x", "ssl.keystore.password: key stores and trust stores are PEM"),
        ("OPTS", "-Djava.security.auth.login.config=/jaas.conf", "KAFKA_OPTS: files of JAAS are not read"),
        ("PROCESS_ROLES", "controller", "process.roles=controller: there is no controller without a broker"),
        ("CONTROLLER_QUORUM_VOTERS", "1@a:1,2@b:1", "controller.quorum.voters has other nodes than this one, 1: "),
        ("CONTROLLER_QUORUM_BOOTSTRAP_SERVERS", "a:1,b:1", "controller.quorum.bootstrap.servers has 2 nodes: "),
        ("PRINCIPAL_BUILDER_CLASS", "x.Y", "principal.builder.class: Java classes cannot be loaded"),
        ("REMOTE_LOG_STORAGE_SYSTEM_ENABLE", "true", "tiered storage is not supported"),
        ("NODE_ID", "one", "node.id=one: expected a whole number of 0 or more"),
    ],
)
def test_what_would_be_missed_is_refused_by_name(name: str, value: str, sentence: str) -> None:
    assert sentence in refusal(**{f"KAFKA_{name}": value})


def test_every_refused_property_is_in_the_sentence() -> None:
    said = refusal(
        KAFKA_PROCESS_ROLES="controller", KAFKA_SSL_KEYSTORE_TYPE="JKS", KAFKA_CREATE_TOPIC_POLICY_CLASS_NAME="x"
    )

    assert [said.count(name) for name in ("process.roles", "ssl.keystore.type", "create.topic.policy")] == [1, 1, 1]


def test_a_feature_that_is_declined_is_not_refused() -> None:
    settings = image_settings({"KAFKA_REMOTE_LOG_STORAGE_SYSTEM_ENABLE": "false"})

    assert settings.without_effect == ("remote.log.storage.system.enable",)


def test_node_and_broker_id_agree_or_are_refused() -> None:
    assert image_settings({"KAFKA_BROKER_ID": "7", "KAFKA_NODE_ID": "7"}).node_id == 7
    assert refusal(KAFKA_BROKER_ID="7", KAFKA_NODE_ID="8").startswith("node.id and broker.id are not the same")


def test_of_several_directories_the_first_is_used() -> None:
    settings = image_settings({"KAFKA_LOG_DIRS": "/a, /b", "KAFKA_LOG_DIR": "/c"})

    assert settings.data_dir == Path("/a")
    assert settings.without_effect == ("log.dirs: /b",)
