from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.cli.clusters import fake_brokers, has_log_ends, partition, topic
from tests.cli.fake_broker import FakeBroker
from tests.cli.runner import json_of, output_of, refusal_of


def has_min_isr(broker: FakeBroker, **topics: int) -> None:
    results = [
        DescribeConfigsResult(
            resource_type=2,
            resource_name=name,
            configs=[DescribeConfigsResourceResult(name="min.insync.replicas", value=str(value), config_source=5)],
        )
        for name, value in topics.items()
    ]
    broker.answer(DescribeConfigsRequest, DescribeConfigsResponse(results=results))


def knows_fenced(broker: FakeBroker, *fenced: DescribeClusterBroker) -> None:
    live = DescribeClusterBroker(broker_id=0, host="127.0.0.1", port=broker.port)
    broker.answer(DescribeClusterRequest, DescribeClusterResponse(cluster_id="c", brokers=[live, *fenced]))


def test_status_shows_degraded_partitions_and_their_lag() -> None:
    with fake_brokers(2) as (first, second):
        first.has_topics(
            topic("bad", partition(0, [0, 1, 2], [0, 1]), partition(-1, [2], [2]), partition(1, [1, 2, 0], [1])),
            topic("good", partition(1, [1, 0], [1, 0])),
            brokers=[first, second],
        )
        has_min_isr(first, bad=2, good=1)
        knows_fenced(first, DescribeClusterBroker(broker_id=2, host="h", port=9, rack="r", is_fenced=True))
        has_log_ends(first, {("bad", 0): 100, ("bad", 2): 20, ("good", 0): 7})
        has_log_ends(second, {("bad", 0): 97, ("bad", 2): 50, ("good", 0): 8})

        assert output_of(first, "cluster", "status", status=1) == (
            "cluster -\n"
            "  controller        0\n"
            "  topics            2\n"
            "  partitions        4\n"
            "  under-replicated  2\n"
            "  under min ISR     2\n"
            "  offline           1\n"
            "BROKER  ADDRESS          RACK  STATE  LEADS  REPLICAS  LAG\n"
            f"     0  {first.bootstrap.ljust(15)}  -     live       1         3   30\n"
            f"     1  {second.bootstrap.ljust(15)}  -     live       2         3    3\n"
            f"     2  {'h:9'.ljust(15)}  r     down       0         3    -\n"
            "TOPIC  PARTITION  LEADER  REPLICAS  ISR  STATE             LAG\n"
            "bad            0       0  0,1,2     0,1  under-replicated  1:3,2:?\n"
            "bad            1       -  2         2    offline           -\n"
            "bad            2       1  1,2,0     1    under min ISR 2   2:?,0:30\n"
        )


def test_status_as_json_names_the_degraded_partitions_only() -> None:
    with fake_brokers(2) as (first, second):
        first.has_topics(topic("t", partition(0, [0, 1], [0, 1]), partition(0, [0, 1], [0])), brokers=[first, second])
        has_min_isr(first, t=1)
        knows_fenced(first)
        has_log_ends(first, {("t", 0): 5, ("t", 1): 9})
        has_log_ends(second, {("t", 0): 5, ("t", 1): 2})

        found = json_of(first, "cluster", "status", status=1)

    shared = {"rack": None, "is_live": True, "replicas": 2}
    assert found["brokers"] == [
        {"node_id": 0, "address": first.bootstrap, "leads": 2, "lag": None, **shared},
        {"node_id": 1, "address": second.bootstrap, "leads": 0, "lag": 7, **shared},
    ]
    assert found["degraded"] == [
        {
            "topic": "t",
            "partition": 1,
            "leader": 0,
            "replicas": [0, 1],
            "isr": [0],
            "min_isr": 1,
            "lag": {"1": 7},
            "offline": False,
            "under_replicated": True,
            "under_min_isr": False,
        }
    ]
    del found["brokers"], found["degraded"]
    assert found == {
        "cluster_id": None,
        "controller": 0,
        "topics": 1,
        "partitions": 2,
        "under_replicated": 1,
        "under_min_isr": 0,
        "offline": 0,
    }


def test_broker_known_by_its_replicas_alone_is_shown_as_down() -> None:
    """Clusters that do not list fenced brokers, or that have forgotten one."""
    ranges = {3: (0, 12), 2: (1, 7), 32: (1, 4)}
    with FakeBroker(ranges=ranges) as broker:
        broker.has_topics(topic("t", partition(0, [0, 7], [0])))
        has_min_isr(broker, t=1)
        has_log_ends(broker, {("t", 0): 5})

        found = json_of(broker, "cluster", "status", status=1)

    assert found["brokers"][1] == {
        "node_id": 7,
        "address": None,
        "rack": None,
        "is_live": False,
        "leads": 0,
        "replicas": 1,
        "lag": None,
    }


def test_lag_is_unknown_if_only_the_leader_answers() -> None:
    with fake_brokers(2) as (first, second):
        first.has_topics(topic("t", partition(0, [0, 1], [0])), brokers=[first, second])
        has_min_isr(first, t=1)
        knows_fenced(first)
        has_log_ends(first, {("t", 0): 5})
        has_log_ends(second, {})

        found = json_of(first, "cluster", "status", status=1)

    assert found["degraded"][0]["lag"] == {"1": None}


def test_a_broker_is_unregistered() -> None:
    with FakeBroker() as broker:
        broker.answer(UnregisterBrokerRequest, UnregisterBrokerResponse())

        assert output_of(broker, "cluster", "unregister", "7") == "unregistered broker 7\n"
        assert broker.requests(UnregisterBrokerRequest) == [UnregisterBrokerRequest(broker_id=7)]


def test_an_unknown_broker_cannot_be_unregistered() -> None:
    with FakeBroker() as broker:
        broker.answer(UnregisterBrokerRequest, UnregisterBrokerResponse(error_code=102))

        assert refusal_of(broker, "cluster", "unregister", "7") == "cannot unregister broker 7: it is not registered"
