"""What three brokers cost that have partitions and nothing to do."""

import time
from itertools import pairwise

from benchmarks import processes
from benchmarks.cluster import Cluster, three_brokers
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.raw_client import create_topic

STEPS = (250, 500, 1_000)
STARTED_WITHIN_S = 3
WINDOW_S = 10


def figures() -> list[Figure]:
    processes.unpin()
    with three_brokers() as cluster:
        steps = pairwise((0, *STEPS))
        percent = {partitions: _percent_of_a_core(cluster, fewer, partitions) for fewer, partitions in steps}
    few, some, many = STEPS
    name = f"{many:,} partitions × 3 replicas, idle: processor time of all brokers"
    growth = (f"{few} partitions", percent[few], many / few), (f"{some} partitions", percent[some], many / some)
    return [
        Figure(name, NO_BASELINE, "% of a core", [(percent[many], 1.0)], at_most=10),
        *(
            Figure(name, baseline, "%", [(percent[many], theirs)], at_most=linear)
            for baseline, theirs, linear in growth
        ),
    ]


def _percent_of_a_core(cluster: Cluster, fewer: int, partitions: int) -> float:
    """Of brokers that have `fewer` partitions and get the rest."""
    topic = f"up-to-{partitions}"
    create_topic(cluster.admin, topic, partitions - fewer, replication_factor=3)
    cluster.wait_for_isr(topic, 3)
    # What follows the creation of partitions, such as the first checkpoints, is not idleness.
    time.sleep(STARTED_WITHIN_S)
    before = cluster.cpu_seconds()
    time.sleep(WINDOW_S)
    return (cluster.cpu_seconds() - before) / WINDOW_S * 100
