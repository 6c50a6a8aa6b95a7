"""`ottla cluster health` at a cluster with admin listeners, at one without a broker, and where there is none."""

import json

import pytest

from ottla import ClusterThread
from ottla.cli.operations.cluster_health import reachable_admin
from ottla.protocol.address import Address
from tests.cli.runner import run
from tests.ports import free_ports


@pytest.mark.usefixtures("roomy_disk")
def test_sound_cluster_is_healthy_until_a_broker_is_killed() -> None:
    listener = f"127.0.0.1:{free_ports(1)[0]}"
    with ClusterThread(brokers=3, settings={"ottla.admin.listener": listener}) as cluster:
        waited = run("cluster", "health", "--exit-when-healthy", "--bootstrap", cluster.bootstrap)
        assert (waited.exit_code, waited.stdout.splitlines()[-1]) == (0, "healthy: 3 of 3 brokers live")
        killed = cluster.node_ids[2]
        cluster.kill(killed)
        found = run("cluster", "health", "--json", "--bootstrap", cluster.bootstrap)

    last = json.loads(found.stdout.splitlines()[-1])
    assert (found.exit_code, last["healthy"]) == (1, False)
    assert any(f"broker {killed}" in reason or "controller" in reason for reason in last["reasons"])


def test_cluster_out_of_reach_is_not_healthy() -> None:
    found = run("cluster", "health", "--exit-when-healthy", "--within", "0", "--bootstrap", "127.0.0.1:1")

    assert found.exit_code == 1
    assert found.stdout == "not healthy: 0 of 0 brokers live; cannot reach 127.0.0.1:1: nothing listens there\n"


@pytest.mark.parametrize(
    ("value", "reached"),
    [
        ("0.0.0.0:9644", Address("kafka2", 9644)),
        ("[::]:9644", Address("kafka2", 9644)),
        ("10.0.0.7:9644", Address("10.0.0.7", 9644)),
        ("127.0.0.1:0", None),
        ("off", None),
    ],
)
def test_admin_listener_is_reached_by_the_advertised_host(value: str, reached: Address | None) -> None:
    assert reachable_admin(value, "kafka2") == reached
