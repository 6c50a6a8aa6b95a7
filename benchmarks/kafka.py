"""One broker of Ottla beside one of Apache Kafka: same topics, same C client, same machine, in turn.

Nothing is pinned here: Apache Kafka works with many threads, and each has the machine as its user would have it.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import c_client, processes
from benchmarks.apache_kafka import ApacheKafka
from benchmarks.figure import Figure, interleave
from benchmarks.processes import Server
from benchmarks.raw_client import batch, create_topic, produced, when_serving

ROUNDS = 5
START_ROUNDS = 3
# Of records of 1 KiB more than a gigabyte in all. A virtual machine needs a round or two that do not count: until it
# has compiled what it runs, it interprets.
RECORDS = {1024: 250_000, 100: 800_000}
WARM_UP_ROUNDS = 2
BASELINE = "Apache Kafka 4.1"


def figures() -> list[Figure]:
    processes.unpin()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        ours, theirs = Ottla(directory), ApacheKafka(directory)
        return [_start(ours, theirs), *_speed(ours, theirs)]


class Ottla:
    """As ApacheKafka: a data directory, a port, and what starts a broker on them."""

    def __init__(self, directory: str) -> None:
        self.port = processes.free_port()
        self._directory = Path(directory) / "ottla"

    @contextmanager
    def running(self) -> Iterator[Server]:
        command = processes.broker_command(str(self._directory), "--listen", f"127.0.0.1:{self.port}")
        with processes.started(command) as process:
            yield Server(process, self.port)


def _start(ours: Ottla, theirs: ApacheKafka) -> Figure:
    def start_of(node: Ottla | ApacheKafka) -> Callable[[], float]:
        with node.running():
            create_topic(when_serving(node.port), "start")

        return lambda: _seconds_to_produce(node)

    pairs = interleave(START_ROUNDS, start_of(ours), start_of(theirs))
    return Figure("start: exec to first successful produce", BASELINE, "s", pairs, at_most=1)


def _seconds_to_produce(node: Ottla | ApacheKafka) -> float:
    started = time.perf_counter()
    with node.running():
        client = when_serving(node.port)
        while not produced(client, "start", batch(1, 100)):
            time.sleep(0.005)
        seconds = time.perf_counter() - started
        client.close()
    return seconds


@dataclass(frozen=True)
class Cost:
    """Of some bytes that went through a broker."""

    megabytes_per_second: float
    processor_seconds_per_gigabyte: float


def _speed(ours: Ottla, theirs: ApacheKafka) -> list[Figure]:
    with ours.running() as our_server, theirs.running() as their_server:
        sides = [Side(our_server), Side(their_server)]
        figures = [figure for record_bytes in RECORDS for figure in _through(sides, record_bytes)]
        memory = [(our_server.resident_bytes() / 2**20, their_server.resident_bytes() / 2**20)]
    return [*figures, Figure("memory after the run", BASELINE, "MiB", memory, at_most=1)]


class Side:
    """A broker under load of the C client, and what that costs it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._bootstrap = f"127.0.0.1:{server.port}"
        self._admin = when_serving(server.port)

    def produce(self, topic: str, records: int, record_bytes: int) -> Cost:
        create_topic(self._admin, topic)
        return self._cost(
            records, record_bytes, lambda: c_client.produce(self._bootstrap, topic, records, record_bytes)
        )

    def consume(self, topic: str, records: int, record_bytes: int) -> Cost:
        return self._cost(records, record_bytes, lambda: c_client.consume(self._bootstrap, topic, records))

    def _cost(self, records: int, record_bytes: int, seconds_of: Callable[[], float]) -> Cost:
        size = records * record_bytes
        before = self._server.cpu_seconds()
        seconds = seconds_of()
        spent = self._server.cpu_seconds() - before
        return Cost(size / seconds / 1e6, spent / size * 1e9)


def _through(sides: Sequence[Side], record_bytes: int) -> list[Figure]:
    produced, consumed = [], []
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        load = (f"bytes-{record_bytes}-{number}", RECORDS[record_bytes], record_bytes)
        produced.append([side.produce(*load) for side in sides])
        consumed.append([side.consume(*load) for side in sides])
    return [
        *_figures(f"produce {record_bytes} B records, acks=all", produced[WARM_UP_ROUNDS:]),
        *_figures(f"consume {record_bytes} B records", consumed[WARM_UP_ROUNDS:]),
    ]


def _figures(name: str, rounds: list[list[Cost]]) -> list[Figure]:
    speed = [(ours.megabytes_per_second, theirs.megabytes_per_second) for ours, theirs in rounds]
    cost = [(ours.processor_seconds_per_gigabyte, theirs.processor_seconds_per_gigabyte) for ours, theirs in rounds]
    return [
        Figure(name, BASELINE, "MB/s", speed, at_least=1),
        Figure(f"{name}, processor seconds of the broker", BASELINE, "s/GB", cost, at_most=1),
    ]
