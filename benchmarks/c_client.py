"""The C client as a user has it, confluent-kafka, in a process of its own: it keeps threads and buffers that would
disturb the next measurement.

`python -m benchmarks.c_client produce BOOTSTRAP TOPIC RECORDS RECORD_BYTES` and
`python -m benchmarks.c_client consume BOOTSTRAP TOPIC RECORDS` print the seconds that it took,
`python -m benchmarks.c_client produce_idempotent BOOTSTRAP TOPIC TIMES RECORDS RECORD_BYTES` does so as transactional
producers do, with sequence numbers, and waits TIMES times until RECORDS more are acknowledged,
`python -m benchmarks.c_client consume_uncommitted BOOTSTRAP TOPIC RECORDS` reads those of open and aborted transactions
too, which the C client otherwise leaves out.
`python -m benchmarks.c_client transactions BOOTSTRAP TOPIC TRANSACTIONS RECORDS RECORD_BYTES ABORT_EVERY` sends that
many records in each transaction, aborts each ABORT_EVERYth (0: none) and prints the seconds.
`python -m benchmarks.c_client latency BOOTSTRAP TOPIC RECORDS RECORDS_PER_SECOND` the median of the seconds from a
record of 1 KiB to its acknowledgement.
"""

import statistics
import subprocess
import sys
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TIMEOUT_S = 60
# The first ones find connections and caches in the making.
WARM_UP_RECORDS = 100
WARM_UP_TRANSACTIONS = 50
PRODUCER = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    # Enough to keep the client busy, and few enough that it uses the same memory again and again.
    "queue.buffering.max.kbytes": 32 << 10,
    "queue.buffering.max.messages": 1_000_000,
}
CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    # By default a consumer of small records pauses for a second whenever it has read 100,000 of them ahead. Nor may it
    # read far ahead: a broker that is faster would make it touch more memory, and that costs it more than it gains.
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 8 << 10,
    "fetch.queue.backoff.ms": 1,
}


def produce(bootstrap: str, topic: str, records: int, record_bytes: int) -> float:
    """Seconds from the first record handed over to the last one acknowledged by all replicas."""
    return _seconds("produce", bootstrap, topic, records, record_bytes)


def produce_idempotent(bootstrap: str, topic: str, times: int, records: int, record_bytes: int) -> float:
    """As `transactions`, without any."""
    return _seconds("produce_idempotent", bootstrap, topic, times, records, record_bytes)


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Seconds in which an idle consumer receives that many records of partition 0 from its start."""
    return _seconds("consume", bootstrap, topic, records)


def median_latency(bootstrap: str, topic: str, records: int, per_second: int) -> float:
    """Seconds from a record of 1 KiB, sent by itself at a steady rate, to its acknowledgement by all replicas."""
    return _seconds("latency", bootstrap, topic, records, per_second)


def consume_uncommitted(bootstrap: str, topic: str, records: int) -> float:
    """As `consume`, with the records of aborted transactions."""
    return _seconds("consume_uncommitted", bootstrap, topic, records)


def transactions(
    bootstrap: str, topic: str, transactions: int, records: int, record_bytes: int, abort_every: int = 0
) -> float:
    """Seconds from the first transaction's begin to the last one's end, one after the other."""
    return _seconds("transactions", bootstrap, topic, transactions, records, record_bytes, abort_every)


def _seconds(action: str, *arguments: str | int) -> float:
    command = [sys.executable, "-m", "benchmarks.c_client", action, *map(str, arguments)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=2 * TIMEOUT_S).stdout)


def _produce(bootstrap: str, topic: str, records: int, record_bytes: int) -> float:
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})
    producer.list_topics(topic, TIMEOUT_S)
    value = bytes(record_bytes)
    started = time.perf_counter()
    for number in range(records):
        # Records that were acknowledged leave the queue when the client is polled.
        if number % 1000 == 0:
            producer.poll(0)
        while not _accepted(producer, topic, value):
            producer.poll(0.01)
    assert producer.flush(TIMEOUT_S) == 0, "not all records were acknowledged"
    return time.perf_counter() - started


def _produce_idempotent(bootstrap: str, topic: str, times: int, records: int, record_bytes: int) -> float:
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.list_topics(topic, TIMEOUT_S)
    value = bytes(record_bytes)
    started = time.perf_counter()
    for _ in range(times):
        for _ in range(records):
            while not _accepted(producer, topic, value):
                producer.poll(0.01)
        assert producer.flush(TIMEOUT_S) == 0, "not all records were acknowledged"
    return time.perf_counter() - started


def _transactions(
    bootstrap: str, topic: str, transactions: int, records: int, record_bytes: int, abort_every: int
) -> float:
    settings = {**PRODUCER, "bootstrap.servers": bootstrap, "transactional.id": topic}
    # A transaction of one record waits for nothing.
    producer = Producer({**settings, "linger.ms": 0} if records == 1 else settings)
    producer.init_transactions(TIMEOUT_S)
    value = bytes(record_bytes)
    warm_up = min(transactions, WARM_UP_TRANSACTIONS if records == 1 else 0)
    started = time.perf_counter()
    for number in range(-warm_up, transactions):
        if number == 0:
            started = time.perf_counter()
        producer.begin_transaction()
        for _ in range(records):
            while not _accepted(producer, topic, value):
                producer.poll(0.01)
        if abort_every and number % abort_every == 0:
            # What is not sent yet would never be.
            assert producer.flush(TIMEOUT_S) == 0, "not all records were acknowledged"
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    return time.perf_counter() - started


def _accepted(producer: Producer, topic: str, value: bytes) -> bool:
    try:
        producer.produce(topic, value)
    except BufferError:
        return False
    return True


def _median_latency(bootstrap: str, topic: str, records: int, per_second: int) -> float:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, TIMEOUT_S)
    value = bytes(1024)
    latencies: list[float] = []
    due = time.perf_counter()
    while len(latencies) < WARM_UP_RECORDS + records:
        time.sleep(max(0.0, due - time.perf_counter()))
        due += 1 / per_second
        latencies.append(_latency(producer, topic, value))
    return statistics.median(latencies[WARM_UP_RECORDS:])


def _latency(producer: Producer, topic: str, value: bytes) -> float:
    sent = time.perf_counter()
    acknowledged: list[float] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        acknowledged.append(time.perf_counter())

    producer.produce(topic, value, on_delivery=delivered)
    while not acknowledged:
        producer.poll(TIMEOUT_S)
    return acknowledged[0] - sent


def _consume(bootstrap: str, topic: str, records: int, isolation_level: str = "read_committed") -> float:
    consumer = Consumer({**CONSUMER, "bootstrap.servers": bootstrap, "isolation.level": isolation_level})
    consumer.list_topics(topic, TIMEOUT_S)
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = 0
    while received < records:
        messages = consumer.consume(min(10_000, records - received), TIMEOUT_S)
        assert messages, f"only {received} of {records} records arrived"
        assert messages[0].error() is None, messages[0].error()
        received += len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds


def _consume_uncommitted(bootstrap: str, topic: str, records: int) -> float:
    return _consume(bootstrap, topic, records, "read_uncommitted")


ACTIONS = {
    "produce": _produce,
    "produce_idempotent": _produce_idempotent,
    "consume": _consume,
    "consume_uncommitted": _consume_uncommitted,
    "transactions": _transactions,
    "latency": _median_latency,
}

if __name__ == "__main__":
    action, where, name, *numbers = sys.argv[1:]
    print(ACTIONS[action](where, name, *map(int, numbers)))
