"""Topics with known records, made by a client that is not Spark."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.cluster_processes import wait_for

# Long enough for a leader that was killed to be missed and replaced.
WAIT_S = 30
BROKERS_REPLICATION_FACTOR = -1


class Reachable(Protocol):
    """A broker, or several."""

    bootstrap: str


def topic_name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def make_topic(broker: Reachable, partitions: int = 3, **config: str) -> str:
    """With as many replicas as the brokers are set to give; `config` has Kafka's names with underscores for dots."""
    name = topic_name()
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, partitions, BROKERS_REPLICATION_FACTOR, config=settings)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([topic])[name].result(WAIT_S)
    wait_until_known(broker, name, partitions)
    return name


def add_partitions(broker: Reachable, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S)
    wait_until_known(broker, topic, total)


def wait_until_known(broker: Reachable, topic: str, partitions: int) -> None:
    """Until every broker knows all partitions: brokers that did not create them see them a moment later."""
    for address in broker.bootstrap.split(","):

        def knows(address: str = address) -> bool:
            seen = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=WAIT_S).topics[topic]
            return len(seen.partitions) == partitions and all(one.leader >= 0 for one in seen.partitions.values())

        wait_for(knows, WAIT_S, f"{address} does not know {topic}")


def set_retention(broker: Reachable, topic: str, milliseconds: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def produce(broker: Reachable, topic: str, values: Iterable[str | None], **fields: Any) -> None:
    """`fields` are those of confluent-kafka's `produce`: key, partition, timestamp, headers. A few go in one batch."""
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "log_level": 2})

    def note(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(error)

    for value in values:
        producer.produce(topic, value=value, on_delivery=note, **fields)
    assert producer.flush(WAIT_S) == 0
    assert refused == []


def end_offsets(broker: Reachable, topic: str, partitions: Sequence[int] = (0, 1, 2)) -> dict[int, int]:
    return {partition: watermarks(broker, topic, partition)[1] for partition in partitions}


def watermarks(broker: Reachable, topic: str, partition: int) -> tuple[int, int]:
    """The first offset that is kept, and the high watermark."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looking"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
        return low, high
    finally:
        consumer.close()


def consume_all(broker: Reachable, topic: str, partitions: Sequence[int] = (0, 1, 2)) -> list[Any]:
    """Every record of the topic, by a reader that is not Spark, in the order of partition and offset."""
    ends = end_offsets(broker, topic, partitions)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reading", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    records: list[Any] = []
    missing = sum(ends.values())
    try:
        while missing > 0:
            # It waits until it has as many as asked for.
            batch = consumer.consume(min(missing, 1000), WAIT_S)
            assert batch, f"{missing} of {sum(ends.values())} records do not come"
            missing -= len(batch)
            records += batch
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition(), record.offset()))


class Transactions:
    """One transactional producer."""

    def __init__(self, broker: Reachable) -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic_name("tx"), "log_level": 0}
        self._producer = Producer(settings)
        self._producer.init_transactions(WAIT_S)

    def begin(self, topic: str, values: Iterable[str], **fields: Any) -> None:
        """The records are in the topic, and the transaction is open."""
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(topic, value=value, **fields)
        assert self._producer.flush(WAIT_S) == 0

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(WAIT_S)
        else:
            self._producer.abort_transaction(WAIT_S)

    def run(self, topic: str, values: Iterable[str], *, commit: bool, **fields: Any) -> None:
        self.begin(topic, values, **fields)
        self.end(commit=commit)


def consume_committed(broker: Reachable, topic: str, partitions: Sequence[int] = (0, 1, 2)) -> list[Any]:
    """As `consume_all`, of a reader of committed records: as far as the last stable offsets of now."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reading", "auto.offset.reset": "earliest"}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    records: list[Any] = []
    ended: set[int] = set()
    try:
        while len(ended) < len(partitions):
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    records.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition(), record.offset()))
