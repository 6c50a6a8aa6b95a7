"""Two hundred tests, each with its topic and group, by Ottla's fixtures and beside Apache Kafka that is started once.

The tests are those of `tests/kit/suite`, with the same clients and the same settings of clients. Ottla's broker is in
the process of the tests and is emptied after each; at Apache Kafka each test has names of its own, and nothing is
emptied. Counted is from the start, of Apache Kafka or of pytest, until pytest has ended. Clients wait by themselves
too: each producer and consumer of kafka-python a tenth of a second, an idempotent producer of librdkafka half a second.

And the same at Ottla's fixtures with a capture of each test, which is removed when the test has passed, and without.
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.figure import Figure, NotMeasured, interleave
from benchmarks.raw_client import when_serving
from tests.kit.suite.running import FOR_ANY_BROKER, run_suite

TESTS = 200
# What the Kafka modules of Testcontainers set: groups do not wait for further members.
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
SAMPLE = int(os.environ.get("OTTLA_SAMPLE", "40"))
"""Of these tests, at Kafka's defaults: each group waits three seconds for its members there. All take nine minutes."""
CAPTURED = 40
CAPTURED_ROUNDS = 5
OURS = ("--ottla-isolation", "reset")


def figures() -> list[Figure]:
    return [_captured(), *_beside_kafka()]


def _captured() -> Figure:
    def seconds(*options: str) -> float:
        return _passed(CAPTURED, *OURS, "--sample", str(CAPTURED), *options)

    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        pairs = interleave(CAPTURED_ROUNDS, lambda: seconds("--ottla-artifacts", directory), seconds)
    return Figure(f"{CAPTURED} tests, each with a capture", "the same without", "s", pairs, at_most=1.05)


def _beside_kafka() -> list[Figure]:
    """None where there is no Apache Kafka."""
    try:
        some = _pair({}, SAMPLE, "--sample", str(SAMPLE))
        every = _pair(QUICK, TESTS)
    except NotMeasured as reason:
        print(f"the suite of tests is not measured: {reason}", file=sys.stderr)
        return []
    name = "tests, each with its topic and group"
    return [
        Figure(f"{SAMPLE} {name}", "Apache Kafka 4.1, started once", "s", [some], at_most=0.2),
        Figure(f"{TESTS} {name}", "the same as Testcontainers configures it", "s", [every]),
    ]


def _pair(properties: Mapping[str, str], tests: int, *options: str) -> tuple[float, float]:
    """Seconds that so many tests take here and there."""
    ours = _passed(tests, *OURS, *options)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        node = ApacheKafka(directory, properties)
        began = time.perf_counter()
        with node.running() as server:
            when_serving(server.port).close()
            started = time.perf_counter() - began
            theirs = _passed(tests, "--at", f"127.0.0.1:{server.port}", *options)
    return ours, started + theirs


def _passed(tests: int, *options: str) -> float:
    run = run_suite(*options, files=FOR_ANY_BROKER)
    assert len(run.results) == tests, run.output[-4000:]
    assert run.failed == [], run.output[-4000:]
    return run.seconds
