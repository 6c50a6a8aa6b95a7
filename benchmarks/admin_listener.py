"""What the admin listener costs a broker while no one scrapes it, and what a scrape does to the event loop.

Two brokers, with the listener and without, get the same requests in turn. Where times are too noisy, the bytecodes of
requests and the calls of the data paths say the same: they are equal in every run.
"""

import gzip
import time
import urllib.request
from collections.abc import Callable, Iterator

from benchmarks import bytecodes, hops, processes
from benchmarks.figure import NO_BASELINE, Figure, interleave
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
    produce_frame,
)
from benchmarks.steps import COUNT, Steps, call, create_topics, in_broker
from ottla.broker.broker import Broker

ROUNDS = 21
REQUESTS = 4_000
WINDOW = 100
IDLE_S = 2.0
AT_MOST = 1.01
STEP_MS_MAX = 10
STEP_ROUNDS = 3
ANY_PORT = "127.0.0.1:0"
BASELINE = "without admin listener"
# What meets at a leader is not in the same order each time: a hundredth more or less. Its calls are counted exactly.
VARYING = "three brokers"
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": "0"}

Measured = dict[str, Callable[[], float]]


def figures() -> list[Figure]:
    return [*_bytecodes(), *_calls(), *_processor_time(), *_scrape()]


def _bytecodes() -> Iterator[Figure]:
    with_listener, without = bytecodes.measure(f"ottla.admin.listener={ANY_PORT}"), bytecodes.measure()
    for name, counts in with_listener.items():
        pairs = [(float(sum(counts.values())), float(sum(without[name].values())))]
        at_most = None if name.endswith(VARYING) else AT_MOST
        yield Figure(f"bytecodes of {name}, with admin listener", BASELINE, "", pairs, at_most=at_most)


def _calls() -> Iterator[Figure]:
    with_listener = hops.measure(ottla_admin_listener=ANY_PORT)
    for ours, theirs in zip(with_listener, hops.measure(), strict=True):
        pairs = [(float(ours.count), float(theirs.count))]
        yield Figure(f"calls of {ours.name} with admin listener", BASELINE, "calls", pairs, at_most=AT_MOST)


def _processor_time() -> Iterator[Figure]:
    processes.pin_client()
    with (
        processes.broker(**QUICK_GROUPS, ottla_admin_listener=ANY_PORT) as with_listener,
        processes.broker(**QUICK_GROUPS) as without,
    ):
        ours, theirs = _measured(with_listener), _measured(without)
        for name, measure in ours.items():
            pairs = interleave(ROUNDS, measure, theirs[name])
            yield Figure(f"{name} with admin listener: processor", BASELINE, "µs", pairs, at_most=AT_MOST)


def _measured(server: Server) -> Measured:
    """Microseconds of the server's processor, by what is sent to it."""
    client = RawClient(server.port)
    create_topic(client, "cost")
    member_id, generation = joined_member(client, "bench")
    client.pipeline(produce_frame("cost", batch(1, 100)), 100, 1)
    frames = {
        "Heartbeat": heartbeat_frame("bench", generation, member_id),
        "OffsetCommit": commit_frame("bench", generation, member_id, "cost", 1),
        "one-record Produce": produce_frame("cost", batch(1, 100)),
        "Fetch of 4 KiB": fetch_frame("cost", 0, 4096),
    }

    def sending(frame: bytes, window: int) -> Callable[[], float]:
        return lambda: _cost(server, lambda: client.pipeline(frame, REQUESTS, window)) / REQUESTS

    found = {f"pipelined {name}": sending(frame, WINDOW) for name, frame in frames.items()}
    found |= {f"unpipelined {name}": sending(frame, 1) for name, frame in frames.items()}
    return found | {f"{IDLE_S:g} s without requests": lambda: _cost(server, lambda: time.sleep(IDLE_S))}


def _cost(server: Server, action: Callable[[], None]) -> float:
    before = server.cpu_seconds()
    action()
    return (server.cpu_seconds() - before) * 1e6


def _scrape() -> Iterator[Figure]:
    for path in ("/metrics", "/metrics/kafka"):
        rounds = [_steps_of_scrape(path) for _ in range(STEP_ROUNDS)]
        name = f"longest loop step while {path} of {COUNT:,} partitions and {COUNT:,} groups is scraped"
        processor = [(steps.processor_ms, 1.0) for steps in rounds]
        passed = [(steps.passed_ms, 1.0) for steps in rounds]
        yield Figure(f"{name}, processor", NO_BASELINE, "ms", processor, at_most=STEP_MS_MAX)
        yield Figure(f"{name}, time passed", NO_BASELINE, "ms", passed)


def _steps_of_scrape(path: str) -> Steps:
    names = [f"thousand-{number}" for number in range(COUNT)]

    def commit(client: RawClient) -> None:
        find_coordinator(client, "group-0")
        for number, name in enumerate(names):
            client.pipeline(commit_frame(f"group-{number}", -1, "", name, 0), 1, 1)

    async def story(broker: Broker, steps: Steps) -> None:
        await create_topics(broker, names, {})
        await call(broker, commit)
        # The first scrape imports and compiles.
        await call(broker, lambda _: _read(f"{broker.admin_url}{path}"))
        with steps.of_loop():
            for _ in range(STEP_ROUNDS):
                await call(broker, lambda _: _read(f"{broker.admin_url}{path}"))

    settings = {"ottla.admin.listener": ANY_PORT, "ottla.events.sample.interval.ms": "1000"}
    return in_broker(story, settings)


def _read(url: str) -> None:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as response:
        text = gzip.decompress(response.read())
    assert text.count(b"\n") > COUNT, "a page with less than a line for each partition"
