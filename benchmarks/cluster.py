"""Three broker processes with their etcd, under measurement."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import NotMeasured
from benchmarks.processes import cpu_seconds
from benchmarks.raw_client import RawClient, create_topic, described
from tests.cluster_processes import ETCD_MISSING, ClusterProcesses, etcd_is_installed, wait_for

SETTINGS = {"log.segment.bytes": str(1 << 30), "group.initial.rebalance.delay.ms": "0"}
WITHIN_S = 60


class Cluster:
    """`admin` speaks with broker 1, which leads what `create` makes: it is the first of the replicas."""

    def __init__(self, processes: ClusterProcesses) -> None:
        self.processes = processes
        self.bootstrap = processes.bootstrap
        self.admin = RawClient(self.port(1))
        wait_for(self._is_whole, WITHIN_S, "not all brokers are known to broker 1")

    def _is_whole(self) -> bool:
        ports, _ = described(self.admin)
        return len(ports) == len(self.processes.brokers)

    def port(self, node_id: int) -> int:
        return int(self.processes.brokers[node_id].listen.rsplit(":", 1)[-1])

    def create(self, topic: str, replicas: Sequence[int]) -> None:
        create_topic(self.admin, topic, replicas=replicas)
        self.wait_for_isr(topic, len(replicas))

    def wait_for_isr(self, topic: str, size: int) -> None:
        """Until every partition has so many replicas in sync."""

        def is_in_sync() -> bool:
            _, partitions = described(self.admin, topic)
            return bool(partitions) and all(len(partition.isr_nodes) == size for partition in partitions)

        wait_for(is_in_sync, WITHIN_S, f"{topic} has not {size} replicas in sync within {WITHIN_S} s")

    def cpu_seconds(self) -> float:
        """Of all brokers."""
        return sum(cpu_seconds(broker.pid) for broker in self.processes.brokers.values())

    def partition_directory(self, node_id: int, topic: str) -> Path:
        """Of its partition 0 at one of the brokers."""
        return self.processes.brokers[node_id].data_dir / f"{topic}-0"

    def log_bytes(self, node_id: int, topic: str) -> int:
        return sum(segment.stat().st_size for segment in self.partition_directory(node_id, topic).glob("*.log"))


@contextmanager
def three_brokers() -> Iterator[Cluster]:
    if not etcd_is_installed():
        raise NotMeasured(ETCD_MISSING)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        ClusterProcesses(Path(directory), SETTINGS) as processes,
    ):
        yield Cluster(processes)
