"""Apache Kafka's own tools for operators of a cluster, against three of our brokers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_processes import wait_for
from tests.java_tools import run_tool
from tests.served import ServedBroker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
WITHIN_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedBroker]:
    settings = {"auto.leader.rebalance.enable": "false"}
    with ServedBroker(tmp_path / "data", settings, arguments=["--brokers", "3"]) as served:
        yield served


def described(cluster: ServedBroker) -> list[dict[str, str]]:
    """The partitions of `t` as Kafka's tool shows them: Partition, Leader, Replicas, Isr."""
    text = run_tool(TOPICS, "--bootstrap-server", cluster.bootstrap, "--describe", "--topic", "t")
    rows = [line.split("\t") for line in text.splitlines() if "Partition: " in line]
    return [dict(cell.split(": ", 1) for cell in row if ": " in cell) for row in rows]


def test_partitions_are_reassigned_and_preferred_leaders_elected(cluster: ServedBroker, tmp_path: Path) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    run_tool(TOPICS, *server, "--create", "--topic", "t", "--replica-assignment", "0:1,1:2")
    plan = tmp_path / "plan.json"
    targets = {0: [2, 0], 1: [0, 1]}
    moves = [{"topic": "t", "partition": index, "replicas": replicas} for index, replicas in targets.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))

    begun = run_tool(REASSIGN, *server, "--reassignment-json-file", plan, "--execute")
    assert "Successfully started partition reassignments for t-0,t-1" in begun

    def is_complete() -> bool:
        verified = run_tool(REASSIGN, *server, "--reassignment-json-file", plan, "--verify")
        return verified.count("is completed") == len(targets)

    wait_for(is_complete, WITHIN_S, "the partitions were not moved")
    assert "No partition reassignments found" in run_tool(REASSIGN, *server, "--list")

    run_tool(ELECT, *server, "--election-type", "preferred", "--all-topic-partitions")
    assert [(row["Leader"], row["Replicas"]) for row in described(cluster)] == [("2", "2,0"), ("0", "0,1")]


def test_the_brokers_of_the_cluster_are_listed(cluster: ServedBroker) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)

    listed = run_tool(CLUSTER, "list-endpoints", *server, "--include-fenced-brokers")
    cluster_id = run_tool(CLUSTER, "cluster-id", *server)

    assert listed.count("unfenced") == 3
    assert "Cluster ID: " in cluster_id
