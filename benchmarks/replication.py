"""What replication costs: three broker processes, a topic with replicas on all of them beside one on the first alone.

Nothing is pinned: brokers and clients share the processors.
"""

import shutil
import tempfile
import time
from contextlib import ExitStack

from benchmarks import c_client, processes
from benchmarks.bulk import through_sink
from benchmarks.cluster import WITHIN_S, Cluster, three_brokers
from benchmarks.figure import Figure, interleave
from tests.cluster_processes import wait_for

ROUNDS = 4
# What new pages cost scatters most.
COST_ROUNDS = 6
RECORD_BYTES = 1024
RECORDS = 200_000
RATE_PER_S = 500
PACED = 1_000
CATCH_UP_ROUNDS = 3
CATCH_UP_RECORDS = 1 << 20
EVERYWHERE, ALONE = (1, 2, 3), (1,)


def figures() -> list[Figure]:
    processes.unpin()
    with three_brokers() as cluster:
        return [_cost(cluster), _bare_cost(), _latency(cluster), _catch_up(cluster)]


def _cost(cluster: Cluster) -> Figure:
    topics = iter(f"cost-{number}" for number in range(100))

    def seconds_per_gigabyte(replicas: tuple[int, ...]) -> float:
        # A topic of its own each time. With one replica and with three, the log is written to pages that the machine
        # must first get.
        topic = next(topics)
        cluster.create(topic, replicas)
        before = cluster.cpu_seconds()
        c_client.produce(cluster.bootstrap, topic, RECORDS, RECORD_BYTES)
        return (cluster.cpu_seconds() - before) / (RECORDS * RECORD_BYTES) * 1e9

    pairs = interleave(COST_ROUNDS, lambda: seconds_per_gigabyte(EVERYWHERE), lambda: seconds_per_gigabyte(ALONE))
    name = "produce 1 KiB records, acks=all, 3 replicas: processor seconds of all brokers"
    return Figure(name, "1 replica", "s/GB", pairs, at_most=3.5)


def _bare_cost() -> Figure:
    """The same bytes without a broker: received, checked, written, and passed on to two that do the same."""
    chunk = bytes(1 << 20)
    count = RECORDS * RECORD_BYTES // len(chunk)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-"))

        def sink(name: str, *others: processes.Server) -> processes.Server:
            ports = [str(other.port) for other in others]
            return stack.enter_context(processes.baseline("sink", f"{directory}/{name}", *ports, pinned=False))

        followers = [sink("first"), sink("second")]
        everywhere = [sink("leader", *followers), *followers]
        alone = [sink("alone")]

        def seconds_per_gigabyte(pipes: list[processes.Server]) -> float:
            before = sum(pipe.cpu_seconds() for pipe in pipes)
            through_sink(pipes[0].port, chunk, count)
            return (sum(pipe.cpu_seconds() for pipe in pipes) - before) / (len(chunk) * count) * 1e9

        pairs = interleave(COST_ROUNDS, lambda: seconds_per_gigabyte(everywhere), lambda: seconds_per_gigabyte(alone))
    return Figure("the same through bare sockets and files", "1 file", "s/GB", pairs)


def _latency(cluster: Cluster) -> Figure:
    cluster.create("everywhere", EVERYWHERE)
    cluster.create("alone", ALONE)

    def median_us(topic: str) -> float:
        return c_client.median_latency(cluster.bootstrap, topic, PACED, RATE_PER_S) * 1e6

    pairs = interleave(ROUNDS, lambda: median_us("everywhere"), lambda: median_us("alone"))
    name = f"produce at {RATE_PER_S} records/s, acks=all, 3 replicas: p50 of the C client"
    return Figure(name, "1 replica", "µs", pairs, at_most=4)


def _catch_up(cluster: Cluster) -> Figure:
    """Broker 2 comes back with an empty disk, and copies what broker 1 has."""
    topic = "catch-up"
    cluster.create(topic, (1, 2))
    follower = cluster.processes.brokers[2]
    follower.stop()
    leader = f"127.0.0.1:{cluster.port(1)}"
    c_client.produce(leader, topic, CATCH_UP_RECORDS, RECORD_BYTES)
    size = cluster.log_bytes(1, topic)

    def copied() -> float:
        shutil.rmtree(cluster.partition_directory(2, topic))
        # The client gets along with the memory it has; what a follower writes shall not be measured by what it costs
        # to come by new pages.
        processes.touch_memory(size)
        follower.launch()
        wait_for(lambda: cluster.log_bytes(2, topic) > 0, WITHIN_S, "the follower has nothing")
        started, had = time.perf_counter(), cluster.log_bytes(2, topic)
        wait_for(lambda: cluster.log_bytes(2, topic) == size, WITHIN_S, "the follower did not catch up")
        seconds = time.perf_counter() - started
        follower.wait_until_ready()
        cluster.wait_for_isr(topic, 2)
        follower.stop()
        return (size - had) / seconds / 1e6

    def consumed() -> float:
        return size / c_client.consume(leader, topic, CATCH_UP_RECORDS) / 1e6

    pairs = interleave(CATCH_UP_ROUNDS, copied, consumed)
    return Figure("catch-up of a follower with 1 GiB", "consumed by the C client", "MB/s", pairs, at_least=0.5)
