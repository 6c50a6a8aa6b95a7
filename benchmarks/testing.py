"""The testing kit: what it costs a suite of tests, `python -m benchmarks testing`.

Limits in milliseconds are for a quiet machine of two processors; ratios have their baselines in the same run.
"""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import suite_of_tests
from benchmarks.figure import NO_BASELINE, Figure, interleave
from benchmarks.raw_client import RawClient, batch, batch_of_size, produce_frame
from ottla.protocol.records.record import Record, build_batch
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed

ROUNDS = 7
COLLECTIONS = 30
RESETS = 300
TOPICS_AT_ONCE = 20
PARTITIONS = 100
RESTORES = 60
LARGE_PARTITIONS = 50
EXAMPLES = 200
RULES = 20
PRODUCES = 20_000
NOTED_PRODUCES = 3_000
NOTED_ROUNDS = 15
JUDGED = 1_000
# What the kit notes of: records of a kilobyte in a request, how many requests are unanswered at a time, and how many
# there are. The first is what `make bench ARGS=bulk` sends.
NOTED: Final = (
    ("1 KiB records in batches of a mebibyte", batch_of_size(1 << 20, 1024), 5, 32),
    ("1 KB, each waits for its answer", batch(1, 1000), 1, NOTED_PRODUCES),
    ("1 KB, pipelined", batch(1, 1000), 100, NOTED_PRODUCES),
    ("16 KB, pipelined", batch(16, 1000), 100, NOTED_PRODUCES),
)
# The disk of the machine is not what a capture costs.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
# From the set-up of a session's first fixture to a record that was written and read by its handle.
FIRST_TEST: Final = """
import time
from pathlib import Path
import pytest

@pytest.fixture
def began():
    return time.perf_counter()

def test_first_record(began, kafka):
    kafka.produce("orders", [b"book"])
    assert len(kafka.records("orders")) == 1
    Path("seconds").write_text(str(time.perf_counter() - began))
"""


def figures() -> list[Figure]:
    return [
        _collecting(),
        *_first_record(),
        *_resetting(),
        *_restoring(),
        _restoring_large_logs(),
        _examples(),
        _several_brokers(),
        _rules_that_do_not_match(),
        *suite_of_tests.figures(),
        *_audited(),
        _judged(),
        *_captured(),
    ]


def _collecting() -> Figure:
    """Processor time: an empty suite is so short that the scheduler would be measured. The plugin comes as it does for
    users, by its entry point, for which pytest reads what every installed distribution says of itself; so does the run
    without it, which asks for a module that is no plugin."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p"]
    # Only what is named: other plugins take longer than what is looked for.
    environment = {**_environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:

        def milliseconds(plugin: str) -> Callable[[], float]:
            def measure() -> float:
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(
                    [*command, plugin], cwd=directory, env=environment, stdout=subprocess.DEVNULL, check=False
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3

            return measure

        pairs = interleave(COLLECTIONS, milliseconds("ottla"), milliseconds("keyword"))
    more = statistics.median(ours - theirs for ours, theirs in pairs)
    name = "plugin installed and unused: processor time of pytest --collect-only, more than without"
    return _absolute(name, "ms", [more], 5)


def _first_record() -> list[Figure]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "ottla", "test_first.py"]
    environment = {**_environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, _bed() as bed:
        Path(directory, "test_first.py").write_text(FIRST_TEST)

        def ours() -> float:
            subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, check=True)
            return float(Path(directory, "seconds").read_text()) * 1e3

        kafka = Kafka(bed)
        kafka.create_topic("orders", partitions=1)
        pairs = interleave(ROUNDS, ours, lambda: asyncio.run(_round_trip(kafka.bootstrap)))
    name = "first fixture to first record, imports included"
    return [
        _absolute(name, "ms", [first for first, _ in pairs], 150),
        Figure(name, "aiokafka: connect, send, read", "ms", pairs),
    ]


async def _round_trip(bootstrap: str) -> float:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    began = time.perf_counter()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", b"book")
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        await consumer.getone()
    return (time.perf_counter() - began) * 1e3


def _resetting() -> list[Figure]:
    taken: list[float] = []
    with _bed() as bed:
        kafka = Kafka(bed)
        for _ in range(RESETS):
            for number in range(TOPICS_AT_ONCE):
                kafka.produce(f"topic-{number}", [b"x"])
            began = time.perf_counter()
            kafka.reset()
            taken.append((time.perf_counter() - began) * 1e3)
    name = f"reset with {TOPICS_AT_ONCE} topics"
    return [
        _absolute(f"{name}, median", "ms", [statistics.median(taken)], 5),
        _absolute(f"{name}, p99", "ms", [statistics.quantiles(taken, n=100)[98]], 15),
    ]


def _restoring() -> list[Figure]:
    """Ten topics of ten partitions: each test writes to one of them, or to all. Beside it, the seed is loaded again."""
    records = [{"value": "x" * 100, "count": 100}]
    topics = {f"topic-{number}": {"partitions": 10, "records": records} for number in range(PARTITIONS // 10)}
    seed = {"topics": topics}
    with _bed() as bed:
        kafka = Kafka(bed)
        kafka.load(seed)
        kafka.snapshot("seeded")

        def restored(names: list[str]) -> Callable[[], float]:
            def measure() -> float:
                for name in names:
                    kafka.produce(name, [b"x"] * 10)
                return _milliseconds(lambda: kafka.restore("seeded"))

            return measure

        def load_again() -> None:
            kafka.reset()
            kafka.load(seed)

        one = [restored(["topic-0"])() for _ in range(RESTORES)]
        every = [restored(list(topics))() for _ in range(RESTORES)]
        pairs = interleave(ROUNDS, restored(list(topics)), lambda: _milliseconds(load_again))
    name = f"restore of {PARTITIONS} partitions"
    return [
        _absolute(f"{name}, of which {PARTITIONS // 10} have changed", "ms", [statistics.median(one)], 30),
        _absolute(f"{name} that have all changed", "ms", [statistics.median(every)], 30),
        Figure(f"{name} that have all changed", "reset, and load the seed again", "ms", pairs),
    ]


def _restoring_large_logs() -> Figure:
    records = [{"value": "x" * 1000, "count": 4000}]
    with _bed() as bed:
        kafka = Kafka(bed)
        for partition in range(LARGE_PARTITIONS):
            kafka.load({"topics": {f"topic-{partition}": {"partitions": 1, "records": records}}})
        kafka.snapshot("seeded")
        taken: list[float] = []
        for number in range(RESTORES):
            kafka.produce(f"topic-{number % LARGE_PARTITIONS}", [b"x"])
            taken.append(_milliseconds(lambda: kafka.restore("seeded")))
    name = f"restore of {LARGE_PARTITIONS} partitions with 4 MB each, of which one has changed"
    return _absolute(name, "ms", [statistics.median(taken)], 20)


def _examples() -> Figure:
    """What `kafka_world` does around each example, which makes a topic and a record."""
    with _bed() as bed:
        kafka = Kafka(bed)
        taken = 0.0
        for _ in range(EXAMPLES):
            taken += _milliseconds(kafka.reset)
            kafka.produce("orders", [b"x"])
    return _absolute(f"{EXAMPLES} examples of Hypothesis, the kit's part", "ms", [taken], 2000)


def _several_brokers() -> Figure:
    def started(brokers: int) -> Callable[[], float]:
        def measure() -> float:
            bed = Testbed(brokers=brokers)
            took = _milliseconds(bed.start)
            bed.stop()
            return took

        return measure

    pairs = interleave(ROUNDS, started(3), started(1))
    more = statistics.median(three - one for three, one in pairs)
    return _absolute("three brokers fresh, more than one", "ms", [more], 60)


def _rules_that_do_not_match() -> Figure:
    """Processor time of the broker's thread."""
    frame = produce_frame("orders", batch(1, 100))
    with _bed() as bed:
        kafka = Kafka(bed)
        kafka.create_topic("orders", partitions=1)
        client = RawClient(int(kafka.bootstrap.rpartition(":")[2]))

        def cost() -> float:
            before = bed.call(time.thread_time)
            client.pipeline(frame, PRODUCES, 100)
            return (bed.call(time.thread_time) - before) / PRODUCES * 1e6

        def with_rules() -> float:
            for number in range(RULES):
                kafka.fault(api="Fetch", topic=f"other-{number}", do={"delay": 1}, optional=True)
            try:
                return cost()
            finally:
                kafka.faults.clear()

        pairs = interleave(ROUNDS, with_rules, cost)
        client.close()
    return Figure(f"{RULES} rules for Fetch in place: processor per Produce", "no rules", "µs", pairs, at_most=1.03)


def _audited() -> Iterator[Figure]:
    """Processor time of the broker's thread."""
    with _bed() as bed:
        client = _client_of(bed)
        for name, records, window, count in NOTED:
            frame = produce_frame("orders", records)

            def cost(frame: bytes = frame, window: int = window, count: int = count, *, is_on: bool) -> float:
                bed.call(lambda: bed.auditor.begin(is_on=is_on))
                before = bed.call(time.thread_time)
                client.pipeline(frame, count, window)
                return (bed.call(time.thread_time) - before) / count * 1e6

            pairs = interleave(NOTED_ROUNDS, partial(cost, is_on=True), partial(cost, is_on=False))
            yield Figure(f"audit on: processor per Produce, {name}", "audit off", "µs", pairs, at_most=1.03)
        client.close()


def _judged() -> Figure:
    """Processor time of the verdict at the end of a test with so many different batches."""
    batches = [build_batch([Record(0, n, None, bytes(100), ())]) for n in range(JUDGED)]
    taken: list[float] = []
    with _bed() as bed:
        client = _client_of(bed)

        def judged() -> float:
            before = time.thread_time()
            assert bed.auditor.findings() == []
            return (time.thread_time() - before) * 1e3

        for _ in range(NOTED_ROUNDS):
            bed.call(bed.auditor.begin)
            for each in batches:
                client.pipeline(produce_frame("orders", each), 1, 1)
            taken.append(bed.call(judged))
        client.close()
    return _absolute(f"audit: the verdict on {JUDGED} batches, processor time", "ms", [statistics.median(taken)], 1)


def _captured() -> Iterator[Figure]:
    """Processor time of all threads but the client's, with that of the thread that writes the file."""
    with _bed() as bed, tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=IN_MEMORY) as directory:
        kafka, client = Kafka(bed), _client_of(bed)
        for name, records, window, count in NOTED:
            frame = produce_frame("orders", records)

            def cost(frame: bytes = frame, window: int = window, count: int = count, *, is_on: bool) -> float:
                capture = kafka.wire.record(f"{directory}/produces.owire") if is_on else None
                process, own = time.process_time(), time.thread_time()
                client.pipeline(frame, count, window)
                if capture is not None:
                    capture.stop()
                used = time.process_time() - process - (time.thread_time() - own)
                return used / count * 1e6

            pairs = interleave(NOTED_ROUNDS, partial(cost, is_on=True), partial(cost, is_on=False))
            yield Figure(f"capture on: processor per Produce, {name}", "no capture", "µs", pairs, at_most=1.05)
        client.close()


def _client_of(bed: Testbed) -> RawClient:
    kafka = Kafka(bed)
    kafka.create_topic("orders", partitions=1)
    return RawClient(int(kafka.bootstrap.rpartition(":")[2]))


@contextmanager
def _bed() -> Iterator[Testbed]:
    bed = Testbed()
    bed.start()
    try:
        yield bed
    finally:
        bed.stop()


def _environment() -> dict[str, str]:
    """One in which modules are not compiled again in every process."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _absolute(name: str, unit: str, values: list[float], at_most: float) -> Figure:
    return Figure(name, NO_BASELINE, unit, [(value, 1.0) for value in values], at_most=at_most)


def _milliseconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1e3
