"""Clients for the kit's tests: those of users, made with what the handle gives them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer
from kafka.errors import KafkaError

from ottla.testing.handle import Kafka

KAFKA_PYTHON_POLL_MS = 230
"""For members by kafka-python that poll in a loop. Version 3.0.12 drops an assignment whose SyncGroup is answered after
the end of the poll that sent it: the member is in the group then, owns nothing, and does not join again. Members join
when they have metadata, after 100 ms, and when a heartbeat says so, each 500 ms: at those moments no poll ends."""


@contextmanager
def consumer(kafka: Kafka, group: str, *topics: str, **config: Any) -> Iterator[Consumer]:
    made = Consumer(kafka.client_config("consumer") | {"group.id": group, "log_level": 0} | config)
    made.subscribe(list(topics))
    try:
        yield made
    finally:
        close(made)


def close(made: Consumer) -> None:
    """An assignment that no poll has served, and that comes at this moment, makes librdkafka 2.16.0 hang in its close
    for ever and keep Python's lock (docs/clients/confluent-kafka.md). What has no partitions gets no record by this."""
    if not made.assignment():
        made.poll(0)
    made.close()


@contextmanager
def busy_member(kafka: Kafka, topic: str) -> Iterator[None]:
    """Of the group `busy`: it joins, polls and commits in a thread. Its group and its connections go away under it:
    kafka-python raises that now and then. Whatever else it raises fails the test."""
    is_over = Event()
    made = KafkaConsumer(topic, **kafka.client_config("consumer", "kafka-python"), group_id="busy")

    def consume() -> None:
        while not is_over.is_set():
            try:
                made.poll(timeout_ms=20)
                made.commit({})
            except KafkaError:
                continue
        made.close(autocommit=False)

    with ThreadPoolExecutor(1) as thread:
        consuming = thread.submit(consume)
        try:
            yield
        finally:
            is_over.set()
            consuming.result()


def send(kafka: Kafka, topic: str, *values: bytes, **config: Any) -> Producer:
    """A producer that has sent these values, each acknowledged."""
    producer = Producer(kafka.client_config("producer") | {"log_level": 0} | config)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    return producer


def polled(made: Consumer, count: int) -> list[bytes]:
    """The values of the next records."""
    values: list[bytes] = []
    while len(values) < count:
        message = made.poll(20)
        assert message is not None, f"{len(values)} of {count} records came"
        assert message.error() is None, message.error()
        values.append(message.value())
    return values
