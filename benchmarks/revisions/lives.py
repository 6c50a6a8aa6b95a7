"""What a broker costs beside its requests, of either tree: its start, its memory, its idleness, and a group that a
thousand members join at once."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, product

from benchmarks import raw_client
from benchmarks.footprint import bytes_per_connection
from benchmarks.groups import GROUP, MEMBERS, Fleet
from benchmarks.processes import Server
from benchmarks.raw_client import RawClient
from benchmarks.revisions.requests import EVERYWHERE, QUICK_GROUPS
from benchmarks.revisions.trees import Tree
from benchmarks.revisions.turns import Measured, Pair, Row, Rows

# Ten times a second, twice a second, every 2, 5 and 10 s something is due: a whole number of times in each window,
# whenever it begins.
IDLE_S = 10.0
# Of each tree and size.
IDLE_TOGETHER = 4
PARTITIONS = 100
# A broker is idle when it takes no more of a core than that for so long: what its start puts off by half a second is
# then done.
IDLE_SHARE_MAX = 0.02
WINDOW_S = 1.0
FACTS_COUNTED_S = 1.25
TOPIC = "t"


@contextmanager
def starts(tree: Tree) -> Iterator[Measured]:
    """With a data directory of one topic."""
    frame = raw_client.produce_frame(TOPIC, raw_client.batch(1, 100))
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        with tree.broker_with(directory) as server:
            raw_client.create_topic(RawClient(server.port), TOPIC)

        def started(measure: Callable[[Server, float], float]) -> Callable[[], float]:
            def milliseconds() -> float:
                began = time.perf_counter()
                with tree.broker_with(directory) as server:
                    return measure(server, began) * 1e3

            return milliseconds

        def first_produce(server: Server, began: float) -> float:
            client = RawClient(server.port)
            client.pipeline(frame, 1, 1)
            passed_s = time.perf_counter() - began
            client.close()
            return passed_s

        yield {
            Row("start: exec to ready, processor", "ms"): started(lambda server, _: server.cpu_seconds()),
            Row("start: exec to first successful produce, time passed", "ms"): started(first_produce),
        }


@contextmanager
def memory(tree: Tree) -> Iterator[Measured]:
    """Each can be measured once."""
    with tree.broker() as server:
        client = RawClient(server.port)
        raw_client.create_topic(client, TOPIC)
        client.pipeline(raw_client.produce_frame(TOPIC, raw_client.batch(1, 100)), 1, 1)
        _wait_until_idle(server)
        yield {
            Row("memory of an idle broker", "MiB"): lambda: server.resident_bytes() / 2**20,
            Row("memory per idle connection", "KiB"): lambda: bytes_per_connection(server) / 1024,
        }
        client.close()


@contextmanager
def joining_members(tree: Tree) -> Iterator[Measured]:
    """Each time those of another group; with what follows their joining: facts about groups are counted later."""
    numbers = count()
    with tree.broker(*QUICK_GROUPS) as server:
        raw_client.find_coordinator(RawClient(server.port), GROUP)

        def microseconds() -> float:
            fleet = Fleet(server.port, f"{GROUP}-{next(numbers)}")
            before = server.cpu_seconds()
            fleet.join_all()
            time.sleep(FACTS_COUNTED_S)
            passed_s = server.cpu_seconds() - before
            fleet.leave()
            return passed_s / MEMBERS * 1e6

        yield {Row(f"{MEMBERS:,} members join one group: processor per member", "µs"): microseconds}


def idle(this: Tree, older: Tree, rounds: int) -> Rows:
    """Both trees' brokers in the same windows of time: they cost so little that one timer more or less shows. Several
    of each are started again for each window, in turns: which of their timers coincide later is decided at the start,
    and makes a fifth of a difference between brokers of one tree."""
    sizes = {1: "a broker", EVERYWHERE: "three brokers"}
    rows: Rows = {
        Row(f"{name} with {PARTITIONS} idle partitions: processor per second", "ms"): [] for name in sizes.values()
    }
    for _ in range(rounds):
        with ExitStack() as stack:
            servers: dict[int, tuple[list[Server], list[Server]]] = {size: ([], []) for size in sizes}
            for turn, (brokers, sides) in product(range(IDLE_TOGETHER), servers.items()):
                in_turn = list(zip((this, older), sides, strict=True))
                # What is due 30 s after the start lies in the window of those that were started first.
                for tree, side in in_turn if turn % 2 else reversed(in_turn):
                    side.append(stack.enter_context(_idle_brokers(tree, brokers)))
            before = [[_spent_s(side) for side in sides] for sides in servers.values()]
            time.sleep(IDLE_S)
            for pairs, sides, earlier in zip(rows.values(), servers.values(), before, strict=True):
                spent = [_spent_s(side) - then for side, then in zip(sides, earlier, strict=True)]
                pairs.append(Pair(*(seconds / IDLE_TOGETHER / IDLE_S * 1e3 for seconds in spent)))
    return rows


def _spent_s(servers: Iterable[Server]) -> float:
    return sum(server.cpu_seconds() for server in servers)


@contextmanager
def _idle_brokers(tree: Tree, brokers: int) -> Iterator[Server]:
    with tree.broker("--brokers", str(brokers), pinned=False) as server:
        client = RawClient(server.port)
        while len(raw_client.described(client)[0]) < brokers:
            pass
        raw_client.create_topic(client, TOPIC, PARTITIONS, replication_factor=brokers)
        _wait_until_idle(server)
        yield server
        client.close()


def _wait_until_idle(server: Server) -> None:
    while _share_of_a_core(server, WINDOW_S) > IDLE_SHARE_MAX:
        pass


def _share_of_a_core(server: Server, seconds: float) -> float:
    before = server.cpu_seconds()
    time.sleep(seconds)
    return (server.cpu_seconds() - before) / seconds
