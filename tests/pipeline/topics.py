"""Topics with known records, made by a client that is not Spark."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.served import ServedBroker

WAIT_S = 20


def topic_name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def make_topic(broker: ServedBroker, partitions: int = 3, **config: str) -> str:
    name = topic_name()
    settings = {key.replace("_", "."): value for key, value in config.items()}
    create_topic_at(broker.bootstrap, name, partitions=partitions, config=settings)
    return name


def create_topic_at(
    bootstrap: str, name: str, *, partitions: int, replicas: int = 1, config: dict[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas, config=config or {})])[name].result(WAIT_S)


def add_partitions(broker: ServedBroker, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S)


def delete_before(broker: ServedBroker, topic: str, offsets: dict[int, int]) -> None:
    """As retention does: the log start moves up to the offset given for each partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for future in admin.delete_records(wanted).values():
        future.result(WAIT_S)


def produce(broker: ServedBroker, topic: str, values: Iterable[str], **fields: Any) -> None:
    """`fields` are those of confluent-kafka's `produce`: key, partition, timestamp, headers."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value=value, **fields)
    assert producer.flush(WAIT_S) == 0


def end_offsets(broker: ServedBroker, topic: str, partitions: Sequence[int] = (0, 1, 2)) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looking"})
    try:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=WAIT_S)[1] for p in partitions}
    finally:
        consumer.close()


def consume_all(broker: ServedBroker, topic: str, partitions: Sequence[int] = (0, 1, 2)) -> list[Any]:
    """Every record of the topic, by a reader that is not Spark, in the order of partition and offset."""
    ends = end_offsets(broker, topic, partitions)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reading", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    records: list[Any] = []
    try:
        while len(records) < sum(ends.values()):
            batch = consumer.consume(1000, WAIT_S)
            assert batch, f"only {len(records)} of {sum(ends.values())} records came"
            records += batch
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition(), record.offset()))
