"""What else a test can start instead of a Kafka cluster: seconds to its first record, memory after it.

Each is started as its user would: Apache Kafka with its own scripts' settings, kfake as a Go program around its library
(`benchmarks/kfake`, built here), librdkafka's mock cluster by a confluent-kafka producer, whose process holds both.
What this machine cannot build or start is left out.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.apache_kafka import ApacheKafka
from benchmarks.figure import Figure, NotMeasured
from benchmarks.kafka import Ottla
from benchmarks.processes import Server
from benchmarks.raw_client import batch, create_topic, produced, when_serving

ROUNDS = 5
TOPIC = "start"
KFAKE = Path(__file__).parent / "kfake"
Sample = tuple[float, float]
"""Seconds from exec to the first record acknowledged, MiB resident then."""


def figures() -> list[Figure]:
    processes.unpin()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        ours = _sampler(Ottla(directory))
        others = _others(directory)
        rounds = [(ours(), *(sample() for sample in others.values())) for _ in range(ROUNDS + 1)][1:]
    figures = []
    for place, name in enumerate(others, start=1):
        for what, unit, part in (("start to first record", "s", 0), ("memory after it", "MiB", 1)):
            pairs = [(samples[0][part], samples[place][part]) for samples in rounds]
            figures.append(Figure(what, name, unit, pairs))
    return figures


def _others(directory: str) -> dict[str, Callable[[], Sample]]:
    makers: dict[str, Callable[[], Callable[[], Sample]]] = {
        "Apache Kafka 4.1": lambda: _sampler(ApacheKafka(directory)),
        "kfake": lambda: _sampler(Kfake(directory)),
        "librdkafka's mock": lambda: _librdkafka_mock,
    }
    others = {}
    for name, make in makers.items():
        try:
            others[name] = make()
        except NotMeasured as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    return others


def _sampler(node: "Ottla | ApacheKafka | Kfake") -> Callable[[], Sample]:
    with node.running() as server:
        client = when_serving(server.port)
        if not isinstance(node, Kfake):  # It keeps nothing: its program makes the topic at each start.
            create_topic(client, TOPIC)

    def sample() -> Sample:
        started = time.perf_counter()
        with node.running() as server:
            client = when_serving(server.port)
            while not produced(client, TOPIC, batch(1, 100)):
                time.sleep(0.005)
            seconds = time.perf_counter() - started
            resident = server.resident_bytes() / 2**20
            client.close()
        return seconds, resident

    return sample


class Kfake:
    """As ApacheKafka. Raises NotMeasured where Go cannot build it."""

    def __init__(self, directory: str) -> None:
        self._program = Path(directory) / "kfake-broker"
        try:
            done = subprocess.run(["go", "build", "-o", self._program, "."], cwd=KFAKE, capture_output=True, text=True)
        except FileNotFoundError:
            raise NotMeasured("go is not installed") from None
        if done.returncode != 0:
            raise NotMeasured(f"go could not build it: {done.stderr[-300:]}")

    @contextmanager
    def running(self) -> Iterator[Server]:
        with processes.running([str(self._program)], pinned=False) as server:
            yield server


def _librdkafka_mock() -> Sample:
    """In a process of its own, which imports the client too: there is no other way to the mock from Python."""
    started = time.perf_counter()
    with processes.started([sys.executable, "-m", "benchmarks.alternatives"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "produced\n"
        return time.perf_counter() - started, Server(process, 0).resident_bytes() / 2**20


def _produce_to_mock() -> None:
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": 1, "acks": "all", "linger.ms": 0})
    producer.produce(TOPIC, bytes(100))
    assert producer.flush(60) == 0, "the record was not acknowledged"
    print("produced", flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    _produce_to_mock()
