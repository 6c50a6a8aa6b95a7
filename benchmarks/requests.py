"""What a small request costs: requests per second, processor time per request, latency at a steady rate."""

import statistics
import time
from collections.abc import Callable

from benchmarks import processes
from benchmarks.figure import Figure, interleave
from benchmarks.processes import Server
from benchmarks.raw_client import (
    RawClient,
    batch,
    create_topic,
    heartbeat_frame,
    joined_member,
    processor_us,
    produce_frame,
)

ROUNDS = 7
UNPIPELINED = 8_000
PIPELINED = 40_000
WINDOW = 100
RATE_PER_S = 2_000
PACED = 4_000
ECHO_FRAME = (81).to_bytes(4) + bytes(81)
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": "0"}


def figures() -> list[Figure]:
    processes.pin_client()
    with processes.broker(**QUICK_GROUPS) as ours, processes.baseline("echo") as echo:
        client, baseline = RawClient(ours.port), RawClient(echo.port)
        create_topic(client, "small")
        member_id, generation = joined_member(client, "bench")
        heartbeat = heartbeat_frame("bench", generation, member_id)
        produce = produce_frame("small", batch(1, 100))
        return [
            *_unpipelined(client, baseline, heartbeat, produce),
            *_pipelined(ours, echo, client, baseline, heartbeat, produce),
            *_latency(client, baseline, produce),
        ]


def _unpipelined(client: RawClient, baseline: RawClient, heartbeat: bytes, produce: bytes) -> list[Figure]:
    def rate(connection: RawClient, frame: bytes) -> Callable[[], float]:
        return lambda: UNPIPELINED / _seconds(lambda: connection.pipeline(frame, UNPIPELINED, 1)) / 1e3

    echoed = rate(baseline, ECHO_FRAME)
    beats = interleave(ROUNDS, rate(client, heartbeat), echoed)
    produced = interleave(ROUNDS, rate(client, produce), echoed)
    return [
        Figure("unpipelined Heartbeat, one connection", "uvloop echo", "k/s", beats, at_least=0.80),
        Figure("unpipelined one-record Produce, one connection", "uvloop echo", "k/s", produced, at_least=0.65),
    ]


def _pipelined(
    ours: Server, echo: Server, client: RawClient, baseline: RawClient, heartbeat: bytes, produce: bytes
) -> list[Figure]:
    echoed = processor_us(echo, baseline, ECHO_FRAME, UNPIPELINED, 1)
    beats = interleave(ROUNDS, processor_us(ours, client, heartbeat, PIPELINED, WINDOW), echoed)
    produced = interleave(ROUNDS, processor_us(ours, client, produce, PIPELINED, WINDOW), echoed)
    baseline_name = "uvloop echo, unpipelined"
    return [
        Figure("pipelined Heartbeat, processor per request", baseline_name, "µs", beats, at_most=0.30),
        Figure("pipelined one-record Produce, processor per request", baseline_name, "µs", produced, at_most=0.80),
    ]


def _latency(client: RawClient, baseline: RawClient, produce: bytes) -> list[Figure]:
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for _ in range(ROUNDS):
        ours.append(client.latencies_us(produce, PACED, RATE_PER_S))
        theirs.append(baseline.latencies_us(ECHO_FRAME, PACED, RATE_PER_S))
    name = f"produce at {RATE_PER_S:,} requests/s"

    def pairs(percentile: int) -> list[tuple[float, float]]:
        return [(_percentile(a, percentile), _percentile(b, percentile)) for a, b in zip(ours, theirs, strict=True)][1:]

    return [
        Figure(f"{name}, p50", "uvloop echo", "µs", pairs(50), at_most=1.6),
        Figure(f"{name}, p99", "uvloop echo", "µs", pairs(99), at_most=2.5),
    ]


def _percentile(values: list[float], percentile: int) -> float:
    return statistics.quantiles(values, n=100)[percentile - 1]


def _seconds(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
