"""What small requests cost a broker in processor time, of either tree."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks import raw_client
from benchmarks.processes import Server
from benchmarks.raw_client import RawClient
from benchmarks.revisions.trees import Tree
from benchmarks.revisions.turns import Measured, Row

# How many requests there are in a turn, and how many of them are on their way at a time. Turns are short, so that what
# else the machine does meets both trees.
WAYS = (("pipelined", 2_000, 100), ("unpipelined", 500, 1))
REBALANCES = 100
RATE_PER_S = 2_000
PACED = 500
# Longer than all turns of a start: a member that has expired would cost less.
SESSION_TIMEOUT_MS = 1_800_000
TOPIC, GROUP, REBALANCED_GROUP = "small", "bench", "rebalanced"
QUICK_GROUPS = ("--set", "group.initial.rebalance.delay.ms=0")
EVERYWHERE = 3


@contextmanager
def of_one_broker(tree: Tree) -> Iterator[Measured]:
    with tree.broker(*QUICK_GROUPS) as server:
        client = RawClient(server.port)
        raw_client.create_topic(client, TOPIC)
        measured: Measured = {}
        for name, frame in _frames(client).items():
            for way, count, window in WAYS:
                measured[Row(f"{way} {name}, processor", "µs")] = raw_client.processor_us(
                    server, client, frame, count, window
                )
        produce = raw_client.produce_frame(TOPIC, raw_client.batch(1, 100))
        rebalances = Row("JoinGroup and SyncGroup of one member, processor", "µs")
        latency = Row(f"Produce at {RATE_PER_S:,} requests/s, p50 of the time passed", "µs")
        yield measured | {
            rebalances: _cost_of_rebalances(server, client),
            latency: lambda: statistics.median(client.latencies_us(produce, PACED, RATE_PER_S)),
            Row("memory after these requests", "MiB"): lambda: server.resident_bytes() / 2**20,
        }
        client.close()


@contextmanager
def of_three_brokers(tree: Tree) -> Iterator[Measured]:
    """In one process, whose processor time is that of all. What is sent is acknowledged by all three."""
    with tree.broker("--brokers", str(EVERYWHERE)) as server:
        client = raw_client.replicated_topic(RawClient(server.port), TOPIC, EVERYWHERE)
        frame = raw_client.produce_frame(TOPIC, raw_client.batch(1, 100))
        yield {
            Row(f"{way} one-record Produce, acks=all, three brokers, processor", "µs"): raw_client.processor_us(
                server, client, frame, count, window
            )
            for way, count, window in WAYS
        }
        client.close()


def _frames(client: RawClient) -> dict[str, bytes]:
    member_id, generation = raw_client.joined_member(client, GROUP, session_timeout_ms=SESSION_TIMEOUT_MS)
    return {
        "Heartbeat": raw_client.heartbeat_frame(GROUP, generation, member_id),
        "one-record Produce": raw_client.produce_frame(TOPIC, raw_client.batch(1, 100)),
        "Fetch of one record": raw_client.fetch_frame(TOPIC, 0, 1),
        "OffsetCommit": raw_client.commit_frame(GROUP, generation, member_id, TOPIC, 1),
        "OffsetFetch": raw_client.offset_fetch_frame(GROUP, TOPIC),
        "ListOffsets": raw_client.list_offsets_frame(TOPIC),
        "Metadata of one topic": raw_client.metadata_frame(TOPIC),
        "FindCoordinator": raw_client.find_coordinator_frame(GROUP),
    }


def _cost_of_rebalances(server: Server, client: RawClient) -> Callable[[], float]:
    member_id, _ = raw_client.joined_member(client, REBALANCED_GROUP, session_timeout_ms=SESSION_TIMEOUT_MS)
    join = raw_client.join_request(REBALANCED_GROUP, member_id, session_timeout_ms=SESSION_TIMEOUT_MS)

    def measure() -> float:
        before = server.cpu_seconds()
        for _ in range(REBALANCES):
            raw_client.rebalanced(client, join)
        return (server.cpu_seconds() - before) / REBALANCES * 1e6

    return measure
