"""Programs that embed brokers get options by name, and one sentence for whatever is wrong."""

import inspect
import re
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ottla
from ottla import Broker, BrokerThread, Cluster, ClusterThread, ConfigError, NotRunningError, StartError
from ottla.testing.options import DEFAULTS, BrokerOptions

ALL = (Broker, BrokerThread, Cluster, ClusterThread)


@pytest.mark.parametrize("embedding", ALL)
def test_unknown_option_is_refused_by_name(embedding: Any) -> None:
    with pytest.raises(TypeError, match=r"^there is no option 'setings'; did you mean 'settings'\?$"):
        embedding(setings={})


@pytest.mark.parametrize("embedding", [Cluster, ClusterThread])
def test_number_of_brokers_is_among_the_options_of_clusters(embedding: Any) -> None:
    with pytest.raises(TypeError, match=r"^there is no option 'broker'; did you mean 'brokers'\?$"):
        embedding(broker=3)
    with pytest.raises(TypeError, match=r"^there is no option 'x', only brokers, listen, "):
        embedding(x=3)


def test_property_given_as_an_option_is_shown_as_a_setting() -> None:
    options: Any = {"num_partitions": 3}
    with pytest.raises(TypeError, match=r"write settings=\{'num\.partitions': \.\.\.\} for a server property"):
        Broker(**options)


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("listen", "here", "listen: 'here' is not HOST:PORT"),
        ("listen", 9092, "listen=9092: expected HOST:PORT as text"),
        ("advertise", "host:0", "advertise: 'host:0' is not HOST:PORT"),
        ("data_dir", 5, "data_dir=5: expected the path of a directory"),
        ("settings", ["a"], "settings=['a']: expected a mapping of property names to values"),
        ("settings", {"num.partitions": "x"}, "num.partitions=x: expected a whole number"),
        ("node_id", -1, "node_id=-1: expected a whole number from 0 to 2147483647"),
        ("node_id", 2**31, "node_id=2147483648: expected a whole number from 0 to 2147483647"),
        ("log_level", "loud", "log_level='loud': expected one of debug, info, warning, error"),
        ("log_format", [], "log_format=[]: expected one of console, json"),
        ("observers", 3, "observers: expected functions that take a fact, as in observers=[print]"),
        ("observers", [3], "observers: expected functions that take a fact, as in observers=[print]"),
    ],
)
def test_wrong_value_is_one_sentence(option: str, value: object, sentence: str) -> None:
    options: Any = {option: value}
    with pytest.raises(ConfigError) as raised:
        BrokerThread(**options)

    assert str(raised.value) == sentence


@pytest.mark.parametrize(("brokers", "listen"), [(0, None), ("three", None), (3, "127.0.0.1:65534")])
def test_impossible_number_of_brokers_is_one_sentence(brokers: Any, listen: str | None) -> None:
    with pytest.raises(ConfigError, match=r"^(brokers|listen)=.*: (expected|the 2 ports)"):
        Cluster(brokers, listen=listen)


@pytest.mark.parametrize("embedding", ALL)
def test_help_shows_every_option(embedding: Any) -> None:
    assert set(DEFAULTS) <= set(inspect.signature(embedding).parameters)
    # Python 3.13 takes the indentation of all lines away.
    described = re.findall(r"^ *(\w+): ", embedding.__init__.__doc__, re.MULTILINE)
    assert set(DEFAULTS) <= set(described)
    assert set(DEFAULTS) == set(BrokerOptions.__annotations__)


def test_lists_in_settings_are_written_as_kafka_writes_them() -> None:
    with BrokerThread(settings={"listeners": ["PLAINTEXT://127.0.0.1:0"]}) as broker:
        assert broker.bootstrap.startswith("127.0.0.1:")


def test_version_and_errors_are_exported() -> None:
    assert ottla.__version__.count(".") == 2
    assert {*ottla.__all__} <= {*dir(ottla)}
    assert [name for name in ottla.__all__ if not hasattr(ottla, name)] == []


def test_what_needs_an_open_broker_says_so_before_and_after() -> None:
    broker = BrokerThread()
    with pytest.raises(NotRunningError, match=r"^the broker is not open: enter its context or call start\(\)$"):
        _ = broker.bootstrap
    with broker, pytest.raises(StartError, match=r"^it is open already$"):
        broker.start()
    with pytest.raises(NotRunningError):
        _ = broker.cluster_id
    with pytest.raises(NotRunningError, match="it is not open"):
        ClusterThread().kill(0)


def test_faults_of_brokers_that_do_not_run_are_sentences() -> None:
    with ClusterThread(brokers=1) as cluster:
        for fault in (cluster.kill, cluster.shut_down, cluster.restart):
            with pytest.raises(NotRunningError, match=r"^no broker 7 (runs|is part of the cluster), only 0$"):
                fault(7)
        with pytest.raises(NotRunningError, match=r"^no broker None runs, only 0; leader_of\(\) gives None"):
            cluster.kill(cluster.leader_of("missing", 0))


def test_observer_that_would_wait_for_its_own_loop_is_refused() -> None:
    refused: list[str] = []

    def observe(_: object) -> None:
        with pytest.raises(NotRunningError) as raised:
            cluster.kill(0)
        refused.append(str(raised.value))

    with ClusterThread(brokers=1, observers=[observe], settings={"group.initial.rebalance.delay.ms": 0}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(10)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "shop", "log_level": 0})
        consumer.subscribe(["orders"])
        while not refused:
            consumer.poll(0.1)
        consumer.close()
        assert cluster.node_ids == [0]

    assert "this call has to wait for the broker, in which it runs" in refused[0]
