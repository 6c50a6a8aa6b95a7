"""What it costs a broker to publish its events: processor time with `ottla.events.enable=true` beside that without.

Two brokers get the same requests in turn. The first load is what a broker does most of the time; the second nothing but
rebalances, with an event for every step: groups of one member that joins, gets its assignment and leaves, one after the
other without a pause.
"""

import itertools
import time
from collections.abc import Callable, Sequence

from benchmarks import processes
from benchmarks.figure import Figure, interleave
from benchmarks.processes import Server
from benchmarks.raw_client import (
    RawClient,
    batch,
    commit_frame,
    create_topic,
    fetch_frame,
    find_coordinator,
    heartbeat_frame,
    joined_member,
    leave,
    produce_frame,
)

ROUNDS = 21
REQUESTS = 2_000
WINDOW = 100
GROUPS = 150
# By then every event is in the log.
WRITTEN_WITHIN_S = 0.5
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": "0"}


def figures() -> list[Figure]:
    processes.pin_client()
    with (
        processes.broker(**QUICK_GROUPS, ottla_events_enable="true") as with_events,
        processes.broker(**QUICK_GROUPS) as without_events,
    ):
        steady = interleave(ROUNDS, _steady(with_events), _steady(without_events))
        storm = interleave(ROUNDS, _storm(with_events), _storm(without_events))
    baseline = "the same without events"
    return [
        Figure("heartbeats, commits, produce, fetch with events: processor", baseline, "s", steady, at_most=1.03),
        Figure("nothing but rebalances with events: processor per rebalance", baseline, "µs", storm),
    ]


def _steady(server: Server) -> Callable[[], float]:
    client = RawClient(server.port)
    create_topic(client, "steady")
    member_id, generation = joined_member(client, "bench")
    client.pipeline(produce_frame("steady", batch(1, 100)), 100, 1)
    frames = [
        heartbeat_frame("bench", generation, member_id),
        commit_frame("bench", generation, member_id, "steady", 1),
        produce_frame("steady", batch(1, 100)),
        fetch_frame("steady", 0, 4096),
    ]
    return lambda: _cost(server, lambda: _send_all(client, frames))


def _send_all(client: RawClient, frames: Sequence[bytes]) -> None:
    for frame in frames:
        client.pipeline(frame, REQUESTS, WINDOW)


def _storm(server: Server) -> Callable[[], float]:
    client = RawClient(server.port)
    find_coordinator(client, "storm")
    numbers = itertools.count()

    def rebalance() -> None:
        for number in itertools.islice(numbers, GROUPS):
            group = f"storm-{number}"
            member_id, _ = joined_member(client, group)
            leave(client, group, member_id)

    return lambda: _cost(server, rebalance) / GROUPS * 1e6


def _cost(server: Server, action: Callable[[], None]) -> float:
    before = server.cpu_seconds()
    action()
    time.sleep(WRITTEN_WITHIN_S)
    return server.cpu_seconds() - before
