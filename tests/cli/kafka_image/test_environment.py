"""Variables as properties, by the rules of apache/kafka's image. tests/clients/test_kafka_docker_wrapper.py holds them
against Kafka's own class."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.config.options import ConfigError
from ottla.cli.kafka_image.environment import (
    NO_PROPERTIES,
    key_password,
    log_level,
    properties_of,
    properties_text,
    property_name,
)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_A_____B", "a-_b"),
        ("KAFKA_A______B", "a--b"),
        ("KAFKA__A", ".a"),
        ("KAFKA___A", "_a"),
        ("KAFKA_A_KAFKA_B", "a.kafka.b"),
        ("KAFKA_KAFKA_B", "kafka.b"),
        ("KAFKA_lower_Case", "lower.case"),
        ("KAFKA_A.B", "a.b"),
        ("KAFKA_A_.B", "a_b"),
        ("KAFKA_A-B", "a-b"),
        ("KAFKA_LISTENER_NAME_TC-0_SASL_JAAS_CONFIG", "listener.name.tc-0.sasl.jaas.config"),
    ],
)
def test_names_follow_kafkas_rules(variable: str, name: str) -> None:
    assert property_name(variable) == name


@given(st.integers(1, 20))
def test_a_run_of_underscores_takes_threes_first(length: int) -> None:
    threes, rest = divmod(length, 3)

    assert property_name(f"KAFKA_A{'_' * length}B") == f"a{'-' * threes}{('', '.', '_')[rest]}b"


def test_only_variables_with_the_prefix_are_properties() -> None:
    environment = {"PATH": "/bin", "CLUSTER_ID": "x", "MY_KAFKA_A": "1", "kafka_b": "2", "KAFKA_C": "3"}

    assert properties_of(environment) == {"c": "3"}


def test_variables_of_scripts_are_no_properties() -> None:
    assert len(NO_PROPERTIES) == 11
    assert properties_of(dict.fromkeys(NO_PROPERTIES, "x")) == {}
    assert properties_of({"KAFKA_HEAP_OPT": "x"}) == {"heap.opt": "x"}


def test_variables_hold_over_the_mounted_file() -> None:
    text = properties_text({"KAFKA_B": "2", "KAFKA_A": "1"}, "a=0\nc=3")

    assert text == "a=0\nc=3\na=1\nb=2"
    assert properties_of({"KAFKA_B": "2", "KAFKA_A": "1"}, "a=0\nc=3") == {"a": "1", "b": "2", "c": "3"}


def test_values_are_read_as_java_reads_the_file() -> None:
    assert properties_of({"KAFKA_A": r"C:\\x\ty"}) == {"a": "C:\\x\ty"}
    assert properties_of({"KAFKA_A": "1\nb=2"}) == {"a": "1", "b": "2"}


def test_file_names_of_stores_become_their_places() -> None:
    named = properties_of({"KAFKA_SSL_KEYSTORE_FILENAME": "broker.pem", "KAFKA_SSL_TRUSTSTORE_FILENAME": "ca.pem"})

    assert named == {
        "ssl.keystore.location": "/etc/kafka/secrets/broker.pem",
        "ssl.truststore.location": "/etc/kafka/secrets/ca.pem",
    }


def test_the_password_of_a_key_is_the_text_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "creds").write_text("secret\n")

    assert key_password("creds", tmp_path) == "secret"
    with pytest.raises(ConfigError, match=r"ssl\.key\.credentials: cannot read .*/none: No such file"):
        key_password("none", tmp_path)


@pytest.mark.parametrize(
    ("given", "level"), [("DEBUG", "debug"), ("warn", "warning"), ("OFF", "error"), ("", None), (None, None)]
)
def test_the_level_of_log4j_is_that_of_the_log(given: str | None, level: str | None) -> None:
    assert log_level({} if given is None else {"KAFKA_LOG4J_ROOT_LOGLEVEL": given}) == level


def test_a_level_that_log4j_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="KAFKA_LOG4J_ROOT_LOGLEVEL=LOUD: expected one of ALL"):
        log_level({"KAFKA_LOG4J_ROOT_LOGLEVEL": "LOUD"})
