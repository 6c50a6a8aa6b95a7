"""What the admin listener costs a broker while no one scrapes it, and what a scrape does to the event loop.

Two brokers, with the listener and without, get the same requests in turn. Where times are too noisy, the bytecodes of
requests and the calls of the data paths say the same: they are equal in every run.
"""

import asyncio
import gzip
import tempfile
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
START_MS_MAX = 5
STEP_MS_MAX = 10
PAGE_MS_MAX = 250
SERIES = 20_000
TOPICS_OF_A_GROUP = 5
STEP_ROUNDS = 3
ANY_PORT = "127.0.0.1:0"
BASELINE = "without admin listener"
# What meets at a leader is not in the same order each time: a hundredth more or less. Its calls are counted exactly.
VARYING = "three brokers"
QUICK_GROUPS = {"group_initial_rebalance_delay_ms": "0"}

Measured = dict[str, Callable[[], float]]


def figures() -> list[Figure]:
    return [*_bytecodes(), *_calls(), *_processor_time(), _start(), *_scrape(), *_whole_page()]


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


def _start() -> Figure:
    """What it adds to the time from exec to the line that says the broker is ready."""
    pairs = interleave(ROUNDS, lambda: _ready_ms(f"ottla.admin.listener={ANY_PORT}"), _ready_ms)
    more = [(ours - theirs, 1.0) for ours, theirs in pairs]
    return Figure("start: more until ready, with admin listener", NO_BASELINE, "ms", more, at_most=START_MS_MAX)


def _ready_ms(*settings: str) -> float:
    options = [word for setting in settings for word in ("--set", setting)]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        began = time.perf_counter()
        with processes.running(processes.broker_command(directory, *options)):
            return (time.perf_counter() - began) * 1e3


def _scrape() -> Iterator[Figure]:
    for path in ("/metrics", "/metrics/kafka"):
        rounds = [_steps_of_scrape(path) for _ in range(STEP_ROUNDS)]
        name = f"longest loop step while {path} of {COUNT:,} partitions and {COUNT:,} groups is scraped"
        processor = [(steps.processor_ms, 1.0) for steps in rounds]
        passed = [(steps.passed_ms, 1.0) for steps in rounds]
        yield Figure(f"{name}, processor", NO_BASELINE, "ms", processor, at_most=STEP_MS_MAX)
        yield Figure(f"{name}, time passed", NO_BASELINE, "ms", passed)


def _steps_of_scrape(path: str) -> Steps:
    async def story(broker: Broker, steps: Steps) -> None:
        await _fill(broker, topics_of_a_group=1)
        # The first scrape imports and compiles.
        await asyncio.to_thread(_read, f"{broker.admin_url}{path}")
        with steps.of_loop():
            for _ in range(STEP_ROUNDS):
                await asyncio.to_thread(_read, f"{broker.admin_url}{path}")

    settings = {"ottla.admin.listener": ANY_PORT, "ottla.events.sample.interval.ms": "1000"}
    return in_broker(story, settings)


def _whole_page() -> list[Figure]:
    """As many series as a broker shows at most: a thousand topics, and five thousand lags."""
    paths = ("/metrics", "/metrics/kafka")
    passed: dict[str, list[tuple[float, float]]] = {path: [] for path in paths}

    async def story(broker: Broker, steps: Steps) -> None:
        await _fill(broker, TOPICS_OF_A_GROUP)
        for _ in range(STEP_ROUNDS + 1):
            for path in paths:
                began = time.perf_counter()
                text = await asyncio.to_thread(_read, f"{broker.admin_url}{path}")
                passed[path].append(((time.perf_counter() - began) * 1e3, 1.0))
                series = sum(not line.startswith("#") for line in text.splitlines())
                assert series > SERIES, f"{path} has {series} series"

    in_broker(story, {"ottla.admin.listener": ANY_PORT, "ottla.events.sample.interval.ms": "1000"})
    return [
        Figure(f"{path} of {SERIES:,} series, read", NO_BASELINE, "ms", pairs[1:], at_most=PAGE_MS_MAX)
        for path, pairs in passed.items()
    ]


async def _fill(broker: Broker, topics_of_a_group: int) -> None:
    names = [f"thousand-{number}" for number in range(COUNT)]

    def commit(client: RawClient) -> None:
        find_coordinator(client, "group-0")
        for number in range(COUNT):
            for of_group in range(topics_of_a_group):
                frame = commit_frame(f"group-{number}", -1, "", names[(number + of_group) % COUNT], 0)
                client.pipeline(frame, 1, 1)

    await create_topics(broker, names, {})
    await call(broker, commit)


def _read(url: str) -> str:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as response:
        text = gzip.decompress(response.read()).decode()
    assert text.count("\n") > COUNT, "a page with less than a line for each partition"
    return text
