"""The C client as a user has it, confluent-kafka, against the mock cluster that it carries within itself."""

import subprocess
import sys
import time

from benchmarks import processes
from benchmarks.figure import Figure, interleave
from benchmarks.raw_client import RawClient, create_topic

ROUNDS = 5
RECORDS = 400_000
RECORD_BYTES = 100


def figures() -> list[Figure]:
    with processes.broker(log_segment_bytes=str(1 << 30)) as ours:
        create_topic(RawClient(ours.port), "small")
        pairs = interleave(
            ROUNDS, lambda: _records_per_second(f"127.0.0.1:{ours.port}"), lambda: _records_per_second("mock")
        )
    baseline = "the same client against its own mock cluster"
    return [Figure("produce 100 B records, confluent-kafka", baseline, "k/s", pairs, at_least=0.95)]


def _records_per_second(bootstrap: str) -> float:
    """In a process of its own: a producer keeps threads and buffers that would disturb the next round."""
    command = [sys.executable, "-m", "benchmarks.librdkafka", bootstrap]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e3


def _produce(bootstrap: str) -> float:
    from confluent_kafka import Producer

    where = {"test.mock.num.brokers": 1} if bootstrap == "mock" else {"bootstrap.servers": bootstrap}
    producer = Producer({**where, "acks": 1, "linger.ms": 5, "queue.buffering.max.messages": RECORDS + 1})
    value = bytes(RECORD_BYTES)
    producer.list_topics("small", 10)
    started = time.perf_counter()
    for _ in range(RECORDS):
        producer.produce("small", value)
    assert producer.flush(60) == 0, "not all records were acknowledged"
    return RECORDS / (time.perf_counter() - started)


if __name__ == "__main__":
    print(_produce(sys.argv[1]))
