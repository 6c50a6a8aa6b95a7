"""A broker whose disk takes no more: the right error, nothing acknowledged lost, and it goes on when there is room."""

import resource
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.served import ServedBroker, served_broker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are set with prlimit")

FILE_BYTES_MAX = 300_000
RECORD_BYTES = 20_000
WAIT_S = 20


def limit_files(broker: ServedBroker, size: int) -> None:
    """A file that may not grow is as full as a disk can be, down to the torn write."""
    hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, hard))


def produce(broker: ServedBroker, values: list[bytes]) -> tuple[dict[int, bytes | None], set[str]]:
    """Acknowledged values by offset, and the names of the errors."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1, "linger.ms": 0, "retries": 0, "acks": "all"}
    )
    acknowledged: dict[int, bytes | None] = {}
    errors: set[str] = set()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.add(error.name())
        else:
            acknowledged[message.offset() or 0] = message.value()

    for value in values:
        producer.produce("t", value, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return acknowledged, errors


def consume(broker: ServedBroker, count: int) -> dict[int, bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    messages = [m for m in consumer.consume(count, WAIT_S) if m.error() is None]
    consumer.close()
    return {message.offset() or 0: message.value() for message in messages}


def test_full_disk_refuses_records_and_keeps_acknowledged_ones(tmp_path: Path) -> None:
    values = [b"%06d" % n + bytes(RECORD_BYTES) for n in range(40)]
    with served_broker(tmp_path / "data") as broker:
        limit_files(broker, FILE_BYTES_MAX)
        acknowledged, errors = produce(broker, values)
        fitting = len(acknowledged)
        assert 0 < fitting <= FILE_BYTES_MAX // RECORD_BYTES
        assert sorted(acknowledged) == list(range(fitting))
        assert errors == {"KAFKA_STORAGE_ERROR"}
        assert consume(broker, fitting) == acknowledged

        limit_files(broker, resource.RLIM_INFINITY)
        more, errors = produce(broker, [b"again"])
        assert (more, errors) == ({fitting: b"again"}, set())

        broker.kill()
        broker.start()
        assert consume(broker, fitting + 1) == acknowledged | more
