"""Three brokers in one process beside one: how soon a record is on all replicas."""

import tempfile
import time

from benchmarks import processes
from benchmarks.figure import Figure, interleave
from benchmarks.raw_client import RawClient, batch, create_topic, described, produced

ROUNDS = 7
TOPIC = "start"


def figures() -> list[Figure]:
    pairs = interleave(ROUNDS, lambda: _milliseconds_to_replicate(3), lambda: _milliseconds_to_replicate(1))
    name = "three brokers in one process: exec to first record on all replicas"
    return [Figure(name, "one broker", "ms", pairs, at_most=2)]


def _milliseconds_to_replicate(brokers: int) -> float:
    """With nothing in the data directory. All replicas of a new topic are in sync: acks=all waits for each of them."""
    records = batch(1, 100)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        started = time.perf_counter()
        with processes.running(processes.broker_command(directory, "--brokers", str(brokers))) as server:
            admin = RawClient(server.port)
            create_topic(admin, TOPIC, replication_factor=brokers)
            while not produced(leader := _leader_of(admin), TOPIC, records):
                leader.close()
            milliseconds = (time.perf_counter() - started) * 1e3
            leader.close()
            admin.close()
    return milliseconds


def _leader_of(admin: RawClient) -> RawClient:
    ports, partitions = described(admin, TOPIC)
    return RawClient(ports[partitions[0].leader_id])
