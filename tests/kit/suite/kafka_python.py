"""kafka-python, in the words of the suite."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from ottla.testing.profile import client_config
from tests.kit.members import KAFKA_PYTHON_POLL_MS
from tests.kit.suite.library import READ_COMMITTED, READ_UNCOMMITTED, WITHIN_S, Follower, Placed, Read, Sent


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = client_config("producer", "kafka-python", bootstrap)
        self._consumer = client_config("consumer", "kafka-python", bootstrap)

    def send(
        self, topic: str, records: Sequence[Sent], *, idempotent: bool = False, compression: str = "none"
    ) -> list[Placed]:
        codec = None if compression == "none" else compression
        producer = KafkaProducer(**self._producer, enable_idempotence=idempotent, compression_type=codec)
        try:
            return _written(producer, topic, records)
        finally:
            producer.close()

    def consume(
        self,
        topics: Sequence[str],
        group: str,
        count: int,
        *,
        commits: bool = True,
        isolation: str = READ_UNCOMMITTED,
    ) -> list[Read]:
        with self._opened(group, isolation) as consumer:
            consumer.subscribe(list(topics))
            reads = _take(consumer, count)
            if commits:
                consumer.commit()
            return reads

    def read(
        self, topic: str, partition: int, start: int, count: int, *, isolation: str = READ_UNCOMMITTED
    ) -> list[Read]:
        with self._opened(None, isolation) as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, start)
            return _take(consumer, count)

    def follow(self, topic: str, group: str, follower: Follower) -> None:
        with self._opened(group) as consumer:
            consumer.subscribe([topic])
            while not follower.over.is_set():
                follower.reads += _polled(consumer, KAFKA_PYTHON_POLL_MS)
                follower.assigned = frozenset(each.partition for each in consumer.assignment())

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        # It asks for stable offsets then: Apache Kafka answers EndTxn before the offsets' coordinator has the marker.
        with self._opened(group, READ_COMMITTED) as consumer:
            offset: int | None = consumer.committed(TopicPartition(topic, partition))
            return offset

    def commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        with self._opened(group) as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in offsets])
            consumer.commit(_offsets(topic, offsets))

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        with self._opened(None) as consumer:
            place = TopicPartition(topic, partition)
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._opened(None) as consumer:
            place = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None else found.offset

    def transact(
        self,
        transactional_id: str,
        topic: str,
        records: Sequence[Sent],
        *,
        commits: bool,
        read: tuple[str, str, Mapping[int, int]] | None = None,
    ) -> None:
        producer = KafkaProducer(**self._producer, transactional_id=transactional_id)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            _written(producer, topic, records)
            if read is not None:
                group, source, offsets = read
                producer.send_offsets_to_transaction(_offsets(source, offsets), group)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        finally:
            producer.close()

    def grow(self, topic: str, partitions: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: partitions})

    def partitions(self, topic: str) -> int:
        with self._admin() as admin:
            found = [each for each in admin.describe_topics() if each["name"] == topic]
            return len(found[0]["partitions"]) if found else 0

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        with self._admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            yield admin
        finally:
            admin.close()

    @contextmanager
    def _opened(self, group: str | None, isolation: str = READ_UNCOMMITTED) -> Iterator[KafkaConsumer]:
        config: dict[str, Any] = {"group_id": group, "enable_auto_commit": False, "isolation_level": isolation}
        consumer = KafkaConsumer(**self._consumer, **config)
        try:
            yield consumer
        finally:
            consumer.close()


def _written(producer: KafkaProducer, topic: str, records: Sequence[Sent]) -> list[Placed]:
    futures = [
        producer.send(topic, each.value, each.key, list(each.headers), each.partition, each.timestamp_ms)
        for each in records
    ]
    return [(done.partition, done.offset) for done in (future.get(WITHIN_S) for future in futures)]


def _take(consumer: KafkaConsumer, count: int) -> list[Read]:
    """The next records, and no position beyond them."""
    reads: list[Read] = []
    while len(reads) < count:
        polled = _polled(consumer, int(WITHIN_S * 1000), count - len(reads))
        assert polled, f"{len(reads)} of {count} records came"
        reads += polled
    return reads


def _polled(consumer: KafkaConsumer, within_ms: int, at_most: int | None = None) -> list[Read]:
    found = consumer.poll(timeout_ms=within_ms, max_records=at_most)
    return [
        Read(each.partition, each.offset, each.value, each.key, tuple(each.headers), each.topic)
        for records in found.values()
        for each in records
    ]


def _offsets(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()
    }
