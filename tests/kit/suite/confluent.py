"""confluent-kafka, in the words of the suite."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ottla.testing.profile import client_config
from tests.kit.suite.library import POLL_MS, READ_UNCOMMITTED, WITHIN_S, Follower, Placed, Read, Sent

QUIET = {"log_level": 0}
# A partition that is assigned while a fetch of others waits is fetched after it.
SHORT_FETCHES = {"fetch.wait.max.ms": 50}


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._producer = client_config("producer", "confluent-kafka", bootstrap) | QUIET
        self._consumer = client_config("consumer", "confluent-kafka", bootstrap) | QUIET | SHORT_FETCHES

    def send(
        self, topic: str, records: Sequence[Sent], *, idempotent: bool = False, compression: str = "none"
    ) -> list[Placed]:
        producer = Producer(self._producer | {"enable.idempotence": idempotent, "compression.type": compression})
        return _written(producer, topic, records)

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
            reads = [_next(consumer) for _ in range(count)]
            if commits:
                consumer.commit(asynchronous=False)
            return reads

    def read(
        self, topic: str, partition: int, start: int, count: int, *, isolation: str = READ_UNCOMMITTED
    ) -> list[Read]:
        with self._opened("none", isolation) as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            return [_next(consumer) for _ in range(count)]

    def follow(self, topic: str, group: str, follower: Follower) -> None:
        with self._opened(group) as consumer:
            consumer.subscribe([topic])
            while not follower.over.is_set():
                message = consumer.poll(POLL_MS / 1000)
                if message is not None:
                    follower.reads.append(_read(message))
                follower.assigned = frozenset(each.partition for each in consumer.assignment())

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        with self._opened(group) as consumer:
            (found,) = consumer.committed([TopicPartition(topic, partition)], WITHIN_S)
            return None if found.offset < 0 else found.offset

    def commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        with self._opened(group) as consumer:
            consumer.commit(offsets=_offsets(topic, offsets), asynchronous=False)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        with self._opened("none") as consumer:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), WITHIN_S)
            return first, end

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._opened("none") as consumer:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], WITHIN_S)
            return None if found.offset < 0 else found.offset

    def transact(
        self,
        transactional_id: str,
        topic: str,
        records: Sequence[Sent],
        *,
        commits: bool,
        read: tuple[str, str, Mapping[int, int]] | None = None,
    ) -> None:
        producer = Producer(self._producer | {"transactional.id": transactional_id})
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        _written(producer, topic, records)
        if read is not None:
            group, source, offsets = read
            with self._opened(group) as consumer:
                metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(_offsets(source, offsets), metadata, WITHIN_S)
        if commits:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)

    def grow(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(WITHIN_S)

    def partitions(self, topic: str) -> int:
        found = self._admin().list_topics(timeout=WITHIN_S).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        until = TopicPartition(topic, partition, before)
        admin = self._admin()
        admin.delete_records([until])[until].result(WITHIN_S)

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(WITHIN_S)

    def _admin(self) -> AdminClient:
        """To be held until it has answered: it ends what it is asked when it goes."""
        return AdminClient({"bootstrap.servers": self._producer["bootstrap.servers"], **QUIET})

    @contextmanager
    def _opened(self, group: str, isolation: str = READ_UNCOMMITTED) -> Iterator[Consumer]:
        config = {"group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
        consumer = Consumer(self._consumer | config)
        try:
            yield consumer
        finally:
            consumer.close()


def _written(producer: Producer, topic: str, records: Sequence[Sent]) -> list[Placed]:
    placed: list[Placed] = []
    errors: list[object] = []

    def note(error: object, message: Any) -> None:
        if error is None:
            placed.append((message.partition(), message.offset()))
        else:
            errors.append(error)

    for each in records:
        options: dict[str, Any] = {} if each.partition is None else {"partition": each.partition}
        if each.timestamp_ms is not None:
            options["timestamp"] = each.timestamp_ms
        producer.produce(topic, each.value, each.key, headers=list(each.headers), on_delivery=note, **options)
    assert producer.flush(WITHIN_S) == 0
    assert errors == []
    return placed


def _next(consumer: Consumer) -> Read:
    message = consumer.poll(WITHIN_S)
    assert message is not None, f"no record came within {WITHIN_S} s"
    return _read(message)


def _read(message: Any) -> Read:
    assert message.error() is None, message.error()
    headers = tuple(message.headers() or ())
    return Read(message.partition(), message.offset(), message.value(), message.key(), headers, message.topic())


def _offsets(topic: str, offsets: Mapping[int, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
