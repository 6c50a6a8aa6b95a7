"""A cluster as it runs on real machines: etcd and several `ottla serve` processes, to kill, pause and restart.

Brokers keep their data and their ports for as long as the cluster lives. One broker alone keeps its metadata to itself
and needs no etcd.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.cluster.etcd_members import EtcdMembers
from tests.cluster.etcd_server import MISSING as ETCD_MISSING
from tests.cluster.etcd_server import EtcdServer
from tests.ports import free_ports
from tests.served import ServedBroker
from tests.waiting import wait_for

__all__ = ["ETCD_MISSING", "ClusterProcesses", "RunningCluster", "etcd_is_installed", "wait_for"]


class RunningCluster:
    """What can be asked of a cluster wherever it runs."""

    bootstrap: str

    def wait_until_whole(self, within_s: float = 90) -> None:
        """Until each partition has a leader and all its replicas in sync; AssertionError says which has not."""
        client = self.admin()
        missing = ["no answer"]

        def is_whole() -> bool:
            try:
                topics = client.list_topics(timeout=5).topics.values()
            except KafkaException as error:
                missing[:] = [str(error)]
                return False
            missing[:] = [
                f"{topic.topic}-{index}: leader {one.leader}, in sync {one.isrs} of {one.replicas}"
                for topic in topics
                for index, one in topic.partitions.items()
                if one.leader < 0 or len(one.isrs) < len(one.replicas)
            ]
            return not missing

        wait_for(is_whole, within_s, lambda: f"after {within_s:g} s not whole: {missing}")

    def create_topic(self, name: str, partitions: int, replication_factor: int, **settings: str) -> None:
        """Settings are Kafka's names with underscores for dots."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        client = self.admin()
        client.create_topics([NewTopic(name, partitions, replication_factor, config=config)])[name].result(20)

    def admin(self) -> AdminClient:
        """Keep it for as long as an answer of its is awaited."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})


class ClusterProcesses(RunningCluster):
    """Brokers 1 to `brokers` with their data in `directory`/broker-N, `settings` being Kafka's property names.

    As a context it starts all of them, each ready for clients, and stops them at the end; a test that needs
    another order calls the methods. etcd has one member, or three.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        has_three_etcd_members: bool = False,
    ) -> None:
        self.directory = directory
        self.etcd: EtcdMembers | None = None
        if brokers > 1:
            three = has_three_etcd_members
            self.etcd = EtcdMembers.three(directory) if three else EtcdMembers([EtcdServer(directory)])
        self.brokers: dict[int, ServedBroker] = {}
        for node_id, port in enumerate(free_ports(brokers), start=1):
            arguments = ["--node-id", str(node_id)]
            if self.etcd is not None:
                arguments += ["--metadata", self.etcd.url]
            self.brokers[node_id] = ServedBroker(
                directory / f"broker-{node_id}", dict(settings or {}), listen=f"127.0.0.1:{port}", arguments=arguments
            )
        self.bootstrap = ",".join(broker.listen for broker in self.brokers.values())

    def start(self) -> "ClusterProcesses":
        if self.etcd is not None:
            self.etcd.start()
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        return self

    def leader_of(self, topic: str, partition: int) -> ServedBroker:
        """AssertionError where there is none."""
        leader = self.admin().list_topics(topic, timeout=20).topics[topic].partitions[partition].leader
        assert leader in self.brokers, f"{topic}-{partition} has no leader"
        return self.brokers[leader]

    def stop(self) -> dict[int, int]:
        """SIGTERM to each broker that runs, one after the other; returns their exit statuses."""
        return {node_id: broker.stop() for node_id, broker in self.brokers.items() if broker.is_running}

    def close(self) -> None:
        """Ends every process, in whatever state it is."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
        if self.etcd is not None:
            self.etcd.kill()

    def __enter__(self) -> "ClusterProcesses":
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.close()


def etcd_is_installed() -> bool:
    return shutil.which("etcd") is not None
