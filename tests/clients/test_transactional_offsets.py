"""Consume, transform, produce with offsets in the transaction: each record is transformed once (I-24)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ClusterThread
from tests.clients.test_aiokafka import consumer as aio_consumer
from tests.clients.test_aiokafka import produce as aio_produce
from tests.clients.test_aiokafka import take
from tests.clients.test_confluent_kafka import WAIT_S, consumed, consumer, produced
from tests.served import ServedBroker

GROUP = "transformers"
INPUT = [str(number) for number in range(12)]
BATCH = 4


@contextmanager
def served(brokers: int, broker: ServedBroker) -> Iterator[Any]:
    """One broker as a user starts it, or a cluster in this process."""
    if brokers == 1:
        yield broker
        return
    with ClusterThread(brokers=brokers) as cluster:
        yield cluster


def create_topics(broker: Any, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, 2, replicas) for name in ("in", "out")]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)


class Transformer:
    """One consumer of the group, and its producer."""

    def __init__(self, broker: Any, transactional_id: str) -> None:
        self.reader: Consumer = consumer(broker, GROUP, isolation_level="read_committed")
        self.reader.subscribe(["in"])
        self.sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
        self.sender.init_transactions(WAIT_S)

    def transform(self, count: int, *, commit: bool) -> None:
        messages = consumed(self.reader, count)
        self.sender.begin_transaction()
        for message in messages:
            self.sender.produce("out", value=b"of " + (message.value() or b""), key=message.key())
        positions = self.reader.position(self.reader.assignment())
        self.sender.send_offsets_to_transaction(positions, self.reader.consumer_group_metadata(), WAIT_S)
        if commit:
            self.sender.commit_transaction(WAIT_S)
        else:
            assert self.sender.flush(WAIT_S) == 0
            self.sender.abort_transaction(WAIT_S)

    def close(self) -> None:
        self.reader.close()


def read(broker: Any, count: int) -> list[str]:
    reader: Consumer = consumer(broker, "readers", isolation_level="read_committed")
    reader.subscribe(["out"])
    messages = consumed(reader, count)
    assert reader.poll(0.5) is None
    reader.close()
    return [str(message.value(), "utf-8") for message in messages]


def committed(broker: Any) -> int:
    """By the group, over both partitions."""
    reader: Consumer = consumer(broker, GROUP)
    offsets = reader.committed([TopicPartition("in", index) for index in range(2)], WAIT_S)
    reader.close()
    return sum(max(each.offset, 0) for each in offsets)


@pytest.mark.parametrize("brokers", [1, 3])
def test_each_record_is_transformed_once(broker: ServedBroker, brokers: int) -> None:
    with served(brokers, broker) as cluster:
        create_topics(cluster, brokers)
        produced(cluster, "in", INPUT)
        first = Transformer(cluster, "one")
        first.transform(BATCH, commit=True)
        first.transform(BATCH, commit=False)
        first.close()
        assert committed(cluster) == BATCH

        # What was aborted comes again.
        second = Transformer(cluster, "one")
        for _ in range(2):
            second.transform(BATCH, commit=True)
        second.close()

        assert sorted(read(cluster, len(INPUT))) == sorted(f"of {value}" for value in INPUT)
        assert committed(cluster) == len(INPUT)


async def test_offsets_in_transactions_of_aiokafka(broker: ServedBroker) -> None:
    await aio_produce(broker, "in", [value.encode() for value in INPUT])
    partition = AioTopicPartition("in", 0)
    sender = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="one")
    await sender.start()
    for commits, expected in ((True, b"0"), (False, b"4"), (True, b"4")):
        async with aio_consumer(broker, "in", group_id=GROUP, isolation_level="read_committed") as reader:
            messages = await take(reader, BATCH)
        assert messages[0].value == expected
        await sender.begin_transaction()
        for message in messages:
            await sender.send("out", b"of " + message.value)
        await sender.send_offsets_to_transaction({partition: messages[-1].offset + 1}, GROUP)
        await (sender.commit_transaction() if commits else sender.abort_transaction())
    await sender.stop()

    async with aio_consumer(broker, "out", isolation_level="read_committed") as reader:
        assert [message.value for message in await take(reader, 2 * BATCH)] == [
            b"of %d" % number for number in range(2 * BATCH)
        ]
    async with aio_consumer(broker, "in", group_id=GROUP) as reader:
        assert await reader.committed(partition) == 2 * BATCH
