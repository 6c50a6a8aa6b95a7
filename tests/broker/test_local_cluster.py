"""Several brokers in one process: their directories, ports, start and stop, and what the death of one does."""

import asyncio
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla import Cluster, ClusterThread
from ottla.broker.broker import Broker, StartError
from ottla.broker.config.server import ServerConfig
from ottla.broker.local_cluster import LocalCluster, node_ids_in
from ottla.cluster.image import BrokerState
from tests.broker.clusters import QUICK_SESSIONS, WAIT_S, create_topic, running_cluster, state_of, until
from tests.ports import consecutive_free_ports
from tests.served import ServedBroker


async def test_brokers_of_a_process_are_one_cluster(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        brokers = cluster.brokers
        addresses = [broker.bootstrap for broker in brokers.values()]

        assert list(brokers) == [0, 1, 2]
        assert cluster.bootstrap == ",".join(addresses)
        assert len(set(addresses)) == 3
        assert {broker.cluster_id for broker in brokers.values()} == {cluster.cluster_id}
        await until(lambda: all(broker.image.active_brokers == {0, 1, 2} for broker in brokers.values()))
        assert {broker.image.controller_id for broker in brokers.values()} == {0}

    assert node_ids_in(tmp_path) == [0, 1, 2]


async def test_cluster_stopped_as_a_whole_restarts_unchanged(tmp_path: Path) -> None:
    """No leadership is moved: there is no broker left that could lead."""
    async with running_cluster(tmp_path, brokers=3) as cluster:
        await create_topic(cluster.brokers[1], "t", [2, 0, 1], [1, 2, 0])
        before = [state_of(cluster.brokers[1], "t", index) for index in range(2)]
        cluster_id = cluster.cluster_id
        witness = cluster.brokers[1]
        await cluster.stop()
        assert [state_of(witness, "t", index) for index in range(2)] == before

    async with running_cluster(tmp_path, brokers=3) as cluster:
        assert cluster.cluster_id == cluster_id
        witness = cluster.brokers[0]
        await until(lambda: all(set(state_of(witness, "t", index).isr) == {0, 1, 2} for index in range(2)))
        assert all(broker.log_directory.was_closed_cleanly for broker in cluster.brokers.values())


async def test_killed_brokers_partitions_move_after_its_session(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        witness = cluster.brokers[0]
        address = cluster.brokers[2].bootstrap
        await create_topic(witness, "t", [2, 1])

        await cluster.kill_broker(2)
        assert cluster.leader_of("t", 0) == 2
        await until(lambda: cluster.leader_of("t", 0) == 1)
        assert witness.image.brokers[2].state is BrokerState.FENCED
        assert cluster.bootstrap.endswith(address), "it will be there again"

        await cluster.start_broker(2)
        assert cluster.brokers[2].bootstrap == address
        await until(lambda: witness.image.active_brokers == {0, 1, 2})
        await until(lambda: set(state_of(witness).isr) == {1, 2})
        assert not cluster.brokers[2].log_directory.was_closed_cleanly


async def test_sessions_outlive_a_loop_that_was_held_up(tmp_path: Path) -> None:
    """Renewals and the ends of sessions wait for the same loop."""
    session_ms = int(QUICK_SESSIONS["broker.session.timeout.ms"])
    async with running_cluster(tmp_path, brokers=3) as cluster:
        witness = cluster.brokers[0]
        sessions = {node_id: broker.session_revision for node_id, broker in witness.image.brokers.items()}
        held_until = time.monotonic() + 2 * session_ms / 1000
        while time.monotonic() < held_until:
            pass  # No other step of the loop comes in between.
        lifecycles = [broker.lifecycle for broker in cluster.brokers.values()]
        assert all(lifecycle.session_may_have_ended for lifecycle in lifecycles)

        await until(lambda: not any(lifecycle.session_may_have_ended for lifecycle in lifecycles))
        await until(lambda: witness.image.active_brokers == {0, 1, 2})
        assert {node_id: broker.session_revision for node_id, broker in witness.image.brokers.items()} == sessions


async def test_a_cluster_whose_brokers_were_all_killed_comes_back(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", [1, 0])
        cluster_id, bootstrap = cluster.cluster_id, cluster.bootstrap
        for node_id in (0, 1):
            await cluster.kill_broker(node_id)
        assert cluster.leader_of("t", 0) is None
        assert (cluster.cluster_id, cluster.bootstrap) == (cluster_id, bootstrap)

        for node_id in (0, 1):
            await cluster.start_broker(node_id)

        await until(lambda: set(state_of(cluster.brokers[0]).isr) == {0, 1})
        assert cluster.leader_of("t", 0) is not None


async def test_a_broker_that_is_stopped_hands_over_at_once(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, broker_session_timeout_ms=60_000) as cluster:
        await create_topic(cluster.brokers[0], "t", [1, 0])

        assert await cluster.stop_broker(1)

        assert cluster.leader_of("t", 0) == 0


async def test_the_controller_is_another_one_when_it_was_killed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        witness = cluster.brokers[2]
        await cluster.kill_broker(0)

        await until(lambda: witness.image.controller_id in (1, 2))


async def test_a_port_in_use_is_one_sentence_and_leaves_nothing_open(tmp_path: Path) -> None:
    first, port = consecutive_free_ports(2)
    with socket.create_server(("127.0.0.1", port)):
        cluster = LocalCluster(ServerConfig(), data_dir=tmp_path, brokers=2, port=first)

        with pytest.raises(StartError, match=f"^cannot listen on 127.0.0.1:{port}: "):
            await cluster.start()

    async with running_cluster(tmp_path):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets two sockets have one address so")
async def test_port_of_a_broker_that_is_down_is_held(tmp_path: Path) -> None:
    """The kernel would give it to some connection that goes out: then the broker could not come back."""
    async with running_cluster(tmp_path, brokers=2) as cluster:
        host, _, port = cluster.brokers[1].bootstrap.rpartition(":")
        for end in (cluster.kill_broker, cluster.stop_broker):
            await end(1)

            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, int(port))
            with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
                other.bind((host, int(port)))

            await cluster.start_broker(1)
            assert cluster.brokers[1].bootstrap == f"{host}:{port}"

        await cluster.stop()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((host, int(port)))


async def test_directory_of_one_broker_is_refused_for_several(tmp_path: Path) -> None:
    single = Broker(ServerConfig(), data_dir=tmp_path / "one", port=0)
    await single.start()
    await single.stop()
    async with running_cluster(tmp_path / "three", brokers=3):
        pass

    refused = {
        LocalCluster(ServerConfig(), data_dir=tmp_path / "one", brokers=2, port=0): "holds the data of one broker",
        LocalCluster(ServerConfig(), data_dir=tmp_path / "three", brokers=2, port=0): "holds the data of broker 2 too",
    }

    for cluster, sentence in refused.items():
        with pytest.raises(StartError, match=sentence):
            await cluster.start()


async def test_a_cluster_may_grow(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=2) as cluster:
        await create_topic(cluster.brokers[0], "t", [1, 0])

    async with running_cluster(tmp_path, brokers=3) as cluster:
        assert cluster.brokers[2].image.active_brokers == {0, 1, 2}
        assert state_of(cluster.brokers[2]).replicas == (1, 0)


# Inside a program.


async def test_an_embedded_cluster_loses_nothing_when_a_leader_dies() -> None:
    """R08, as somebody who tests a program would try it."""
    settings = QUICK_SESSIONS | {"default.replication.factor": 3, "min.insync.replicas": 2, "num.partitions": 1}
    async with Cluster(brokers=3, settings=settings) as cluster:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
            await producer.send_and_wait("t", b"0")
            leader = cluster.leader_of("t", 0)
            assert leader is not None
            await cluster.kill(leader)
            for i in range(1, 10):
                await producer.send_and_wait("t", str(i).encode())
        assert cluster.leader_of("t", 0) != leader
        assert leader not in cluster.node_ids
        assert cluster.leader_of("t", 7) is None

        await cluster.restart(leader)
        assert cluster.node_ids == [0, 1, 2]
        consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(WAIT_S):
            assert [(await consumer.getone()).value for _ in range(10)] == [str(i).encode() for i in range(10)]


def test_an_embedded_cluster_in_a_thread_of_its_own() -> None:
    with ClusterThread(brokers=2, settings=QUICK_SESSIONS) as cluster:
        cluster.shut_down(1)
        assert cluster.node_ids == [0]
        cluster.restart(1)
        cluster.restart(1)
        assert cluster.node_ids == [0, 1]
        for address in cluster.bootstrap.split(","):
            host, port = address.rsplit(":", 1)
            socket.create_connection((host, int(port))).close()
        assert cluster.cluster_id

    assert "ottla" not in [thread.name for thread in threading.enumerate()]


# As a process.


def test_serve_runs_several_brokers_on_consecutive_ports(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", arguments=["--brokers", "3", "--node-id", "5"]) as served:
        assert len(served.bootstrap.split(",")) == 3
        assert served.stop() == 0

    ports = consecutive_free_ports(3)
    with ServedBroker(
        tmp_path / "data", listen=f"127.0.0.1:{ports[0]}", arguments=["--brokers", "3", "--node-id", "5"]
    ) as served:
        assert served.bootstrap == ",".join(f"127.0.0.1:{port}" for port in ports)
        assert served.stop() == 0

    assert (tmp_path / "data" / "broker-7").is_dir()
    assert "Traceback" not in served.stderr


async def test_cluster_with_many_partitions_stops_without_a_wait(tmp_path: Path) -> None:
    """Three that hand over to each other would wait in vain for other leaders."""
    async with running_cluster(tmp_path, brokers=3) as cluster:
        await create_topic(cluster.brokers[0], "t", *[[index % 3, (index + 1) % 3] for index in range(30)])
        async with asyncio.timeout(10):
            await cluster.stop()
